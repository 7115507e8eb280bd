package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const gpuSocket = "trainyard-gpu.sock"

// newGPUPlugin is a device plugin like NVIDIA's for GPUs that do not exist: the kubelet counts and allots them, and a
// container learns of those that it got from NVIDIA_VISIBLE_DEVICES, as from the real one.
func newGPUPlugin() *cobra.Command {
	var count int
	var host string
	command := &cobra.Command{
		Use:          "gpu-plugin",
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			for {
				if err := serveGPUs(gpuNames(host, count)); err != nil {
					fmt.Fprintln(os.Stderr, "gpu-plugin:", err)
				}
				time.Sleep(500 * time.Millisecond)
			}
		},
	}
	command.Flags().IntVar(&count, "count", 1, "how many GPUs")
	command.Flags().StringVar(&host, "host", "", "what tells the GPUs of one host from those of another")
	return command
}

func gpuNames(host string, count int) []string {
	names := make([]string, count)
	for index := range names {
		names[index] = fmt.Sprintf("GPU-%s-%d", host, index)
	}
	return names
}

// serveGPUs registers with the kubelet and serves until the socket is gone: a kubelet that starts removes it.
func serveGPUs(names []string) error {
	path := filepath.Join(api.DevicePluginPath, gpuSocket)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &gpus{names: names})
	defer server.Stop()
	go server.Serve(listener) //nolint:errcheck
	if err := register(); err != nil {
		return err
	}
	for {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return errors.New("the kubelet was started anew; registering again")
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func register() error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	bounded, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(bounded, &api.RegisterRequest{
		Version: api.Version, Endpoint: gpuSocket, ResourceName: "nvidia.com/gpu",
	})
	return err
}

type gpus struct {
	api.UnimplementedDevicePluginServer
	names []string
}

func (*gpus) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (plugin *gpus) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	devices := make([]*api.Device, len(plugin.names))
	for index, name := range plugin.names {
		devices[index] = &api.Device{ID: name, Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (*gpus) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	given := &api.AllocateResponse{}
	for _, one := range asked.ContainerRequests {
		given.ContainerResponses = append(given.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(one.DevicesIds, ",")},
		})
	}
	return given, nil
}
