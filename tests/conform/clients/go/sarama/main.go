// An adapter of sarama for `klamm conform --client`.
package main

import (
	"context"

	"example/adapters/task"

	"github.com/IBM/sarama"
)

func produce(producer sarama.SyncProducer, number int) {
	for _, value := range task.Values(number) {
		message := &sarama.ProducerMessage{Topic: task.Topic, Partition: task.Partition, Value: sarama.StringEncoder(value)}
		partition, offset, err := producer.SendMessage(message)
		task.Check(err)
		task.Tell(partition, offset, []byte(value))
		task.Pause()
	}
}

func transact(producer sarama.SyncProducer) {
	for i := range task.Transactions {
		task.Check(producer.BeginTxn())
		produce(producer, i)
		if task.Commits {
			task.Check(producer.CommitTxn())
		} else {
			task.Check(producer.AbortTxn())
		}
	}
}

type member struct{ end context.CancelFunc }

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		session.Commit()
		if task.Tell(message.Partition, message.Offset, message.Value) {
			m.end()
		}
	}
	return nil
}

func main() {
	task.Supports("produce", "transaction", "consume", "group")
	client, err := sarama.NewClient(task.Bootstrap, config())
	task.Check(err)
	switch task.Name {
	case "consume":
		consumer, err := sarama.NewConsumerFromClient(client)
		task.Check(err)
		part, err := consumer.ConsumePartition(task.Topic, task.Partition, int64(task.Number("OFFSET")))
		if err == sarama.ErrOffsetOutOfRange {
			task.Supports() // it has no auto.offset.reset without a group
		}
		task.Check(err)
		for message := range part.Messages() {
			if task.Tell(message.Partition, message.Offset, message.Value) {
				break
			}
		}
		task.Check(consumer.Close())
	case "group":
		group, err := sarama.NewConsumerGroupFromClient(task.Group, client)
		task.Check(err)
		ctx, end := context.WithCancel(context.Background())
		for ctx.Err() == nil {
			group.Consume(ctx, []string{task.Topic}, member{end})
		}
		task.Check(group.Close())
	default:
		producer, err := sarama.NewSyncProducerFromClient(client)
		task.Check(err)
		if task.Name == "produce" {
			produce(producer, 0)
		} else {
			transact(producer)
		}
		task.Check(producer.Close())
	}
}
