// Kubelite is every Kubernetes program in one, as MicroK8s ships them: the name it is called by, or its first
// argument, says which one to be.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "unsafe"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var daemons = map[string]func() *cobra.Command{
	"gpu-plugin":              newGPUPlugin,
	"kine":                    newKine,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// A node tells the version of the channel that its host installed; there is one program for all channels.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

func main() {
	if told := os.Getenv("BED_VERSION"); told != "" {
		gitVersion = told
	}
	if filepath.Base(os.Args[0]) == "kubelite" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	name := filepath.Base(os.Args[0])
	if name == "kubectl" {
		talk()
		return
	}
	daemon, found := daemons[name]
	if !found {
		fmt.Fprintln(os.Stderr, "usage: kubelite kubectl|kubelet|kube-apiserver|kube-controller-manager|kube-proxy|kube-scheduler|gpu-plugin|kine [FLAG...]")
		os.Exit(2)
	}
	os.Exit(cli.Run(daemon()))
}

// talk is kubectl: unlike the daemons it prints an error as people are used to.
func talk() {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
