// Runs a release of sarama, which go.mod names.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var env = os.Getenv

func number(text string) int { n, _ := strconv.Atoi(text); return n }
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
func tell(partition int32, offset int64, value string) {
	fmt.Printf("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\"}\n", partition, offset, value)
}

func produce(servers []string, config *sarama.Config) {
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewAsyncProducer(servers, config)
	for tries := 0; err != nil && tries < 20; tries++ { // the coordinator may be loading
		time.Sleep(200 * time.Millisecond)
		producer, err = sarama.NewAsyncProducer(servers, config)
	}
	fail(err)
	count, told := number(env("RECORDS")), make(chan bool)
	go func() {
		for i := 0; i < count; i++ {
			select {
			case sent := <-producer.Successes():
				tell(sent.Partition, sent.Offset, sent.Metadata.(string))
			case failed := <-producer.Errors():
				fmt.Fprintln(os.Stderr, failed.Err)
			}
			told <- true
		}
	}()
	partitions := max(1, number(env("PARTITIONS")))
	left := count
	for i := 0; i < count; i++ {
		value := strconv.Itoa(i)
		producer.Input() <- &sarama.ProducerMessage{Topic: env("TOPIC"), Partition: int32(number(env("PARTITION")) + i%partitions), Value: sarama.StringEncoder(value), Metadata: value}
		if i < partitions {
			<-told
			left--
		}
		time.Sleep(time.Duration(number(env("PAUSE_MS"))) * time.Millisecond)
		for waits := true; waits; {
			select {
			case <-told:
				left--
			default:
				waits = false
			}
		}
	}
	for ; left > 0; left-- {
		<-told
	}
	producer.Close()
}

func commit(servers []string, config *sarama.Config) {
	client, err := sarama.NewClient(servers, config)
	fail(err)
	offsets, err := sarama.NewOffsetManagerFromClient(env("GROUP"), client)
	fail(err)
	partition, err := offsets.ManagePartition(env("TOPIC"), int32(number(env("PARTITION"))))
	fail(err)
	partition.MarkOffset(int64(number(env("OFFSET"))), "")
	partition.Close()
	offsets.Close()
}

type handler struct{ stop context.CancelFunc }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		tell(message.Partition, message.Offset, string(message.Value))
		session.MarkMessage(message, "")
		if string(message.Value) == "end" {
			h.stop()
		}
	}
	return nil
}

func main() {
	config, given := sarama.NewConfig(), map[string]string{}
	for _, line := range strings.Split(env("CONFIG"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		given[name] = value
	}
	version, err := sarama.ParseKafkaVersion(env("KAFKA_VERSION"))
	fail(err)
	config.Version, config.ClientID = version, given["client.id"]
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if given["enable.idempotence"] == "true" {
		config.Producer.Idempotent, config.Producer.RequiredAcks, config.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	}
	if given["compression.type"] == "zstd" {
		config.Producer.Compression = sarama.CompressionZSTD
	}
	if retries := given["retries"]; retries != "" {
		config.Producer.Retry.Max = number(retries)
	}
	if backoff := given["retry.backoff.ms"]; backoff != "" {
		config.Producer.Retry.Backoff = time.Duration(number(backoff)) * time.Millisecond
		config.Metadata.Retry.Backoff = config.Producer.Retry.Backoff
	}
	servers := strings.Split(env("BOOTSTRAP"), ",")
	switch env("TESTCASE") {
	case "produce":
		produce(servers, config)
	case "commit":
		commit(servers, config)
	default:
		group, err := sarama.NewConsumerGroup(servers, env("GROUP"), config)
		fail(err)
		ctx, stop := context.WithCancel(context.Background())
		for ctx.Err() == nil {
			fail(group.Consume(ctx, []string{env("TOPIC")}, handler{stop}))
		}
		group.Close()
	}
}
