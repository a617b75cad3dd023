"""Frames that no client would send, to Apache Kafka and to Klamm at the same time: `python -m klamm.tests.frames.random_frames --seed 7`."""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from klamm.protocol import json_form, messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.frames.drawing import CORRELATION_ID, Changed, drawn
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.kafka import request as ask
from klamm.tests.harness.tree import Tree

ANSWER_S = 1.5
SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "group_initial_rebalance_delay_ms": "0",
    "log_retention_ms": "-1",
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "kip183_legacy_v0": "false",
}
_MASKED = {
    "clusterId": "<cluster>", "port": "<port>", "topicId": "<id>", "brokerEpoch": "<epoch>", "producerId": "<producer>",
    "logDir": "<folder>", "totalBytes": "<bytes>", "usableBytes": "<bytes>", "host": "<host>", "memberId": "<member>", "leader": "<leader>",
    "sessionId": "<session>", "size": "<size>", "producerIdStart": "<start>", "producerEpoch": "<epoch>", "records": "<records>",
    "logAppendTimeMs": "<time>", "documentation": "<text>", "maxTimestamp": "<time>", "lastTimestamp": "<time>",
}


class Sender:
    """Sends frames to one broker on a connection that is opened again when it is closed."""

    def __init__(self, broker: OwnedBroker) -> None:
        self.broker = broker
        self._connection: socket.socket | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def outcome(self, changed: Changed) -> str:
        """`closed`, `no answer`, or the answer as text."""
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self.broker.port))
        self._connection.settimeout(ANSWER_S)
        try:
            self._connection.sendall(struct.pack(">i", len(changed.frame)) + changed.frame)
            payload = self._read(struct.unpack(">i", self._read(4))[0])
        except TimeoutError:
            self.close()
            return "no answer"
        except OSError:
            self.close()
            return "closed"
        return shown(changed, payload)

    def _read(self, size: int) -> bytes:
        assert self._connection is not None
        data = b""
        while len(data) < size:
            more = self._connection.recv(size - len(data))
            if not more:
                raise ConnectionResetError("closed by the broker")
            data += more
        return data


def shown(changed: Changed, payload: bytes) -> str:
    """A response as text."""
    key, version = struct.unpack(">hh", changed.frame[:4])
    api = messages.APIS.get(key)
    if api is None:
        return f"answer {payload.hex()}"
    if key == KEYS["ApiVersions"] and not api.min_version <= version <= api.max_version:
        version = 0
    try:
        correlation_id, offset = messages.decode_response_header(key, version, payload)
        message, end = messages.decode(f"{api.name}Response", version, payload, offset)
    except Exception as problem:
        return f"answer {payload.hex()} ({problem})"
    rest = "" if end == len(payload) else f" and {len(payload) - end} bytes"
    at = "" if correlation_id == CORRELATION_ID else f"to {correlation_id:x} "
    return f"{at}{json.dumps(_masked(json_form.to_json(message, version)), separators=(',', ':'), ensure_ascii=False)}{rest}"


def _masked(value: Any) -> Any:
    if isinstance(value, list):
        items = [_masked(each) for each in value]
        return sorted(items, key=json.dumps) if items and isinstance(items[0], dict) else items
    if not isinstance(value, dict):
        return value
    return {name: _field(name, each) for name, each in value.items() if name != "throttleTimeMs"}


def _field(name: str, value: Any) -> Any:
    if name.lower().endswith("errorcode"):
        return ErrorCode(value).name
    if name in _MASKED and value not in (None, -1, "", 0):
        return _MASKED[name]
    if name == "errorMessage":
        return None if value is None else "text" if value else "empty"
    return _masked(value)


class Both:
    """A broker of each kind on one ZooKeeper."""

    def __init__(self, zookeeper: str, folder: Path, number: int) -> None:
        from klamm.tests.reference.jars import jars

        self.trees = [Tree(zookeeper, f"/frames-{number}-{name}") for name in ("kafka", "klamm")]
        folders = [folder / f"{number}-{name}" for name in ("kafka", "klamm")]
        for each in folders:
            each.mkdir()
        kafka = KafkaBroker(jars(), self.trees[0], folders[0], 0, **SETTINGS)
        self.brokers = [kafka, OwnedBroker(self.trees[1], folders[1], 0, **SETTINGS)]

    def __enter__(self) -> list[Sender]:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(_started, self.brokers))
        self.senders = [Sender(broker) for broker in self.brokers]
        return self.senders

    def __exit__(self, *_: object) -> None:
        for sender, broker, tree in zip(self.senders, self.brokers, self.trees, strict=True):
            sender.close()
            broker.kill()
            tree.close()


def _started(broker: OwnedBroker) -> None:
    broker.start()
    for name in ("t", "u", "td"):
        (answer,) = ask(broker.port, requests.create_topic(name, [[0]]), 5).topics
        assert answer.error_code == 0, answer
    for key, kind in (("g", 0), ("x", 1)):
        until = time.monotonic() + 30
        while ask(broker.port, messages.FindCoordinatorRequest(key=key, key_type=kind), 2).error_code:
            assert time.monotonic() < until
            time.sleep(0.1)
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
    initiate = messages.InitProducerIdRequest(transactional_id="warm", transaction_timeout_ms=1000)
    while ask(broker.port, heartbeat, 0).error_code != 25 or ask(broker.port, initiate, 0).error_code:
        assert time.monotonic() < until
        time.sleep(0.1)


def main() -> int:
    """Returns 1 if there is a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--each", type=int, default=1500, help="frames until both brokers are started anew")
    parser.add_argument("--api", default="")
    options = parser.parse_args()
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    end, number, outcomes, differences = time.monotonic() + 60 * options.minutes, 0, Counter[str](), 0
    server = EmbeddedZooKeeper()
    zookeeper = server.start()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        while time.monotonic() < end:
            with Both(zookeeper, Path(folder), number) as senders:
                first, silent = number, 0
                while time.monotonic() < end and number < first + options.each and silent < 3:
                    number += 1
                    changed = drawn(f"{options.seed} {number}")
                    if options.api and changed.api != options.api:
                        continue
                    told = list(pool.map(lambda sender, changed=changed: sender.outcome(changed), senders))  # type: ignore[misc]
                    outcomes[told[0] if told[0] in ("closed", "no answer") else "answer"] += 1
                    silent = silent + 1 if "no answer" in told and told[0] != told[1] else 0
                    if told[0] != told[1]:
                        differences += 1
                        print(f"{number} {changed.api} v{changed.version} {changed.about}\n  {changed.frame.hex()}", flush=True)
                        print(f"  kafka {told[0][:1500]}\n  klamm {told[1][:1500]}", flush=True)
                for sender in senders:
                    if not sender.broker.alive():
                        print("DEAD", sender.broker.tail(), flush=True)
    server.stop()
    print(f"{number} frames: {dict(outcomes)}, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
