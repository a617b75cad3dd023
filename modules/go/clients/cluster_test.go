// Package clients tests the module with real clients. KLAMM names the program.
package clients

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"klamm.dev/klamm"
)

func TestCluster(t *testing.T) {
	cluster := klamm.New(t, klamm.Options{
		Topics: []string{"orders:1", "others:1"}, Journal: true, Config: map[string]string{"group.initial.rebalance.delay.ms": "0"},
	})
	ctx := t.Context()

	t.Run("franz-go sends again after an error", func(t *testing.T) {
		partition := int64(0)
		fault := cluster.MustFault(
			klamm.FilterBody{API: "Produce", ClientID: "shop", Topic: "orders", Partition: &partition},
			klamm.EffectBody{Error: "NOT_LEADER_OR_FOLLOWER"}, 1,
		)
		client, err := kgo.NewClient(kgo.SeedBrokers(cluster.BootstrapServers...), kgo.ClientID("shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		produced := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("a record")})
		if err := produced.FirstErr(); err != nil || produced[0].Record.Offset != 0 {
			t.Fatal(err, produced[0].Record.Offset)
		}
		if err := fault.WaitForHits(ctx, 1, time.Second); err != nil {
			t.Fatal(err)
		}
		if err := fault.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		requests := cluster.MustRequests(klamm.GetRequestsQuery{API: "Produce", ClientID: "shop"})
		if len(requests) != 2 || requests[0]["error"] != "NOT_LEADER_OR_FOLLOWER" || requests[1]["error"] != nil {
			t.Fatal(requests)
		}
	})

	t.Run("sarama produces while a phase is held", func(t *testing.T) {
		count := int64(1)
		hold := cluster.MustHold(klamm.HoldBody{Phase: "ZooKeeperWrite", Where: map[string]any{"paths": "/brokers/topics/held"}, Count: &count})
		admin, err := sarama.NewClusterAdmin(cluster.BootstrapServers, sarama.NewConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		created := make(chan error)
		go func() {
			created <- admin.CreateTopic("held", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, false)
		}()
		if _, err := hold.Reached(ctx, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-created; err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitForLeader(ctx, "held", 0, 0, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("what is held fails, and the next one goes on after a step", func(t *testing.T) {
		hold := cluster.MustHold(klamm.HoldBody{Phase: "ZooKeeperWrite", Where: map[string]any{"paths": "/brokers/topics/failed"}})
		admin, err := sarama.NewClusterAdmin(cluster.BootstrapServers, sarama.NewConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		for _, goOn := range []func() error{
			func() error { return hold.Fail(ctx, klamm.FailBody{Error: "NOT_CONTROLLER"}) }, func() error { return hold.Step(ctx) },
		} {
			created := make(chan error)
			go func() {
				created <- admin.CreateTopic("failed", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
			}()
			if _, err := hold.Reached(ctx, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if err := goOn(); err != nil {
				t.Fatal(err)
			}
			<-created
		}
		if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("the controller moves, and the cluster is reset", func(t *testing.T) {
		if err := cluster.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		to := int64(2)
		if _, err := cluster.Control.MoveController(ctx, klamm.MoveBody{To: &to}); err != nil {
			t.Fatal(err)
		}
		if id, err := cluster.WaitForController(ctx, 2, 10*time.Second); err != nil || id != 2 {
			t.Fatal(id, err)
		}
		if err := cluster.Advance(ctx, time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitForRequests(ctx, 1, klamm.GetRequestsQuery{API: "CreateTopics"}, time.Second); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a link can be cut in one direction", func(t *testing.T) {
		both := false
		cut, err := cluster.Control.AddLink(ctx, klamm.LinkBody{FromBroker: 1, ToBroker: 2, Cut: true, Both: &both})
		if err != nil || len(cut["faults"].([]any)) != 1 {
			t.Fatal(err, cut)
		}
		if err := cluster.Reset(ctx); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("what the API refuses is an error with a line", func(t *testing.T) {
		_, err := cluster.Fault(ctx, klamm.FilterBody{API: "Produse"}, klamm.EffectBody{Error: "NOT_LEADER_OR_FOLLOWER"}, 0)
		if refused, ok := err.(*klamm.Refused); !ok || refused.Status != 400 || !strings.Contains(refused.Text, "Produse") {
			t.Fatal(err)
		}
	})

	t.Run("the transcript marks the first error, and the rules are obeyed", func(t *testing.T) {
		text, err := cluster.Transcript(ctx, 0)
		if err != nil || strings.Count(text, "\n> ") != 1 || !strings.Contains(text, "NOT_LEADER_OR_FOLLOWER") {
			t.Fatal(err, text)
		}
		obeyed, details, err := cluster.Verdict(ctx)
		if err != nil || !obeyed {
			t.Fatal(err, details)
		}
	})
}

func TestWhyAClusterCannotStartIsOneLine(t *testing.T) {
	if _, err := klamm.Start(klamm.Options{Topics: []string{"a b:1"}}); err == nil || !strings.Contains(err.Error(), "a b") {
		t.Fatal(err)
	}
	if _, err := klamm.Start(klamm.Options{Command: "/nothing/klamm"}); err == nil || !strings.Contains(err.Error(), "cannot start") {
		t.Fatal(err)
	}
}

func TestAProgramThatEndsWithoutAWordIsNamed(t *testing.T) {
	if _, err := klamm.Start(klamm.Options{Command: "false"}); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Fatal(err)
	}
}

func TestAClusterMayBeStoppedInItsTest(t *testing.T) {
	cluster := klamm.New(t, klamm.Options{Brokers: 1})
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestAChildThatIsKilled is the child of the test below.
func TestAChildThatIsKilled(t *testing.T) {
	if os.Getenv("KLAMM_CHILD") == "" {
		t.Skip("started by another test")
	}
	cluster, err := klamm.Start(klamm.Options{Brokers: 1})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("at", cluster.BootstrapServers[0])
	select {}
}

func TestAClusterEndsWithATestThatIsKilled(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^TestAChildThatIsKilled$")
	child.Env = append(os.Environ(), "KLAMM_CHILD=1")
	stdout, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	for lines := bufio.NewScanner(stdout); address == "" && lines.Scan(); {
		address, _ = strings.CutPrefix(lines.Text(), "at ")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		connection.Close()
		if time.Now().After(until) {
			t.Fatal("the cluster serves at", address)
		}
	}
}

func TestAFaultReachesAClusterInAContainerWhoseJournalIsJudgedThere(t *testing.T) {
	image := os.Getenv("KLAMM_IMAGE")
	if image == "" {
		t.Skip("KLAMM_IMAGE names no image")
	}
	cluster := klamm.New(t, klamm.Options{Image: image, Docker: os.Getenv("KLAMM_DOCKER"), Topics: []string{"orders:1:3"}, Journal: true})
	fault := cluster.MustFault(klamm.FilterBody{API: "Produce"}, klamm.EffectBody{Error: "NOT_LEADER_OR_FOLLOWER"}, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.BootstrapServers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("a record")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if hits, err := fault.Hits(t.Context()); err != nil || hits != 1 {
		t.Fatal(hits, err)
	}
	if obeyed, details, err := cluster.Verdict(t.Context()); err != nil || !obeyed {
		t.Fatal(err, details)
	}
}
