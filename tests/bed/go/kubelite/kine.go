package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

const (
	kineAddress = "127.0.0.1:12380"
	rangeMethod = "/etcdserverpb.KV/Range"
	clientPort  = "12379"
)

// newKine stands between an API server and etcd so that etcd behaves like dqlite: reads are answered by this node's own
// copy, also while there is no quorum; all else goes to a voter, and waits for one.
func newKine() *cobra.Command {
	var local, cluster string
	command := &cobra.Command{
		Use:          "kine",
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			near, err := dial(strings.TrimPrefix(local, "http://"))
			if err != nil {
				return err
			}
			voters := manual.NewBuilderWithScheme("voters")
			voters.InitialState(votersOf(cluster))
			far, err := dial("voters:///dqlite", grpc.WithResolvers(voters))
			if err != nil {
				return err
			}
			go func() {
				for range time.Tick(time.Second) {
					voters.UpdateState(votersOf(cluster))
				}
			}()
			listener, err := net.Listen("tcp", kineAddress)
			if err != nil {
				return err
			}
			handler := func(_ any, stream grpc.ServerStream) error {
				method, _ := grpc.MethodFromServerStream(stream)
				if method == rangeMethod {
					return pass(stream, near, method, ownCopy)
				}
				return pass(stream, far, method, asItIs)
			}
			limit := grpc.MaxRecvMsgSize(64 << 20)
			return grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(handler), limit).Serve(listener)
		},
	}
	command.Flags().StringVar(&local, "local", "http://127.0.0.1:"+clientPort, "this node's etcd")
	command.Flags().StringVar(&cluster, "cluster", "", "cluster.yaml")
	return command
}

func dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	size := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.ForceCodec(raw{}))
	return grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()), size)...)
}

// votersOf reads the members whose role is 0.
func votersOf(path string) resolver.State {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kine:", err)
	}
	var state resolver.State
	address := ""
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(strings.TrimLeft(line, "- "), ": ")
		switch {
		case name == "Address":
			address, _, _ = strings.Cut(value, ":")
		case name == "Role" && value == "0":
			state.Addresses = append(state.Addresses, resolver.Address{Addr: address + ":" + clientPort})
		}
	}
	return state
}

func asItIs(message []byte) ([]byte, error) { return message, nil }

func ownCopy(message []byte) ([]byte, error) {
	var asked pb.RangeRequest
	if err := asked.Unmarshal(message); err != nil {
		return nil, err
	}
	asked.Serializable = true
	return asked.Marshal()
}

// pass connects a call with the same one of another server, message by message.
func pass(near grpc.ServerStream, server *grpc.ClientConn, method string, change func([]byte) ([]byte, error)) error {
	given, _ := metadata.FromIncomingContext(near.Context())
	bounded, cancel := context.WithCancel(metadata.NewOutgoingContext(near.Context(), given))
	defer cancel()
	far, err := server.NewStream(bounded, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if near.RecvMsg(&message) != nil {
				far.CloseSend() //nolint:errcheck
				return
			}
			changed, err := change(message)
			if err != nil || far.SendMsg(&changed) != nil {
				cancel()
				return
			}
		}
	}()
	for {
		var message []byte
		if err := far.RecvMsg(&message); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := near.SendMsg(&message); err != nil {
			return err
		}
	}
}

// raw is a codec that leaves messages as they are.
type raw struct{}

func (raw) Name() string                       { return "proto" }
func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}
