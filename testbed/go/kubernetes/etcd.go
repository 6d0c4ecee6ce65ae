package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcd runs a cluster of one member on the loopback, and returns its exit code.
//
// Its data is not flushed to the disk: it survives the process, as tests that restart etcd need, but not the machine.
func etcd() int {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	directory := flags.String("data-dir", "etcd", "folder of the data")
	client := flags.String("listen-client-urls", "http://127.0.0.1:2379", "address for clients")
	peer := flags.String("listen-peer-urls", "http://127.0.0.1:2380", "address for other members")
	_ = flags.Parse(os.Args[1:]) // ends the program on an error

	config := embed.NewConfig()
	config.Dir, config.UnsafeNoFsync, config.LogLevel = *directory, true, "warn"
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // zero would log every request
	if err := listen(config, *client, *peer); err != nil {
		return failed(err)
	}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return failed(err)
	}
	defer server.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-signals:
		return 0
	case err := <-server.Err():
		return failed(err)
	}
}

// listen sets the addresses on which the member listens, and under which it is reached.
func listen(config *embed.Config, client, peer string) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	return nil
}

// failed reports an error, and returns the exit code of a failure.
func failed(err error) int {
	fmt.Fprintln(os.Stderr, "etcd:", err)
	return 1
}
