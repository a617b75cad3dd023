"""Fast encoding of reads and writes of up to 100,000 partition states: shared bytes are built once.

The path of a state has a part of its topic, which is built once per request, and a last part that all topics share. Most states that are
written or read are equal to only a few different ones, so each different one is encoded or decoded once. Consecutive results of equal
length are unpacked together. Responses are decoded here, in kazoo's thread: the result is states, not bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from klamm.controller.values import LeaderAndIsr, StateWrite
from klamm.protocol.nouns import TopicPartition
from klamm.zk.layout import paths
from klamm.zk.layout.topics import TopicNodes
from klamm.zk.session.requests import (
    END,
    ERROR,
    GET_DATA,
    HEAD_AND_END_BYTES,
    HEADER_SIZE,
    MULTI_READ,
    NO_NODE,
    SET_DATA,
    STAT_SIZE,
    VERSION_IN_STAT,
    ZkError,
    error,
    pack_int,
    read_header_and_int,
    utf8_size,
)

_begin = Struct(">iBii").pack

STATE_PATH_BYTES = 64
"""What a request to read states has for each of them beside the chroot and the topic, at most."""


@lru_cache(maxsize=1 << 16)
def _leaf(partition: int) -> bytes:
    return b"%d/state" % partition


@lru_cache(maxsize=1 << 10)
def _record(length: int) -> Struct:
    """The format of one multiRead result with data of this length: type, done, error, length, data, version."""
    return Struct(f">iBii{length}s{VERSION_IN_STAT}xi{STAT_SIZE - VERSION_IN_STAT - 4}x")


class _Heads(dict[str, "_HeadsOfTopic"]):
    """The first bytes of operations of one type on states, by topic and by the length of the last part of the path."""

    def __init__(self, kind: int, prefix: str) -> None:
        super().__init__()
        self._kind, self._prefix = kind, prefix

    def __missing__(self, topic: str) -> _HeadsOfTopic:
        heads = self[topic] = _HeadsOfTopic(self._kind, f"{self._prefix}{paths.partitions_path(topic)}/".encode())
        return heads


class _HeadsOfTopic(dict[int, bytes]):
    def __init__(self, kind: int, root: bytes) -> None:
        super().__init__()
        self._kind, self._root = kind, root

    def __missing__(self, leaf: int) -> bytes:
        head = self[leaf] = _begin(self._kind, 0, -1, len(self._root) + leaf) + self._root
        return head


def updates(prefix: str, nodes: TopicNodes, writes: Sequence[StateWrite]) -> list[bytes]:
    """Operations of a Multi that set states, each on condition of the expected version."""
    heads = _Heads(SET_DATA, prefix)
    tails: dict[tuple[int, int], bytes] = {}  # by the id() of a state, which `writes` keeps alive
    operations = []
    for topic, index, state, expected in writes:
        tail = tails.get((id(state), expected))
        if tail is None:
            data = nodes.encode_state(state)
            tail = tails[id(state), expected] = pack_int(len(data)) + data + pack_int(expected)
        leaf = _leaf(index)
        operations.append(heads[topic][len(leaf)] + leaf + tail)
    return operations


class ReadStates:
    """Reads the states of partitions (topic, partition) at one point in time. None for one that does not exist or cannot be read."""

    type = None

    def __init__(self, prefix: str, nodes: TopicNodes, partitions: Sequence[TopicPartition]) -> None:
        self._prefix = prefix
        self._nodes = nodes
        self._partitions = partitions

    def __repr__(self) -> str:
        return f"ReadStates({len(self._partitions)})"

    def size(self) -> int:
        """Raises UnicodeEncodeError."""
        each = utf8_size(self._prefix) + STATE_PATH_BYTES
        return sum(utf8_size(topic) for topic, _ in self._partitions) + each * len(self._partitions) + HEAD_AND_END_BYTES

    def serialize(self) -> bytes:
        heads = _Heads(GET_DATA, self._prefix)
        parts = [pack_int(MULTI_READ)]
        for topic, index in self._partitions:
            leaf = _leaf(index)
            parts += heads[topic][len(leaf)], leaf, b"\0"
        parts.append(END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[LeaderAndIsr | None] | ZkError:
        known, decode = self._nodes.states, self._nodes.decode_state
        left = len(self._partitions)
        states: list[LeaderAndIsr | None] = []
        with memoryview(buffer) as view:
            while left:
                kind, _, _, first = read_header_and_int(buffer, offset)
                if kind == ERROR:
                    if first != NO_NODE:
                        return error(first)
                    states.append(None)
                    offset += HEADER_SIZE + 4
                    left -= 1
                    continue
                if first < 0:  # a znode without data
                    states.append(None)
                    offset += HEADER_SIZE + 4 + STAT_SIZE
                    left -= 1
                    continue
                record = _record(first)
                count = min(left, (len(buffer) - offset) // record.size)
                if not count:
                    raise ValueError("a multiRead response is cut short")
                before = len(states)
                for kind, _, _, length, data, version in record.iter_unpack(view[offset : offset + count * record.size]):
                    if length != first or kind != GET_DATA:
                        break
                    state = known.get((data, version))
                    states.append(decode(data, version, self._partitions[len(states)]) if state is None else state)
                offset += (len(states) - before) * record.size
                left -= len(states) - before
        return states
