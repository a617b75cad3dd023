package main

import (
	"context"

	"example/adapters/task"

	"github.com/IBM/sarama"
)

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

func join(client sarama.Client) {
	group, err := sarama.NewConsumerGroupFromClient(task.Group, client)
	task.Check(err)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for ctx.Err() == nil {
		group.Consume(ctx, []string{task.Topic}, member{end}) // an error means that it joins again
	}
	task.Check(group.Close())
}

func consume(client sarama.Client) {
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
}
