package main

import (
	"time"

	"example/adapters/task"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const within = 3 * time.Second

// options are the configs of the task as franz-go has them. Its pauses are as short as those of other clients.
func options() []kgo.Opt {
	config := task.Config
	all := []kgo.Opt{
		kgo.SeedBrokers(task.Bootstrap...), kgo.ClientID(config["client.id"]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(500 * time.Millisecond), kgo.RequestTimeoutOverhead(within), kgo.ProduceRequestTimeout(within),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	add := func(is bool, more ...kgo.Opt) {
		if is {
			all = append(all, more...)
		}
	}
	if age := task.Parsed(config["metadata.max.age.ms"]); age > 0 {
		all = append(all, kgo.MetadataMaxAge(time.Duration(age)*time.Millisecond))
	}
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		"": kgo.NoCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	strategies := map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()}
	strategy, named := strategies[config["partition.assignment.strategy"]]
	add(true, kgo.ProducerBatchCompression(codecs[config["compression.type"]]))
	add(config["enable.idempotence"] == "false", kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks[config["acks"]]))
	add(config["isolation.level"] == "read_committed", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	add(named, kgo.Balancers(strategy))
	add(config["group.instance.id"] != "", kgo.InstanceID(config["group.instance.id"]))
	add(task.Name == "transaction", kgo.TransactionalID(config["transactional.id"]), kgo.TransactionTimeout(20*time.Second))
	start := map[int32]kgo.Offset{task.Partition: kgo.NewOffset().At(int64(task.Number("OFFSET")))}
	add(task.Name == "consume", kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{task.Topic: start}))
	add(task.Name == "group", kgo.ConsumerGroup(task.Group), kgo.ConsumeTopics(task.Topic), kgo.DisableAutoCommit())
	add(task.Name == "group", kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond))
	user, password := config["sasl.username"], config["sasl.password"]
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
	}
	add(config["sasl.mechanism"] != "", kgo.SASL(mechanisms[config["sasl.mechanism"]]))
	return all
}
