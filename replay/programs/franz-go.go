// Runs a release of franz-go, which go.mod names: a consumer of two topics that leaves one of them.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	env, ctx, config := os.Getenv, context.Background(), map[string]string{}
	for _, line := range strings.Split(env("CONFIG"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		config[name] = value
	}
	at := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(env("BOOTSTRAP"), ",")...), kgo.ClientID(config["client.id"]), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{env("TOPIC"): at, env("OTHER"): at}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for ended := false; !ended; {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			fmt.Printf("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\"}\n", r.Partition, r.Offset, r.Value)
			if string(r.Value) == "leave" {
				client.RemoveConsumePartitions(map[string][]int32{env("OTHER"): {0}})
			}
			ended = ended || string(r.Value) == "end"
		})
	}
	client.Close()
}
