"""What CreateTopics, CreatePartitions and DeleteTopics check before anything is written. Pure: the first check that fails wins.

The order of the checks is that of the specification (controller 5.3, 5.5, 12.1). The state of the cluster comes in as facts; validation of
configs, policies and random numbers come in as functions.

Reading the names of all topics costs more than everything else here, and a creation that goes well mostly does not need it: that a
topic exists is found out by the write. Only where the names decide which error wins, or whether there is one, `plan_topic` raises
`TopicNamesNeeded`; the caller reads them once and calls it again.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from klamm.controller.decisions.placement import Racks, growth_start, place_replicas
from klamm.controller.values import Assignment, StoredTopic
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import ZERO_UUID, Ints
from klamm.seams.pace import Pace
from klamm.seams.value_class import dataclass

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
MAX_NAME_LENGTH = 249
BROKER_DEFAULT = -1
"""Number of partitions or replication factor: take the broker's default, or the assignments say it."""
MAX_CREATED_PARTITIONS = 46_341
"""Kafka creates no topic with more: the sum in its check of the partitions' numbers overflows."""
MAX_PARTITIONS = 100_000
"""No topic grows beyond: however short its replica lists, its znode would be larger than ZooKeeper takes."""

NOT_CONSECUTIVE = "partitions should be a consecutive 0-based integer sequence"
BOTH_GIVEN = "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time."
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

Assignments = dict[int, Ints]


class TopicNamesNeeded(Exception):
    """The response depends on which topics there are; `CreationFacts.existing` was None."""


def is_valid_name(name: str) -> bool:
    """Whether a topic may be called so."""
    return name not in (".", "..") and len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def flat_name(name: str) -> str:
    """The name with its dots read as underscores, as in metric names: no two topics may share it."""
    return name.replace(".", "_")


def why_invalid(name: str) -> str:
    """What is wrong with a name that is not valid, in Kafka's words."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


class TopicNames:
    """Names of topics, looked up as they are and with their dots read as underscores (the two meet in metric names)."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._by_flat: dict[str, str] = {}
        for name in names:
            self.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """One more topic."""
        self._names.add(name)
        if "." in name or "_" in name:
            self._by_flat[flat_name(name)] = name

    def colliding(self, name: str) -> str | None:
        """A topic whose name is the same once dots are read as underscores, or None."""
        return self._by_flat.get(flat_name(name)) if "." in name or "_" in name else None


