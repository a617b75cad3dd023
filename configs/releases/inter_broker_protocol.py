"""The inter-broker protocol: the release whose features brokers use between each other (`inter.broker.protocol.version`).

A MetadataVersion is one version of that protocol. Versions are ordered. Its properties say what a broker or controller with this version
can do, and which request versions it sends; these are not negotiated. The table of versions is that of Kafka 3.9.1. Its last two versions
are unfinished there and accepted only by their full names. Source: controller 13.3, wire 5.
"""

from __future__ import annotations

from functools import total_ordering

_HISTORY = (
    "0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1 0.11.0-IV2 "
    "1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1 2.5-IV0 2.6-IV0 "
    "2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2 3.3-IV3 3.4-IV0 "
    "3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1"
)
_STEPS = tuple(_HISTORY.split())
_LATEST_PRODUCTION = "3.9-IV0"


@total_ordering
class MetadataVersion:
    """One version of the inter-broker protocol, such as 2.7-IV2. Versions are ordered by time."""

    __slots__ = ("_order", "name")

    def __init__(self, name: str, order: int) -> None:
        self.name = name
        self._order = order

    def __repr__(self) -> str:
        return f"MetadataVersion({self.name})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetadataVersion) and self._order == other._order

    def __lt__(self, other: MetadataVersion) -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return self._order

    @staticmethod
    def find(text: str) -> MetadataVersion | None:
        """The version of a configured text; None if there is none. `3.9` and `3.9.1` mean the last version of that release."""
        segments = text.split(".")
        return _BY_TEXT.get(".".join(segments[: 3 if text.startswith("0.") else 2]))

    @staticmethod
    def of(text: str) -> MetadataVersion:
        """Like `find`, but raises ValueError if there is none."""
        version = MetadataVersion.find(text)
        if version is None:
            raise ValueError(f"{text!r} is not an inter-broker protocol version")
        return version

    @property
    def leader_and_isr_version(self) -> int:
        """Version of LeaderAndIsr that a controller sends."""
        return _version_at(_LEADER_AND_ISR, self)

    @property
    def update_metadata_version(self) -> int:
        """Version of UpdateMetadata that a controller sends."""
        return _version_at(_UPDATE_METADATA, self)

    @property
    def stop_replica_version(self) -> int:
        """Version of StopReplica that a controller sends."""
        return _version_at(_STOP_REPLICA, self)

    @property
    def controlled_shutdown_version(self) -> int:
        """Version of ControlledShutdown that a broker sends."""
        return _version_at(_CONTROLLED_SHUTDOWN, self)

    @property
    def fetch_version(self) -> int:
        """Version of Fetch that a follower sends if all its topics have ids. Otherwise it sends at most version 12."""
        return _version_at(_FETCH, self)

    @property
    def list_offsets_version(self) -> int:
        """Version of ListOffsets that a follower sends."""
        return _version_at(_LIST_OFFSETS, self)

    @property
    def offset_for_leader_epoch_version(self) -> int:
        """Version of OffsetForLeaderEpoch that a follower sends."""
        return _version_at(_OFFSET_FOR_LEADER_EPOCH, self)

    @property
    def has_truncation_on_fetch(self) -> bool:
        """Whether a Fetch response says where the follower's log diverges. Before this version, followers send OffsetForLeaderEpoch."""
        return self >= _TRUNCATION_ON_FETCH

    @property
    def has_offset_for_leader_epoch(self) -> bool:
        """Whether followers truncate by leader epochs. Before this version, they truncate to their high watermark."""
        return self >= _LEADER_EPOCH_REQUEST

    @property
    def has_alter_partition(self) -> bool:
        """Whether leaders change ISRs with AlterPartition requests to the controller. Before this version, they write them to ZooKeeper."""
        return self >= _ALTER_PARTITION

    @property
    def has_topic_ids(self) -> bool:
        """Whether topics have ids. A controller gives an id to a topic without one."""
        return self >= _TOPIC_IDS

    @property
    def has_leader_recovery(self) -> bool:
        """Whether the state of a partition can say that its leader recovers after an unclean election."""
        return self >= _LEADER_RECOVERY

    @property
    def has_feature_versioning(self) -> bool:
        """Whether `/feature` is enabled and brokers register their features."""
        return self >= _FEATURE_VERSIONING

    @property
    def feature_node_version(self) -> int:
        """JSON version of `/feature`."""
        return 2 if self >= _FEATURE_NODE_2 else 1

    @property
    def broker_node_version(self) -> int:
        """JSON version of `/brokers/ids/<id>`."""
        if self >= _FEATURE_VERSIONING:
            return 5
        return 4 if self >= _BROKER_NODE_4 else 2

    @property
    def record_version(self) -> int:
        """Newest record format (magic) of this version."""
        if self >= _RECORD_VERSION_2:
            return 2
        return 1 if self >= _RECORD_VERSION_1 else 0

    @property
    def has_prefixed_acls(self) -> bool:
        """Whether ACLs with prefixed patterns may be created."""
        return self >= _PREFIXED_ACLS

    @property
    def has_static_members(self) -> bool:
        """Whether members of groups may have instance ids."""
        return self >= _STATIC_MEMBERS

    @property
    def has_producer_id_allocation(self) -> bool:
        """Whether producer ids come from the controller (AllocateProducerIds). Before this version, brokers take blocks from ZooKeeper."""
        return self >= _PRODUCER_ID_ALLOCATION

    @property
    def passes_over_unknown_records(self) -> bool:
        """Whether all coordinators pass over records of their topics whose keys have an unknown version. Those of earlier releases end
        the load of their partition there (KIP-915)."""
        return self >= _UNKNOWN_RECORDS

    @property
    def write_txn_markers_version(self) -> int:
        """The version of WriteTxnMarkers that brokers send each other."""
        return 1 if self >= _TOPIC_IDS else 0


