// Clients in Go: sarama with several versions of Kafka set, and kafka-go. Usage: BOOTSTRAP=host:port,… go run .
// Each client creates a topic, writes with every codec, reads in a group and commits, copies in transactions, administrates, and deletes the
// topic. A line per client says what it saw; an error ends the program.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
)

const (
	each      = 20 // records of each codec
	milli     = time.Millisecond
	patience  = 120 * time.Second
	retention = "123456789"
)

var bootstrap = strings.Split(os.Getenv("BOOTSTRAP"), ",")

func must(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func until(what string, holds func() (bool, error)) {
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * milli) {
		ok, err := holds()
		if ok && err == nil {
			return
		}
		last = err
	}
	log.Fatalf("not in time: %s: %v", what, last)
}

// Wait until every broker knows a topic with this number of partitions and their leaders: one that does not yet refuses records.
func known(topic string, partitions int) {
	for _, address := range bootstrap {
		until(topic+" known", func() (bool, error) {
			broker := sarama.NewBroker(address)
			if err := broker.Open(sarama.NewConfig()); err != nil {
				return false, err
			}
			defer broker.Close()
			answer, err := broker.GetMetadata(&sarama.MetadataRequest{Version: 1, Topics: []string{topic}})
			if err != nil || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != partitions {
				return false, err
			}
			for _, partition := range answer.Topics[0].Partitions {
				if partition.Leader < 0 {
					return false, nil
				}
			}
			return true, nil
		})
	}
}

// A member of a group that marks what it reads, or copies it to another topic in a transaction of its own.
type member struct {
	group    string
	producer sarama.AsyncProducer
	seen     chan string
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if m.producer == nil {
				session.MarkMessage(message, "")
			} else if err := m.copy(message); err != nil {
				return err
			}
			m.seen <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) copy(message *sarama.ConsumerMessage) error {
	if err := m.producer.BeginTxn(); err != nil {
		return err
	}
	m.producer.Input() <- &sarama.ProducerMessage{Topic: message.Topic + "-copy", Partition: 0, Value: sarama.ByteEncoder(message.Value)}
	if err := m.producer.AddMessageToTxn(message, m.group, nil); err != nil {
		return err
	}
	return m.producer.CommitTxn()
}

// Read this many different records of a topic as a member of a group, which then leaves.
func read(config *sarama.Config, group, topic string, wanted int, producer sarama.AsyncProducer) int {
	client, err := sarama.NewConsumerGroup(bootstrap, group, config)
	must("join", err)
	reader := &member{group, producer, make(chan string, 1000)}
	session, leave := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for session.Err() == nil {
			if err := client.Consume(session, []string{topic}, reader); session.Err() == nil {
				must("consume", err)
			}
		}
	}()
	values := map[string]bool{}
	for late := time.After(patience); len(values) < wanted; {
		select {
		case value := <-reader.seen:
			values[value] = true
		case <-late:
			log.Fatalf("%d of %d records", len(values), wanted)
		}
	}
	leave()
	<-done
	must("leave", client.Close())
	return len(values)
}

func ofSarama(version sarama.KafkaVersion) {
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.Retry.Max = 50
	admin, err := sarama.NewClusterAdmin(bootstrap, config)
	must("connect", err)
	topic := "sarama-" + version.String()
	kept := retention
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 2, ConfigEntries: map[string]*string{"retention.ms": &kept}}
	must("create", admin.CreateTopic(topic, detail, false))
	again := admin.CreateTopic(topic, detail, false)
	known(topic, 3)
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4}
	if version.IsAtLeast(sarama.V2_1_0_0) {
		codecs = append(codecs, sarama.CompressionZSTD)
	}
	for _, codec := range codecs {
		writing := *config
		writing.Producer.Compression = codec
		if version.IsAtLeast(sarama.V0_11_0_0) {
			writing.Producer.Idempotent = true
			writing.Net.MaxOpenRequests = 1
		}
		producer, err := sarama.NewSyncProducer(bootstrap, &writing)
		must("producer", err)
		for number := 0; number < each; number++ {
			value := sarama.StringEncoder(fmt.Sprint(codec, " ", number))
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: value, Value: value})
			must("send", err)
		}
		must("close", producer.Close())
	}
	group := "group-" + topic
	fmt.Printf("* sarama %v: created, %v, read %d", version, again.(*sarama.TopicError).Err == sarama.ErrTopicAlreadyExists, read(config, group, topic, each*len(codecs), nil))
	groups, err := admin.ListConsumerGroups()
	must("list groups", err)
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
	must("offsets", err)
	committed := int64(0)
	for _, block := range offsets.Blocks[topic] {
		committed += max(block.Offset, 0)
	}
	fmt.Printf(", a %s committed %v", groups[group], committed > 0 && committed <= int64(each*len(codecs)))
	if version.IsAtLeast(sarama.V0_11_0_0) {
		must("create", admin.CreateTopic(topic+"-copy", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, false))
		known(topic+"-copy", 1)
		copying := *config
		copying.Producer.Idempotent = true
		copying.Net.MaxOpenRequests = 1
		copying.Producer.Return.Successes = false
		copying.Producer.Transaction.ID = "copier-" + topic
		copying.Consumer.IsolationLevel = sarama.ReadCommitted
		copying.Consumer.Offsets.AutoCommit.Enable = false
		producer, err := sarama.NewAsyncProducer(bootstrap, &copying)
		must("transactional producer", err)
		fmt.Printf(", copied %d", read(&copying, "copier-"+topic, topic, each, producer))
		producer.Close()
	}
	if version.IsAtLeast(sarama.V1_1_0_0) {
		administrate(admin, version, topic)
	}
	must("delete", admin.DeleteTopic(topic))
	must("close", admin.Close())
	fmt.Println(", deleted")
}

