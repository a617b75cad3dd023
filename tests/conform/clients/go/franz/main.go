// An adapter of franz-go for `klamm conform --client`.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var env, ctx = os.Getenv, context.Background()
var codecs = map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
var strategies = map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()}

func number(text string) int { n, _ := strconv.Atoi(text); return n }
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
func tell(r *kgo.Record) {
	fmt.Printf("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\"}\n", r.Partition, r.Offset, r.Value)
}
func produce(client *kgo.Client, first int) {
	for i := first; i < first+number(env("RECORDS")); i++ {
		value := strconv.Itoa(i)
		value += strings.Repeat(".", max(0, number(env("SIZE"))-len(value)))
		client.Produce(ctx, &kgo.Record{Topic: env("TOPIC"), Partition: int32(number(env("PARTITION"))), Value: []byte(value)}, func(r *kgo.Record, err error) { fail(err); tell(r) })
		if i == first {
			fail(client.Flush(ctx))
		}
		time.Sleep(time.Duration(number(env("PAUSE_MS"))) * time.Millisecond)
	}
	fail(client.Flush(ctx))
}
func main() {
	task, topic, config := env("TESTCASE"), env("TOPIC"), map[string]string{}
	for _, line := range strings.Split(env("CONFIG"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		config[name] = value
	}
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(env("BOOTSTRAP"), ",")...), kgo.ClientID(config["client.id"]), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.FetchMaxWait(500 * time.Millisecond), kgo.RequestTimeoutOverhead(3 * time.Second), kgo.ProduceRequestTimeout(3 * time.Second), kgo.UnknownTopicRetries(-1)}
	if config["enable.idempotence"] == "false" {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[config["acks"]]))
	}
	if config["isolation.level"] == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if codec, ok := codecs[config["compression.type"]]; ok {
		options = append(options, kgo.ProducerBatchCompression(codec))
	}
	if strategy, ok := strategies[config["partition.assignment.strategy"]]; ok {
		options = append(options, kgo.Balancers(strategy))
	}
	if config["group.instance.id"] != "" {
		options = append(options, kgo.InstanceID(config["group.instance.id"]))
	}
	if age := number(config["metadata.max.age.ms"]); age > 0 {
		options = append(options, kgo.MetadataMaxAge(time.Duration(age)*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))
	}
	switch task {
	case "produce":
	case "transaction":
		options = append(options, kgo.TransactionalID(config["transactional.id"]), kgo.TransactionTimeout(20*time.Second))
	case "consume":
		place := map[int32]kgo.Offset{int32(number(env("PARTITION"))): kgo.NewOffset().At(int64(number(env("OFFSET"))))}
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: place}), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	case "group":
		options = append(options, kgo.ConsumerGroup(env("GROUP")), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	default:
		os.Exit(127)
	}
	client, err := kgo.NewClient(options...)
	fail(err)
	for i := 0; i < number(env("TRANSACTIONS")) && (task == "produce" || task == "transaction"); i++ {
		if task == "produce" {
			produce(client, 0)
			continue
		}
		fail(client.BeginTransaction())
		produce(client, i*number(env("RECORDS")))
		fail(client.EndTransaction(ctx, kgo.TransactionEndTry(env("END") == "commit")))
	}
	for ended := task != "consume" && task != "group"; !ended; {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { tell(r); ended = ended || string(r.Value) == "end" })
		if task == "group" {
			client.CommitUncommittedOffsets(ctx)
		}
	}
	client.Close()
}
