// Package orders has tests with a cluster of Klamm in a container. They need the module modules/go, and docker on PATH.
package orders

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"klamm.dev/klamm"
)

func start(t *testing.T) (*klamm.TestCluster, *kgo.Client) {
	cluster := klamm.New(t, klamm.Options{Image: "klamm-serve", Topics: []string{"orders:1:3"}})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.BootstrapServers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return cluster, client
}

func TestAProducerSendsAgainAfterAnError(t *testing.T) {
	cluster, client := start(t)
	fault := cluster.MustFault(klamm.FilterBody{API: "Produce"}, klamm.EffectBody{Error: "NOT_LEADER_OR_FOLLOWER"}, 1)
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("a book")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if hits, err := fault.Hits(t.Context()); err != nil || hits != 1 {
		t.Fatal(hits, err)
	}
}

func TestATopicIsCreatedWhenTheControllerGoesOn(t *testing.T) {
	cluster, client := start(t)
	hold := cluster.MustHold(klamm.HoldBody{Phase: "ZooKeeperWrite", Where: map[string]any{"paths": "/brokers/topics/bills"}})
	created := make(chan error)
	go func() {
		_, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 3, nil, "bills")
		created <- err
	}()
	if _, err := hold.Reached(t.Context(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
}
