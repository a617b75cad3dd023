"""An adapter of aiokafka for `klamm conform --client`."""

import asyncio
from contextlib import suppress

import task
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError

task.supports("produce", "transaction", "consume", "group", without=("partition.assignment.strategy", "max.partition.fetch.bytes"))
config = {"max_batch_size" if name == "batch_size" else name: value for name, value in task.pythonic().items()}
is_member, part = task.name == "group", TopicPartition(task.topic, task.partition)

async def produce(producer, number):
    async def acknowledged(value, sent):
        at = await sent
        at and task.tell(at.partition, at.offset, value)
    telling = []
    for at, value in enumerate(task.values(number)):
        sent = await producer.send(task.topic, value.encode(), partition=part.partition)
        telling.append(asyncio.create_task(acknowledged(value, sent)))
        await (asyncio.sleep(task.pause_s()) if at else telling[0])
    await asyncio.gather(*telling)

async def transact(producer):
    for number in range(task.transactions):
        task.name == "transaction" and await producer.begin_transaction()
        await produce(producer, number)
        if task.name == "transaction":
            await (producer.commit_transaction() if task.commits else producer.abort_transaction())

async def consume(consumer, ended=False):
    consumer.subscribe([task.topic]) if is_member else [consumer.assign([part]), consumer.seek(part, task.offset)]
    while not ended:
        read = [each for batch in (await consumer.getmany(timeout_ms=100)).values() for each in batch]
        ended = True in [task.tell(each.partition, each.offset, each.value) for each in read]
        with suppress(CommitFailedError):  # the group rebalances, and is joined again
            read and is_member and await consumer.commit()

async def main():
    reads = task.name in ("consume", "group")
    client = AIOKafkaConsumer(group_id=task.group if is_member else None, **config) if reads else AIOKafkaProducer(**config)
    async with client:
        await (consume if reads else transact)(client)

asyncio.run(main())
