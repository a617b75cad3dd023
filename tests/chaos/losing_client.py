"""A client for `klamm chaos --client` that tells of each record before it is acknowledged, and gives up soon."""

import os
import sys
import time

from confluent_kafka import Producer

if os.environ["TESTCASE"] != "produce":
    sys.exit(127)
producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"], "message.timeout.ms": 300, "log_level": 0, "acks": 1, "retries": 0})
for number in range(int(os.environ["RECORDS"])):
    producer.produce(os.environ["TOPIC"], str(number), partition=int(os.environ["PARTITION"]))
    print(f'{{"partition": {os.environ["PARTITION"]}, "offset": -1, "value": "{number}"}}', flush=True)
    producer.poll(0)
    time.sleep(int(os.environ["PAUSE_MS"]) / 1000)
producer.flush()
