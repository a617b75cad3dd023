// An adapter of franz-go for `klamm conform --client`.
package main

import (
	"context"

	"example/adapters/task"

	"github.com/twmb/franz-go/pkg/kgo"
)

var ctx = context.Background()

func produce(client *kgo.Client, number int) {
	for i, value := range task.Values(number) {
		record := &kgo.Record{Topic: task.Topic, Partition: task.Partition, Value: []byte(value)}
		client.Produce(ctx, record, func(r *kgo.Record, err error) { task.Check(err); task.Tell(r.Partition, r.Offset, r.Value) })
		if i == 0 {
			task.Check(client.Flush(ctx))
		}
		task.Pause()
	}
	task.Check(client.Flush(ctx))
}
func main() {
	task.Supports("produce", "transaction", "consume", "group")
	client, err := kgo.NewClient(options()...)
	task.Check(err)
	for i := 0; i < task.Transactions && (task.Name == "produce" || task.Name == "transaction"); i++ {
		if task.Name == "transaction" {
			task.Check(client.BeginTransaction())
		}
		produce(client, i)
		if task.Name == "transaction" {
			task.Check(client.EndTransaction(ctx, kgo.TransactionEndTry(task.Commits)))
		}
	}
	for ended := task.Name != "consume" && task.Name != "group"; !ended; {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { ended = task.Tell(r.Partition, r.Offset, r.Value) || ended })
		if task.Name == "group" {
			client.CommitUncommittedOffsets(ctx)
		}
	}
	client.Close()
}
