// An adapter of sarama for `klamm conform --client`.
package main

import (
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
	end := map[bool]func() error{true: producer.CommitTxn, false: producer.AbortTxn}[task.Commits]
	for i := range task.Transactions {
		task.Check(producer.BeginTxn())
		produce(producer, i)
		task.Check(end())
	}
}

func main() {
	tasks := map[string]func(sarama.Client){"consume": consume, "group": join, "produce": write(produceOnce), "transaction": write(transact)}
	task.Supports("produce", "transaction", "consume", "group")
	client, err := sarama.NewClient(task.Bootstrap, config())
	task.Check(err)
	tasks[task.Name](client)
}

func produceOnce(producer sarama.SyncProducer) { produce(producer, 0) }
func write(do func(sarama.SyncProducer)) func(sarama.Client) {
	return func(client sarama.Client) {
		producer, err := sarama.NewSyncProducerFromClient(client)
		task.Check(err)
		do(producer)
		task.Check(producer.Close())
	}
}
