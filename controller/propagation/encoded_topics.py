"""The encoded partition states that LeaderAndIsr and UpdateMetadata share, kept by topic until a state changes (controller 13.3, 13.4).

Each encoded state stands beside the leadership and the assignment that it was made from. Both are values that are replaced and never
changed, so that a state is current while the partition still has the same two objects: nobody has to say that it is not.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

from klamm.controller.cluster import Partition, Topic
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.protocol.nouns import Ints
from klamm.protocol.primitives import write_uvarint
from klamm.seams.identity_memo import IdentityMemo

_SETTLED = b"\x01\x01\x00\x00\x00"
"""The end of a LeaderAndIsr state: nothing adding, nothing removing, not new, recovered, no tags."""

encode_index = struct.Struct(">i").pack


@lru_cache(maxsize=4096)
def _state_struct(isr: int, replicas: int) -> struct.Struct:
    return struct.Struct(f">4iB{isr}iiB{replicas}i")


@lru_cache(maxsize=4096)
def encode_ints(values: Ints) -> bytes:
    """A compact array of int32."""
    return write_uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def encode_state(index: int, info: LeaderAndIsr, replicas: Ints) -> bytes:
    """What both requests begin a partition's state with: index, epochs, leader, ISR, replicas."""
    isr = info.isr
    ni, nr = len(isr), len(replicas)
    if ni < 127 and nr < 127:  # a compact array's length takes one byte
        pack = _state_struct(ni, nr).pack
        return pack(index, info.controller_epoch, info.leader, info.leader_epoch, ni + 1, *isr, info.partition_epoch, nr + 1, *replicas)
    fixed = struct.pack(">4i", index, info.controller_epoch, info.leader, info.leader_epoch)
    return fixed + encode_ints(isr) + struct.pack(">i", info.partition_epoch) + encode_ints(replicas)


def encode_tail(assignment: Assignment, is_new: bool, recovery: int) -> bytes:
    """What a LeaderAndIsr request ends a partition's state with: adding and removing replicas, two flags, no tags."""
    return encode_ints(assignment.adding) + encode_ints(assignment.removing) + bytes((is_new, recovery, 0))


def encode_head(topic: Topic) -> bytes:
    """Name and id, as both requests write them."""
    name = topic.name.encode()
    return write_uvarint(len(name) + 1) + name + topic.wire_id


class EncodedTopic:
    """One topic. `states` and `tails` are by partition index; a partition without leadership has empty bytes."""

    __slots__ = ("assignments", "head", "id", "infos", "size", "states", "tails")

    def __init__(self, topic: Topic, partitions: Mapping[int, Partition]) -> None:
        self.head = encode_head(topic)
        self.id = topic.id
        self.size = len(topic.partitions)
        self.infos: list[LeaderAndIsr | None] | dict[int, LeaderAndIsr | None]
        self.assignments: list[Assignment | None] | dict[int, Assignment | None]
        self.states: list[bytes] | dict[int, bytes]
        self.tails: list[bytes] | dict[int, bytes]
        count = len(partitions)
        if all(map(partitions.__contains__, range(count))):
            self.infos, self.assignments, self.states, self.tails = [None] * count, [None] * count, [b""] * count, [b""] * count
        else:  # ZooKeeper may have any indexes
            self.infos, self.assignments = dict.fromkeys(partitions), dict.fromkeys(partitions)
            self.states, self.tails = dict.fromkeys(partitions, b""), dict.fromkeys(partitions, b"")


class EncodedTopics:
    """The encoded topics of a controller term. They go with their topics."""

    def __init__(self) -> None:
        self._topics: WeakKeyDictionary[Topic, EncodedTopic] = WeakKeyDictionary()
        self._alike: IdentityMemo[tuple[bytes, bytes]] = IdentityMemo()

    def __len__(self) -> int:
        return len(self._topics)

    def begin(self) -> None:
        """A new batch: nothing changes until its last request is encoded."""
        self._alike.clear()

    def head(self, topic: Topic) -> bytes:
        """Name and id of a topic, as both requests write them."""
        encoded = self._topics.get(topic)
        return encode_head(topic) if encoded is None or encoded.id is not topic.id else encoded.head

    def encoded(self, topic: Topic, partitions: Sequence[Partition]) -> EncodedTopic:
        """The topic, in which the states of these partitions are current. Raises one of `frames.UNENCODABLE`."""
        encoded = self._topics.get(topic)
        if encoded is None or encoded.size != len(topic.partitions) or encoded.id is not topic.id:
            members = topic.partitions or {p.index: p for p in partitions}  # a topic that was removed has parted from its partitions
            encoded = self._topics[topic] = EncodedTopic(topic, members)
        infos, assignments = encoded.infos, encoded.assignments
        for p in partitions:
            index = p.index
            if infos[index] is not p.info or assignments[index] is not p.assignment:
                self._encode(encoded, index, p.info, p.assignment)
        return encoded

    def _encode(self, encoded: EncodedTopic, index: int, info: LeaderAndIsr | None, assignment: Assignment) -> None:
        """Encode a state. Partitions whose state and assignment are the same objects differ in their index only."""
        if info is None:
            state = tail = b""
        else:
            key = (id(info), id(assignment))
            found = self._alike.get(key)
            if found is None:
                is_settled = not (assignment.adding or assignment.removing or info.recovery)
                tail = _SETTLED if is_settled else encode_tail(assignment, False, info.recovery)
                found = self._alike.keep(key, (encode_state(index, info, assignment.replicas)[4:], tail), info, assignment)
            rest, tail = found
            state = encode_index(index) + rest
        encoded.infos[index], encoded.assignments[index] = info, assignment
        encoded.states[index], encoded.tails[index] = state, tail


def join_states(head: bytes, states: Sequence[bytes]) -> bytes:
    """A topic with partition states, as both requests write it."""
    return b"".join((head, write_uvarint(len(states) + 1), *states, b"\x00"))
