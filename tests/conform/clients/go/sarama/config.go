package main

import (
	"os"
	"time"

	"example/adapters/task"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
	"zstd": sarama.CompressionZSTD,
}

// config has the configs of the task as sarama has them. Cooperative rebalances and SCRAM, for which it has no code, end with 127.
func config() *sarama.Config {
	given, config := task.Config, sarama.NewConfig()
	if given["partition.assignment.strategy"] == "cooperative-sticky" || given["sasl.mechanism"] > "PLAIN" {
		os.Exit(127)
	}
	config.Version, config.ClientID = sarama.MaxVersion, given["client.id"]
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = 3*time.Second, 3*time.Second, 3*time.Second
	config.Net.MaxOpenRequests, config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 1, 60, 100*time.Millisecond
	config.Producer.Partitioner, config.Producer.Return.Successes = sarama.NewManualPartitioner, true
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 60, 100*time.Millisecond
	config.Producer.Idempotent, config.Producer.Compression = given["enable.idempotence"] == "true", codecs[given["compression.type"]]
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{"": 1, "1": 1, "0": 0, "all": -1}[given["acks"]]
	config.Producer.Transaction.ID, config.Producer.Transaction.Timeout = given["transactional.id"], 20*time.Second
	config.Consumer.MaxWaitTime, config.Consumer.Offsets.Initial = 500*time.Millisecond, sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout, config.Consumer.Group.Heartbeat.Interval = 6*time.Second, 300*time.Millisecond
	config.Consumer.Group.InstanceId = given["group.instance.id"]
	if given["isolation.level"] == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if age := task.Parsed(given["metadata.max.age.ms"]); age > 0 {
		config.Metadata.RefreshFrequency = time.Duration(age) * time.Millisecond
	}
	if given["sasl.mechanism"] != "" {
		config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, given["sasl.username"], given["sasl.password"]
	}
	return config
}
