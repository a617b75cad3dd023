// A producer of franz-go sends again after NOT_LEADER_OR_FOLLOWER. Run it with: go test
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type cluster struct {
	BootstrapServers string `json:"bootstrap_servers"`
	Control          string `json:"control"`
}

func start(t *testing.T) cluster {
	t.Helper()
	klamm := exec.Command("klamm", "serve", "--port", "0", "--json", "--stop-with-stdin", "--control-port", "0", "--topic", "orders:1")
	klamm.Stderr = os.Stderr
	if _, err := klamm.StdinPipe(); err != nil { // open as long as this process lives
		t.Fatal(err)
	}
	stdout, err := klamm.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := klamm.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		klamm.Process.Signal(syscall.SIGTERM)
		klamm.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var started cluster
	if err := json.Unmarshal(line, &started); err != nil {
		t.Fatal(err)
	}
	return started
}

// control sends a request to the control API, a POST if there is a body, and decodes the response into value.
func (c cluster) control(t *testing.T, path, body string, value any) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequest(method, c.Control+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(value); err != nil {
		t.Fatal(err)
	}
}

func TestProducerSendsAgainAfterAnError(t *testing.T) {
	c := start(t)
	var fault struct{ ID int }
	c.control(t, "/faults", `{"filter": {"api": "Produce", "client_id": "shop", "topic": "orders"},
		"effect": {"error": "NOT_LEADER_OR_FOLLOWER"}, "first": 1}`, &fault)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.BootstrapServers, ",")...), kgo.ClientID("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("a record")}).FirstErr(); err != nil {
		t.Fatal(err)
	}

	var hit struct{ Hits int }
	c.control(t, fmt.Sprintf("/faults/%d?hits=1", fault.ID), "", &hit)
	var sent struct{ Requests []struct{ Error *string } }
	c.control(t, "/requests?api=Produce&client_id=shop", "", &sent)
	if hit.Hits != 1 || len(sent.Requests) != 2 || *sent.Requests[0].Error != "NOT_LEADER_OR_FOLLOWER" || sent.Requests[1].Error != nil {
		t.Fatalf("hits: %d, requests: %v", hit.Hits, sent.Requests)
	}
}
