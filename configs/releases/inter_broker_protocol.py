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


class _Since:
    """Whether a version is this one or a later one."""

    def __init__(self, name: str) -> None:
        self._order = _STEPS.index(name)

    def __get__(self, version: MetadataVersion, _owner: type[MetadataVersion]) -> bool:
        return version._order >= self._order


class _NumberAt:
    """The number of the first row, from newest to oldest, whose version is not later."""

    def __init__(self, *rows: tuple[str, int]) -> None:
        self._rows = [(_STEPS.index(name), number) for name, number in rows]

    def __get__(self, version: MetadataVersion, _owner: type[MetadataVersion]) -> int:
        return next(number for order, number in self._rows if version._order >= order)


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

    leader_and_isr_version = _NumberAt(
        ("3.4-IV0", 7), ("3.2-IV0", 6), ("2.8-IV1", 5), ("2.4-IV1", 4), ("2.4-IV0", 3), ("2.2-IV0", 2), ("1.0-IV0", 1), ("0.8.0", 0),
    )
    """Version of LeaderAndIsr that a controller sends."""
    update_metadata_version = _NumberAt(
        ("3.4-IV0", 8), ("2.8-IV1", 7), ("2.4-IV1", 6), ("2.2-IV0", 5), ("1.0-IV0", 4), ("0.10.2-IV0", 3), ("0.10.0-IV1", 2),
        ("0.9.0", 1), ("0.8.0", 0),
    )
    """Version of UpdateMetadata that a controller sends."""
    stop_replica_version = _NumberAt(("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1), ("0.8.0", 0))
    """Version of StopReplica that a controller sends."""
    controlled_shutdown_version = _NumberAt(("2.4-IV1", 3), ("2.2-IV0", 2), ("0.9.0", 1), ("0.8.0", 0))
    """Version of ControlledShutdown that a broker sends."""
    fetch_version = _NumberAt(
        ("3.9-IV0", 17), ("3.7-IV4", 16), ("3.5-IV1", 15), ("3.5-IV0", 14), ("3.1-IV0", 13), ("2.7-IV1", 12), ("2.3-IV1", 11),
        ("2.1-IV2", 10), ("2.0-IV1", 8), ("1.1-IV0", 7), ("0.11.0-IV1", 5), ("0.11.0-IV0", 4), ("0.10.1-IV1", 3), ("0.10.0-IV0", 2),
        ("0.9.0", 1), ("0.8.0", 0),
    )
    """Version of Fetch that a follower sends if all its topics have ids. Otherwise it sends at most version 12."""
    list_offsets_version = _NumberAt(
        ("3.9-IV0", 9), ("3.5-IV0", 8), ("3.0-IV1", 7), ("2.8-IV0", 6), ("2.2-IV1", 5), ("2.1-IV1", 4), ("2.0-IV1", 3),
        ("0.11.0-IV0", 2), ("0.10.1-IV2", 1), ("0.8.0", 0),
    )
    """Version of ListOffsets that a follower sends."""
    offset_for_leader_epoch_version = _NumberAt(("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1), ("0.8.0", 0))
    """Version of OffsetForLeaderEpoch that a follower sends."""
    has_truncation_on_fetch = _Since("2.7-IV1")
    """Whether a Fetch response says where the follower's log diverges. Before this version, followers send OffsetForLeaderEpoch."""
    has_offset_for_leader_epoch = _Since("0.11.0-IV2")
    """Whether followers truncate by leader epochs. Before this version, they truncate to their high watermark."""
    has_alter_partition = _Since("2.7-IV2")
    """Whether leaders change ISRs with AlterPartition requests to the controller. Before this version, they write them to ZooKeeper."""
    has_topic_ids = _Since("2.8-IV0")
    """Whether topics have ids. A controller gives an id to a topic without one."""
    has_leader_recovery = _Since("3.2-IV0")
    """Whether the state of a partition can say that its leader recovers after an unclean election."""
    has_feature_versioning = _Since("2.7-IV0")
    """Whether `/feature` is enabled and brokers register their features."""
    feature_node_version = _NumberAt(("3.3-IV0", 2), ("0.8.0", 1))
    """JSON version of `/feature`."""
    broker_node_version = _NumberAt(("2.7-IV0", 5), ("0.10.0-IV1", 4), ("0.8.0", 2))
    """JSON version of `/brokers/ids/<id>`."""
    record_version = _NumberAt(("0.11.0-IV0", 2), ("0.10.0-IV0", 1), ("0.8.0", 0))
    """Newest record format (magic) of this version."""
    has_prefixed_acls = _Since("2.0-IV1")
    """Whether ACLs with prefixed patterns may be created."""
    has_static_members = _Since("2.3-IV0")
    """Whether members of groups may have instance ids."""
    has_producer_id_allocation = _Since("3.0-IV0")
    """Whether producer ids come from the controller (AllocateProducerIds). Before this version, brokers take blocks from ZooKeeper."""
    passes_over_unknown_records = _Since("3.5-IV0")
    """Whether all coordinators pass over records of their topics whose keys have an unknown version. Those of earlier releases end
    the load of their partition there (KIP-915)."""
    write_txn_markers_version = _NumberAt(("2.8-IV0", 1), ("0.8.0", 0))
    """The version of WriteTxnMarkers that brokers send each other."""


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
