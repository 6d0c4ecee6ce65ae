// Command kubernetes is etcd, the control plane, kubelet, kube-proxy and kubectl in one program.
//
// One program shares the packages that all of them link: it takes 140 MB instead of 600 and is built in a third of the
// time. The name under which it is called chooses the component, so that a symbolic link named "kubelet" is a kubelet;
// otherwise the first argument does: `kubernetes kubelet --config=...`.
//
// Every component runs in a process of its own, because feature gates, metrics and logging are global to a process.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, on machines without a database of them

	"github.com/spf13/cobra"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps the name of a component to the function that runs it and returns its exit code.
var components = map[string]func() int{
	"etcd":                    etcd,
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewControllerManagerCommand),
	"kube-proxy":              command(proxy.NewProxyCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 command(func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() }),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

// command runs a component as its own program does, with its logging and its exit code.
func command(create func() *cobra.Command) func() int {
	return func() int { return cli.Run(create()) }
}

func main() {
	run, exists := components[filepath.Base(os.Args[0])]
	if !exists && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		run, exists = components[os.Args[0]]
	}
	if !exists {
		names := slices.Sorted(maps.Keys(components))
		fmt.Fprintf(os.Stderr, "usage: kubernetes %s [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run())
}