def _by_text() -> dict[str, MetadataVersion]:
    found: dict[str, MetadataVersion] = {}
    for order, name in enumerate(_STEPS):
        version = MetadataVersion(name, order)
        found[name] = version
        if order <= _STEPS.index(_LATEST_PRODUCTION):
            found[name.partition("-")[0]] = version
    return found


_BY_TEXT = _by_text()
VERSIONS = tuple(_BY_TEXT[name] for name in _STEPS)
LATEST_PRODUCTION = _BY_TEXT[_LATEST_PRODUCTION]

_ALTER_PARTITION = _BY_TEXT["2.7-IV2"]
_TOPIC_IDS = _BY_TEXT["2.8-IV0"]
_LEADER_RECOVERY = _BY_TEXT["3.2-IV0"]
_FEATURE_VERSIONING = _BY_TEXT["2.7-IV0"]
_FEATURE_NODE_2 = _BY_TEXT["3.3-IV0"]
_BROKER_NODE_4 = _BY_TEXT["0.10.0-IV1"]
_PRODUCER_ID_ALLOCATION = _BY_TEXT["3.0-IV0"]
_UNKNOWN_RECORDS = _BY_TEXT["3.5-IV0"]
_PREFIXED_ACLS = _BY_TEXT["2.0-IV1"]
_STATIC_MEMBERS = _BY_TEXT["2.3-IV0"]
_TRUNCATION_ON_FETCH = _BY_TEXT["2.7-IV1"]
_LEADER_EPOCH_REQUEST = _BY_TEXT["0.11.0-IV2"]
_RECORD_VERSION_2 = _BY_TEXT["0.11.0-IV0"]
_RECORD_VERSION_1 = _BY_TEXT["0.10.0-IV0"]

Versions = tuple[tuple[MetadataVersion, int], ...]


def _table(*rows: tuple[str, int]) -> Versions:
    return tuple((_BY_TEXT[name], version) for name, version in rows)


_LEADER_AND_ISR = _table(
    ("3.4-IV0", 7), ("3.2-IV0", 6), ("2.8-IV1", 5), ("2.4-IV1", 4), ("2.4-IV0", 3), ("2.2-IV0", 2), ("1.0-IV0", 1), ("0.8.0", 0)
)
_UPDATE_METADATA = _table(
    ("3.4-IV0", 8),
    ("2.8-IV1", 7),
    ("2.4-IV1", 6),
    ("2.2-IV0", 5),
    ("1.0-IV0", 4),
    ("0.10.2-IV0", 3),
    ("0.10.0-IV1", 2),
    ("0.9.0", 1),
    ("0.8.0", 0),
)
_STOP_REPLICA = _table(("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1), ("0.8.0", 0))
_FETCH = _table(
    ("3.9-IV0", 17), ("3.7-IV4", 16), ("3.5-IV1", 15), ("3.5-IV0", 14), ("3.1-IV0", 13), ("2.7-IV1", 12), ("2.3-IV1", 11), ("2.1-IV2", 10),
    ("2.0-IV1", 8), ("1.1-IV0", 7), ("0.11.0-IV1", 5), ("0.11.0-IV0", 4), ("0.10.1-IV1", 3), ("0.10.0-IV0", 2), ("0.9.0", 1), ("0.8.0", 0),
)
_LIST_OFFSETS = _table(
    ("3.9-IV0", 9), ("3.5-IV0", 8), ("3.0-IV1", 7), ("2.8-IV0", 6), ("2.2-IV1", 5), ("2.1-IV1", 4), ("2.0-IV1", 3), ("0.11.0-IV0", 2),
    ("0.10.1-IV2", 1), ("0.8.0", 0),
)
_OFFSET_FOR_LEADER_EPOCH = _table(("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1), ("0.8.0", 0))
_CONTROLLED_SHUTDOWN = _table(("2.4-IV1", 3), ("2.2-IV0", 2), ("0.9.0", 1), ("0.8.0", 0))


def _version_at(table: Versions, step: MetadataVersion) -> int:
    return next(version for since, version in table if step >= since)
