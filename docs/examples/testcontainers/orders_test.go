package orders

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startKlamm returns the address of a cluster in a container. Its clients must know their port before it starts, so a free one is chosen here.
func startKlamm(t *testing.T) string {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	address := fmt.Sprintf("localhost:%d", port)
	request := testcontainers.ContainerRequest{
		Image:        "klamm-serve",
		Cmd:          []string{"serve", "--brokers", "1", "--topic", "orders:1:1"},
		Env:          map[string]string{"KLAMM_ADVERTISED": address},
		ExposedPorts: []string{"9092/tcp"},
		HostConfigModifier: func(config *container.HostConfig) {
			config.PortBindings = nat.PortMap{"9092/tcp": {{HostPort: fmt.Sprint(port)}}}
		},
		WaitingFor: wait.ForLog(address),
	}
	klamm, err := testcontainers.GenericContainer(context.Background(), testcontainers.GenericContainerRequest{ContainerRequest: request, Started: true})
	testcontainers.CleanupContainer(t, klamm)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestARecordIsRead(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers(startKlamm(t)), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Value: []byte("record")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	records := client.PollFetches(context.Background()).Records()
	if string(records[0].Value) != "record" {
		t.Fatalf("read %s", records[0].Value)
	}
}
