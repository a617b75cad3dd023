"""Runs a release of librdkafka, whose library `RELEASE` names, through its C interface: wheels of old releases fit old Pythons only."""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

env, task, topic, place = os.environ, os.environ["TESTCASE"], os.environ["TOPIC"].encode(), int(os.environ["PARTITION"])
library = ctypes.CDLL(str(next(Path(env["RELEASE"]).rglob("librdkafka*.so*"))))
POINTER, TEXT = ctypes.c_void_p, ctypes.c_char_p


class Message(ctypes.Structure):
    _fields_ = [("error", ctypes.c_int), ("topic", POINTER), ("partition", ctypes.c_int32), ("payload", POINTER), ("size", ctypes.c_size_t),
                ("key", POINTER), ("key_size", ctypes.c_size_t), ("offset", ctypes.c_int64)]


def call(name, *arguments, result=ctypes.c_int):
    function = getattr(library, "rd_kafka_" + name)
    function.restype = result
    return function(*arguments)


def tell(message):
    value = ctypes.string_at(message.payload, message.size).decode()
    print(json.dumps({"partition": message.partition, "offset": message.offset, "value": value}), flush=True)
    return value


@ctypes.CFUNCTYPE(None, POINTER, ctypes.POINTER(Message), POINTER)
def delivered(_client, message, _opaque):
    None if message[0].error else tell(message[0])


def client(kind):
    config, given = POINTER(call("conf_new", result=POINTER)), dict(line.split("=", 1) for line in env["CONFIG"].splitlines())
    given |= {"bootstrap.servers": env["BOOTSTRAP"], "socket.timeout.ms": given.pop("request.timeout.ms")}
    given |= {"group.id": env["GROUP"]} if kind else {}
    problem = ctypes.create_string_buffer(512)
    for name, value in given.items():
        if call("conf_set", config, name.encode(), value.encode(), problem, 512):
            sys.exit(problem.value.decode())
    kind or call("conf_set_dr_msg_cb", config, delivered)
    return POINTER(call("new", kind, config, problem, 512, result=POINTER)) or sys.exit(problem.value.decode())


def produces(producer):
    opened = POINTER(call("topic_new", producer, topic, None, result=POINTER))
    for number in range(int(env["RECORDS"])):
        value = str(number).encode()
        where = number % int(env.get("PARTITIONS", "1")) + place
        call("produce", opened, ctypes.c_int32(where), 2, value, ctypes.c_size_t(len(value)), None, ctypes.c_size_t(0), None)
        time.sleep(int(env["PAUSE_MS"]) / 1000) if number else call("flush", producer, 60_000)
        call("poll", producer, 0)
    call("flush", producer, 60_000)


def consumes(consumer):
    call("poll_set_consumer", consumer)
    asked = POINTER(call("topic_partition_list_new", 1, result=POINTER))
    call("topic_partition_list_add", asked, topic, ctypes.c_int32(place if task == "consume" else -1), result=POINTER)
    task == "consume" and call("topic_partition_list_set_offset", asked, topic, ctypes.c_int32(place), ctypes.c_int64(int(env["OFFSET"])))
    call("assign" if task == "consume" else "subscribe", consumer, asked)
    value = ""
    while value != "end":
        message = call("consumer_poll", consumer, 100, result=ctypes.POINTER(Message))
        if message:
            value = value if message[0].error else tell(message[0])
            call("message_destroy", message, result=None)
    task == "group" and call("commit", consumer, None, 0)
    call("consumer_close", consumer)


produces(client(0)) if task == "produce" else consumes(client(1))