# CreateTopics


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that may be created. `configs` holds only what the request set."""

    name: str
    assignments: Assignments
    configs: dict[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.assignments[0])


@dataclasses.dataclass(slots=True)
class CreationFacts:
    """What `plan_topic` may know.

    `racks` are the brokers of the metadata cache, `cached` its topics; `existing` the names below `/brokers/topics`, None when they
    were not read, to which the topics planned so far are added. `check_configs` and `check_policy` raise ApiError; `policy` gets
    name, partitions and replication factor (None with explicit assignments), assignments (None when placed by us), configs.
    `dice(n)` is a random number in [0, n).
    """

    racks: Racks
    cached: Container[str]
    existing: TopicNames | None
    queued_for_deletion: Callable[[str], bool]
    default_partitions: int
    default_replication_factor: int
    check_configs: Callable[[dict[str, str]], None]
    check_policy: Callable[[str, int | None, int | None, Assignments | None, dict[str, str]], None]
    dice: Callable[[int], int]


def already_exists(name: str) -> ApiError:
    """The error whose text scripts look for."""
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


async def refuse_creations(names: Sequence[str], may_create: Callable[[str], bool]) -> list[ApiError | None]:
    """The checks that look at the request alone, one result for each entry: reserved name, named twice, not authorised."""
    times, pace = Counter(names), Pace()
    refusals: list[ApiError | None] = []
    for name in names:
        await pace()
        if name == CLUSTER_METADATA_TOPIC:
            refusals.append(ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."))
        elif times[name] > 1:
            refusals.append(ApiError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic."))
        elif not may_create(name):
            refusals.append(ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
        else:
            refusals.append(None)
    return refusals


def plan_topic(topic: messages.CreateTopicsRequest.CreatableTopic, facts: CreationFacts, *, written: bool = True) -> TopicPlan:
    """What to write for one CreatableTopic. Raises ApiError, or TopicNamesNeeded.

    `written` is false when nothing will be written (validate only): then only the names show that a topic exists.
    """
    name = topic.name
    if name in facts.cached:
        raise already_exists(name)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    explicit = bool(topic.assignments)
    if explicit:
        if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
            raise ApiError(ErrorCode.INVALID_REQUEST, BOTH_GIVEN)
        assignments = {entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments}
        count = len(assignments)
    else:
        count = facts.default_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions
        assignments = _place(topic, count, facts)
    _check_name(name, facts)
    try:
        if count > MAX_CREATED_PARTITIONS:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, NOT_CONSECUTIVE)
        if explicit:
            _check_assignments(assignments)
        configs = {config.name: config.value for config in topic.configs if config.value is not None}
        facts.check_configs(configs)
        if explicit:
            facts.check_policy(name, None, None, assignments, configs)
            if 0 not in assignments:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Apache Kafka wants to say how many replicas partition 0 has
        else:
            facts.check_policy(name, len(assignments), len(assignments[0]), None, configs)
    except ApiError:
        if facts.existing is None:
            raise TopicNamesNeeded(name) from None
        raise
    if not written and facts.existing is None:
        raise TopicNamesNeeded(name)
    if written and facts.existing is not None:
        facts.existing.add(name)
    return TopicPlan(name, assignments, configs)


def _place(topic: messages.CreateTopicsRequest.CreatableTopic, count: int, facts: CreationFacts) -> Assignments:
    """Replicas of each partition; of a single one when there are so many that they will be refused."""
    partitions = 1 if count > MAX_CREATED_PARTITIONS else count
    factor = facts.default_replication_factor if topic.replication_factor == BROKER_DEFAULT else topic.replication_factor
    brokers = max(1, len(facts.racks))
    return place_replicas(facts.racks, partitions, factor, facts.dice(brokers), facts.dice(brokers))


def _check_name(name: str, facts: CreationFacts) -> None:
    if not is_valid_name(name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why_invalid(name)}")
    if facts.queued_for_deletion(name):
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if facts.existing is None:
        if "." in name or "_" in name:
            raise TopicNamesNeeded(name)
        return
    if name in facts.existing:
        raise already_exists(name)
    other = facts.existing.colliding(name)
    if other is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {other}")


def _check_assignments(assignments: Assignments) -> None:
    """Raises ApiError. Apache Kafka only adds up the numbers that are not negative, so it misses some assignments without partition 0."""
    if len({len(replicas) for replicas in assignments.values()}) != 1:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas")
    if any(len(set(replicas)) < len(replicas) for replicas in assignments.values()):
        shown = ", ".join(f"{partition} -> ArrayBuffer({', '.join(map(str, ids))})" for partition, ids in assignments.items())
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Duplicate replica assignment found: HashMap({shown})")
    count = len(assignments)
    is_missed = 0 not in assignments and sum(p for p in assignments if p >= 0) == count * (count - 1) // 2
    if not is_missed and any(partition not in assignments for partition in range(count)):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, NOT_CONSECUTIVE)


# CreatePartitions


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """Partitions to add to a topic whose znode holds `stored`."""

    name: str
    stored: StoredTopic
    added: Assignments


class NothingToFollow(ApiError):
    """Partition 0 has an empty list of replicas. Apache Kafka fails here, and refuses the whole request."""


async def refuse_growths(
    names: Iterable[str], may_alter: Callable[[str], bool], queued_for_deletion: Callable[[str], bool]
) -> dict[str, ApiError | None]:
    """The checks that need no topic znode, one result for each name: named twice, not authorised, being deleted."""
    refusals: dict[str, ApiError | None] = {}
    pace = Pace()
    times: dict[str, int] = {}
    for name in names:
        await pace()
        times[name] = times.get(name, 0) + 1
    for name, count in times.items():
        await pace()
        if count > 1:
            refusals[name] = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        elif not may_alter(name):
            refusals[name] = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
        elif queued_for_deletion(name):
            refusals[name] = ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        else:
            refusals[name] = None
    return refusals


def plan_growth(topic: messages.CreatePartitionsRequest.CreatePartitionsTopic, stored: StoredTopic | None, racks: Racks) -> GrowthPlan:
    """What to add for one CreatePartitionsTopic. `racks` are the registered brokers. Raises ApiError."""
    name = topic.name
    if stored is not None and any(assignment.is_reassigning for assignment in stored.assignments.values()):
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'.")
    if stored is None or not stored.assignments:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    current = len(stored.assignments)
    grows_by = (topic.count - current + 2**31) % 2**32 - 2**31  # an int32 of Apache Kafka: very small counts become large ones
    if grows_by <= 0:
        same = f"Topic already has {current} partitions."
        fewer = f"Topic currently has {current} partitions, which is higher than the requested {topic.count}."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, same if topic.count == current else fewer)
    first = stored.assignments.get(0)
    if topic.assignments is not None:
        added = _explicit_growth(topic.name, grows_by, [tuple(entry.broker_ids) for entry in topic.assignments], current, first, racks)
    elif first is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} has no partition 0 to follow")
    elif not first.replicas:
        raise NothingToFollow(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition 0 of {name} has no replicas to follow")
    elif current + grows_by > MAX_PARTITIONS:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{name} cannot have {topic.count} partitions, at most {MAX_PARTITIONS}")
    else:
        start = growth_start(list(racks), first.replicas[0])
        added = place_replicas(racks, grows_by, len(first.replicas), start, start, current)
    return GrowthPlan(name, stored, added)


def _explicit_growth(
    name: str, grows_by: int, lists: list[Ints], current: int, first: Assignment | None, racks: Racks
) -> Assignments:
    unknown = list(dict.fromkeys(broker for replicas in lists for broker in replicas if broker not in racks))
    if unknown:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(lists) != grows_by:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {grows_by} but {len(lists)} assignments provided.",
        )
    if first is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} has no partition 0 to follow")
    for index, replicas in enumerate(lists, current):
        if not replicas:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Cannot have replication factor of 0 for partition id {index}.")
        if len(set(replicas)) < len(replicas):
            text = f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, sorted(replicas)))} for partition id {index}."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    wrong = [(index, len(replicas)) for index, replicas in enumerate(lists, current) if len(replicas) != len(first.replicas)]
    if wrong:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Inconsistent replication factor between partitions, partition 0 has {len(first.replicas)} while partitions "
            f"[{', '.join(str(index) for index, _ in wrong)}] have replication factors [{', '.join(str(size) for _, size in wrong)}], "
            "respectively.",
        )
    return dict(enumerate(lists, current))


# DeleteTopics


@dataclasses.dataclass(slots=True)
class Deletion:
    """One element of a DeleteTopics request, and its response so far. `name` is what the response shows."""

    name: str | None
    topic_id: bytes
    code: ErrorCode = ErrorCode.NONE


async def judge_deletions(
    deletions: Sequence[Deletion],
    name_of: Callable[[bytes], str | None],
    may_describe: Callable[[str], bool],
    may_delete: Callable[[str], bool],
    cached: Container[str],
) -> list[str]:
    """Set names and codes of the elements; the names of the topics to delete, each once.

    Name and id both given for any element is INVALID_REQUEST for all, and nothing to delete.
    """
    pace = Pace()
    both = False
    for deletion in deletions:
        await pace()
        both = both or (deletion.name is not None and deletion.topic_id != ZERO_UUID)
    if both:
        for deletion in deletions:
            await pace()
            deletion.code = ErrorCode.INVALID_REQUEST
        return []
    wanted: dict[str, None] = {}
    for deletion in deletions:
        await pace()
        by_id = deletion.topic_id != ZERO_UUID
        name = name_of(deletion.topic_id) if by_id else deletion.name
        deletion.name = name
        if name is None:
            deletion.code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif by_id and not may_describe(name):
            deletion.name, deletion.code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not may_delete(name):
            deletion.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in cached:
            deletion.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted[name] = None
    return list(wanted)


async def settle_deletions(deletions: Sequence[Deletion], codes: Mapping[str, ErrorCode]) -> None:
    """Give each topic's final code to the first element that names it, as Apache Kafka does; later ones stay without an error."""
    pending = dict(codes)
    if not pending:
        return
    pace = Pace()
    for deletion in deletions:
        await pace()
        if deletion.code is ErrorCode.NONE and deletion.name is not None and deletion.name in pending:
            deletion.code = pending.pop(deletion.name)
