package clients

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"klamm.dev/klamm"
)

func TestAProducerSendsAgainAfterAnError(t *testing.T) {
	cluster, client := orders(t)
	fault := cluster.MustFault(klamm.FilterBody{API: "Produce"}, klamm.EffectBody{Error: "NOT_LEADER_OR_FOLLOWER"}, 1)
	send(t, client)
	if hits, err := fault.Hits(t.Context()); err != nil || hits != 1 {
		t.Fatal(hits, err)
	}
}

func TestATopicIsCreatedWhenTheControllerGoesOn(t *testing.T) {
	cluster, client := orders(t)
	hold := cluster.MustHold(klamm.HoldBody{Phase: "ZooKeeperWrite", Where: map[string]any{"paths": "/brokers/topics/held"}})
	created := make(chan error)
	go func() {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "held", 1, 1
		_, err := (&kmsg.CreateTopicsRequest{Topics: []kmsg.CreateTopicsRequestTopic{topic}, TimeoutMillis: 30_000}).RequestWith(t.Context(), client)
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

func TestAProducerFindsTheNextLeaderWhenTheFirstOneIsDead(t *testing.T) {
	cluster, client := orders(t)
	leader, err := cluster.WaitForLeader(t.Context(), "orders", 0, 0, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Control.KillBroker(t.Context(), leader, klamm.KillBody{Expire: true}); err != nil {
		t.Fatal(err)
	}
	send(t, client)
}

func orders(t *testing.T) (*klamm.TestCluster, *kgo.Client) {
	cluster := klamm.New(t, klamm.Options{Topics: []string{"orders:1:3"}})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.BootstrapServers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return cluster, client
}

func send(t *testing.T, client *kgo.Client) {
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("a record")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
