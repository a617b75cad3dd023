"""A scene is a step with a topic of its own: it plays one story from its beginning to its end and judges what came of it.

`UncleanCut`: an unclean election, and then a cut between the two replicas that are left. What all in-sync replicas acknowledged after the
election may not be lost in a clean one. The followers are behind because of a throttle, so they hear of a high watermark above all
records that they have; under another leader they must forget it.

`expire_beside_transaction`: a committed offset expires while a transaction holds another one. After the transaction has committed, the
group has that one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from klamm.admin import AdminClient, ConfigResource, ResourceType
from klamm.admin import TopicPartition as AdminPartition
from klamm.chaos.clients.producers import SILENT
from klamm.chaos.clients.reading import read_all
from klamm.chaos.cluster import CONFIGS, UNCLEAN, ServedCluster
from klamm.chaos.committed import ASK_MS
from klamm.chaos.kinds import RECORDS
from klamm.control.client import ControlFailed
from klamm.control.json_object import JsonObject
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

Violated = Callable[[str, str], None]
"""Called with a rule and what violates it."""
FILLED = 3000
RECORD_BYTES = 1000
"""More than a follower gets with one fetch (`replica.fetch.max.bytes`)."""
THROTTLED = {"leader.replication.throttled.replicas": "*"}
RATE = "leader.replication.throttled.rate"
WAIT_S = 20.0
LOOK_S = 0.1
QUIET_S = 2 * int(CONFIGS["replica.fetch.wait.max.ms"]) / 1000
"""A fetch that waits at the leader has ended by then."""
ACKNOWLEDGED_S = int(CONFIGS["replica.lag.time.max.ms"]) / 2000
"""Before the leader may take a follower out of the ISR."""
RULE = "lost after an unclean election"
EXPIRY_RULE = "lost by the expiry of an older offset"
OFFSET, HELD = 1, 2
"""The offset that expires, and the one that the transaction holds."""
EXPIRES_MS = 1000


class Missed(Exception):
    """The scene cannot go on; the text says why."""


class UncleanCut:
    """The scene of one topic. Afterwards the brokers that it killed do not run, and `cuts` and the config of `throttled` are there."""

    def __init__(self, cluster: ServedCluster, admin: AdminClient, topic: str, brokers: Sequence[int]) -> None:
        """`brokers` are the first leader and its two followers."""
        self.cluster, self.api, self.admin, self.topic = cluster, cluster.api, admin, topic
        self.first, *self.others = brokers
        self.throttled = ConfigResource(ResourceType.BROKER, str(self.first))
        self.cuts: list[int] = []
        """Faults of the control API."""

    def play(self, violated: Violated) -> str:
        """All of it; what happened. Raises Missed, ControlFailed, AdminError, LoadHangs."""
        self._fall_behind()
        self.api.post("brokers", self.first, "kill", body={"expire": True})
        state = self._wait(lambda row: row["leader"] in self.others and sorted(row["isr"]) == sorted(self.others), "the others lead")
        leader = int(state["leader"])
        follower = next(broker for broker in self.others if broker != leader)
        promised = self._write("all", ["before the cut"], WAIT_S)
        self._cut(leader, follower)
        time.sleep(QUIET_S)
        promised += self._write("all", ["during the cut"], ACKNOWLEDGED_S)
        in_sync = self._row()["isr"]
        self.api.post("brokers", leader, "kill", body={"expire": True})
        if follower not in in_sync:
            raise Missed(f"the ISR is {in_sync} already")
        self._wait(lambda row: row["leader"] == follower, f"broker {follower} leads")
        there = {value for _, value in read_all(self._bootstrap(follower), self.topic, 1)[0]}
        for value in promised:
            if value not in there:
                said = f"broker {leader} acknowledged {value!r} with ISR {in_sync}"
                violated(RULE, f"{self.topic}: {said}, and broker {follower}, the next leader, does not have it")
        return f"brokers {self.first} and {leader} are killed, broker {follower} leads; {len(promised)} records were promised"

    def _fall_behind(self) -> None:
        """The followers leave the ISR, and then get a part of the records only."""
        self.admin.incremental_alter_configs({self.throttled: {RATE: "1"}}).all()
        configs = UNCLEAN | THROTTLED
        self.api.post("topics", body={"name": self.topic, "replicas": [[self.first, *self.others]], "configs": configs})
        self._wait(lambda row: len(row["isr"]) == 1 + len(self.others), "all replicas are in sync")
        for other in self.others:
            self._cut(self.first, other)
        self._write("1", [f"{number}".ljust(RECORD_BYTES, ".") for number in range(FILLED)], WAIT_S)
        self._wait(lambda row: row["isr"] == [self.first] and self._end(row, self.first) == FILLED, "the followers are out of the ISR")
        while self.cuts:
            self.api.delete("faults", self.cuts.pop())
        self._wait(lambda row: any(0 < self._end(row, other) < FILLED for other in self.others), "a follower has a part of the records")
        time.sleep(QUIET_S)

    def _end(self, row: JsonObject, broker: int) -> int:
        return int(row["brokers"].get(str(broker), {}).get("log_end_offset") or 0)

    def _cut(self, one: int, other: int) -> None:
        self.cuts += self.api.post("links", body={"from_broker": one, "to_broker": other, "cut": True})["faults"]

    def _row(self) -> JsonObject:
        row: JsonObject = self.api.get("topics", self.topic)["partitions"][0]
        return row

    def _wait(self, holds: Callable[[JsonObject], bool], what: str) -> JsonObject:
        """The state of the partition as soon as this holds. Raises Missed."""
        until = time.monotonic() + WAIT_S
        row: JsonObject = {}
        while time.monotonic() < until:
            try:
                row = self._row()
                if holds(row):
                    return row
            except (ControlFailed, KeyError):
                pass  # the brokers learn of the topic, or of a change
            time.sleep(LOOK_S)
        raise Missed(f"{what}: not within {WAIT_S:.0f} s, {row}")

    def _bootstrap(self, broker: int) -> str:
        """Where clients reach this broker: the n-th address is that of the n-th broker."""
        return self.cluster.bootstrap_servers.split(",")[broker - 1]

    def _write(self, acks: str, values: Sequence[str], within_s: float) -> list[str]:
        """Write records once; those that were acknowledged."""
        acknowledged: list[str] = []

        def told(error: KafkaError | None, message: Message) -> None:
            value = message.value()
            if error is None and value is not None:
                acknowledged.append(bytes(value).decode())

        settings = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "acks": acks,
            "message.timeout.ms": int(within_s * 1000),
            "linger.ms": 5,
        }
        producer = Producer({**SILENT, **settings})
        for value in values:
            producer.produce(self.topic, value.encode(), partition=0, on_delivery=told)
        producer.flush(within_s + 1)
        return acknowledged


def expire_beside_transaction(bootstrap: str, admin: AdminClient, group: str, violated: Violated) -> str:
    """All of it, with a group of its own; what happened. Raises Missed, AdminError, OSError.

    The offset that expires is committed last: on a busy machine it would otherwise expire before the transaction holds the other one.
    """
    settings: dict[str, object] = {**SILENT, "bootstrap.servers": bootstrap}
    producer = Producer({**settings, "transactional.id": group, "transaction.timeout.ms": int(WAIT_S * 1000)})
    member = Consumer({**settings, "group.id": group})
    try:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(RECORDS, 0, HELD)], member.consumer_group_metadata(), WAIT_S)
        _commit_for_a_moment(bootstrap, group)
        if not _gets_offset(admin, group, None):
            raise Missed(f"the offset of group {group} does not expire")
        producer.commit_transaction(WAIT_S)
    except KafkaException as failure:
        raise Missed(f"the transaction of {group}: {failure}") from None
    finally:
        member.close()
    if not _gets_offset(admin, group, HELD):
        violated(EXPIRY_RULE, f"a transaction committed offset {HELD} of group {group} after another one had expired, and it is not there")
    return f"an offset of group {group} expires while a transaction holds another one"


def _commit_for_a_moment(bootstrap: str, group: str) -> None:
    """Commit an offset with a retention time, as old clients can. Raises Missed, OSError."""
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=OFFSET, committed_metadata="")
    commit = kind(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", retention_time_ms=EXPIRES_MS,
        topics=[kind.OffsetCommitRequestTopic(name=RECORDS, partitions=[partition])],
    )
    until = time.monotonic() + WAIT_S
    while True:
        found = _ask(bootstrap.split(",")[0], messages.FindCoordinatorRequest(key=group, key_type=0), 1)
        code = found.error_code or _ask(f"{found.host}:{found.port}", commit, 2).topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            return
        if time.monotonic() > until:
            raise Missed(f"group {group} cannot commit: {ErrorCode(code).name}")
        time.sleep(LOOK_S)


def _ask(address: str, message: Any, version: int) -> Any:
    """Send one request that no client library sends any more, on a connection of its own. Returns the response. Raises OSError."""
    name = type(message).__name__.removesuffix("Request")
    key = next(key for key, api in messages.APIS.items() if api.name == name)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as connection, connection.makefile("rb") as stream:
        connection.sendall(messages.encode_request(key, version, 1, "chaos", messages.encode(message, version)))
        size = stream.read(4)
        payload = stream.read(int.from_bytes(size, "big"))
    if not payload:
        raise ConnectionResetError(f"no response to {name}")
    _, offset = messages.decode_response_header(key, version, payload)
    return messages.decode(f"{name}Response", version, payload, offset)[0]


def _gets_offset(admin: AdminClient, group: str, wanted: int | None) -> bool:
    """Whether this becomes the committed offset of the group. Raises AdminError."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        shown = admin.list_group_offsets({group: [(RECORDS, 0)]}, timeout_ms=ASK_MS)[group]
        row = shown[AdminPartition(RECORDS, 0)]
        if (None if row is None else row.offset) == wanted:
            return True
        time.sleep(LOOK_S)
    return False
