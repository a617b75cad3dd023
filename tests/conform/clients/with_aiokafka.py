"""An adapter of aiokafka for `klamm conform --client`."""

import asyncio
import os
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError

env, task, topic, place = os.environ, os.environ["TESTCASE"], os.environ["TOPIC"], int(os.environ["PARTITION"])
given: Any = {name.replace(".", "_"): value for name, value in (line.split("=", 1) for line in env["CONFIG"].splitlines())}
known = task in ("produce", "transaction", "consume", "group")
if not known or {"partition_assignment_strategy", "max_partition_fetch_bytes"} & given.keys():
    sys.exit(127)
given = {name: int(value) if value.isdigit() else value for name, value in given.items()}
given |= {name: given[name] == "true" for name in ("enable_idempotence", "enable_auto_commit") if name in given}
config = {"max_batch_size" if name == "batch_size" else name: value for name, value in given.items()}

def tell(partition, offset, value):
    print(f'{{"partition": {partition}, "offset": {offset}, "value": "{value}"}}', flush=True)

async def produce(producer, first):
    async def acknowledged(value, sent):
        at = await sent
        tell(at.partition, at.offset, value) if at else None
    tasks = []
    for number in range(first, first + int(env["RECORDS"])):
        value = str(number).ljust(int(env["SIZE"]), ".")
        tasks.append(asyncio.create_task(acknowledged(value, await producer.send(topic, value.encode(), partition=place))))
        await (tasks[0] if number == first else asyncio.sleep(int(env["PAUSE_MS"]) / 1000))
    await asyncio.gather(*tasks)

async def produces():
    async with AIOKafkaProducer(bootstrap_servers=env["BOOTSTRAP"], **config) as producer:
        for number in range(int(env["TRANSACTIONS"])):
            await producer.begin_transaction() if task == "transaction" else None
            await produce(producer, number * int(env["RECORDS"]))
            if task == "transaction":
                await (producer.commit_transaction() if env["END"] == "commit" else producer.abort_transaction())

async def consumes():
    group = env["GROUP"] if task == "group" else None
    async with AIOKafkaConsumer(bootstrap_servers=env["BOOTSTRAP"], group_id=group, **config) as consumer:
        consumer.subscribe([topic]) if task == "group" else consumer.assign([TopicPartition(topic, place)])
        task == "group" or consumer.seek(TopicPartition(topic, place), int(env["OFFSET"]))
        ended = False
        while not ended:
            records = [each for batch in (await consumer.getmany(timeout_ms=100)).values() for each in batch]
            for each in records:
                tell(each.partition, each.offset, each.value.decode())
                ended = ended or each.value == b"end"
            try:
                await consumer.commit() if records and task == "group" else None
            except CommitFailedError:
                pass  # the group rebalances, and is joined again

asyncio.run(produces() if task in ("produce", "transaction") else consumes())