func administrate(admin sarama.ClusterAdmin, version sarama.KafkaVersion, topic string) {
	must("grow", admin.CreatePartitions(topic, 4, nil, false))
	until("partitions", func() (bool, error) {
		topics, err := admin.ListTopics()
		return topics[topic].NumPartitions == 4, err
	})
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	must("describe", err)
	for _, entry := range entries {
		if entry.Name == "retention.ms" {
			fmt.Printf(", retention %s", entry.Value)
		}
	}
	large := "2000000"
	must("alter", admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"max.message.bytes": &large}, false))
	folders, err := admin.DescribeLogDirs([]int32{1, 2, 3})
	must("log dirs", err)
	must("delete group", admin.DeleteConsumerGroup("group-"+topic))
	fmt.Printf(", %d brokers", len(folders))
	if !version.IsAtLeast(sarama.V2_7_0_0) {
		return
	}
	must("reassign", admin.AlterPartitionReassignments(topic, [][]int32{{1, 2}, {2, 3}, {3, 1}, {1, 3}}))
	until("reassigned", func() (bool, error) {
		left, err := admin.ListPartitionReassignments(topic, []int32{0, 1, 2, 3})
		return len(left[topic]) == 0, err
	})
	results, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
	must("elect", err)
	code := results[topic][0].ErrorCode
	fmt.Printf(", elected %v", code == sarama.ErrNoError || code == sarama.ErrElectionNotNeeded)
	set := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &large}
	must("alter again", admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": set}, false))
	bob := sarama.QuotaEntityComponent{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: "bob"}
	must("quota", admin.AlterClientQuotas([]sarama.QuotaEntityComponent{bob}, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e6}, false))
	users, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{
		{Name: "bob", Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: 4096, Salt: []byte("salt"), Password: []byte("secret")},
	})
	must("user", err)
	fmt.Printf(", %s %v", users[0].User, users[0].ErrorCode == sarama.ErrNoError)
}

func ofKafkaGo() {
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(bootstrap...)}
	created, err := client.CreateTopics(within, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: "go", NumPartitions: 3, ReplicationFactor: 2}}})
	must("create", err)
	must("create", created.Errors["go"])
	known("go", 3)
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for _, codec := range codecs {
		writer := &kafka.Writer{Addr: kafka.TCP(bootstrap...), Topic: "go", Balancer: &kafka.Hash{}, Compression: codec, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * milli}
		var messages []kafka.Message
		for number := 0; number < each; number++ {
			messages = append(messages, kafka.Message{Key: []byte(fmt.Sprint(number)), Value: []byte(fmt.Sprint(codec, number))})
		}
		must("write", writer.WriteMessages(within, messages...))
		must("close", writer.Close())
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: bootstrap, GroupID: "go", Topic: "go", MaxWait: 200 * milli, StartOffset: kafka.FirstOffset})
	values := map[string]bool{}
	for len(values) < each*len(codecs) {
		message, err := reader.FetchMessage(within)
		must("fetch", err)
		values[string(message.Value)] = true
		must("commit", reader.CommitMessages(within, message))
	}
	must("leave", reader.Close())
	begun, err := client.InitProducerID(within, &kafka.InitProducerIDRequest{TransactionalID: "go", TransactionTimeoutMs: 10000})
	must("begin", err)
	must("begin", begun.Error)
	elected, err := client.ElectLeaders(within, &kafka.ElectLeadersRequest{Topic: "go", Partitions: []int{0}})
	must("elect", err)
	must("elect", elected.Error)
	deleted, err := client.DeleteTopics(within, &kafka.DeleteTopicsRequest{Topics: []string{"go"}})
	must("delete", err)
	must("delete", deleted.Errors["go"])
	fmt.Printf("* kafka-go: read %d, deleted\n", len(values))
}

func main() {
	for _, version := range []sarama.KafkaVersion{sarama.V0_10_2_0, sarama.V1_1_0_0, sarama.V2_7_0_0, sarama.V3_9_0_0, sarama.MaxVersion} {
		ofSarama(version)
	}
	ofKafkaGo()
}
