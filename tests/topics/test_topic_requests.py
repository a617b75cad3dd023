"""The checks of CreateTopics, CreatePartitions and DeleteTopics: every row of their tables, and which of two rows wins."""

import itertools
from typing import Any

import pytest

from klamm.controller.decisions.placement import place_replicas
from klamm.controller.decisions.topic_requests import (
    MAX_CREATED_PARTITIONS,
    MAX_PARTITIONS,
    CreationFacts,
    Deletion,
    TopicNames,
    TopicNamesNeeded,
    is_valid_name,
    judge_deletions,
    plan_growth,
    plan_topic,
    refuse_creations,
    refuse_growths,
    settle_deletions,
)
from klamm.controller.values import Assignment, StoredTopic
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.tests.topics.topic_trees import growth, manual, topic

ID, OTHER_ID = b"i" * 16, b"o" * 16


def check_configs(configs: dict[str, str]) -> None:
    if "bad" in configs:
        raise ApiError(ErrorCode.INVALID_CONFIG, "bad")


def check_policy(name: str, partitions: Any, factor: Any, assignments: Any, configs: dict[str, str]) -> None:
    if name.startswith("unwelcome"):
        raise ApiError(ErrorCode.POLICY_VIOLATION, "no")


def facts(**more: Any) -> CreationFacts:
    fields: dict[str, Any] = {
        "racks": {0: None, 1: None, 2: None},
        "cached": {"cached"},
        "existing": TopicNames({"cached", "ghost", "a.b"}),
        "queued_for_deletion": {"dying"}.__contains__,
        "default_partitions": 2,
        "default_replication_factor": 3,
        "check_configs": check_configs,
        "check_policy": check_policy,
        "dice": lambda n: 0,
    }
    return CreationFacts(**(fields | more))


# CreateTopics


def refused(wanted: Any, known: CreationFacts | None = None, written: bool = True) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        plan_topic(wanted, known or facts(), written=written)
    return refusal.value.code


# in the order of the specification: each breaks exactly one rule, so that any two can be put together
FAULTS: list[tuple[ErrorCode, dict[str, Any]]] = [
    (ErrorCode.TOPIC_ALREADY_EXISTS, {"name": "cached"}),
    (ErrorCode.INVALID_CONFIG, {"configs": {"a": None}}),
    (ErrorCode.INVALID_REQUEST, {"assign": {0: [0]}, "partitions": 1, "rf": -1}),
    (ErrorCode.INVALID_PARTITIONS, {"partitions": 0}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"rf": 4}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": "no good"}),
    (ErrorCode.TOPIC_ALREADY_EXISTS, {"name": "ghost"}),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, {"assign": {0: [0, 0]}, "partitions": -1, "rf": -1}),
    (ErrorCode.INVALID_CONFIG, {"configs": {"bad": "1"}}),
    (ErrorCode.POLICY_VIOLATION, {"name": "unwelcome"}),
]


@pytest.mark.parametrize(("code", "fault"), FAULTS)
def test_one_fault(code: ErrorCode, fault: dict[str, Any]) -> None:
    assert refused(topic(**fault)) is code
    assert refused(topic(**fault), written=False) is code


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (topic("cached"), "Topic 'cached' already exists."),
        (topic("ghost"), "Topic 'ghost' already exists."),
        (topic("dying"), "Topic 'dying' is marked for deletion."),
        (topic("a_b"), "Topic 'a_b' collides with existing topics: a.b"),
        (topic(rf=9), "Replication factor: 9 larger than available brokers: 3."),
        (topic(rf=0), "Replication factor must be larger than 0."),
        (topic(partitions=0), "Number of partitions must be larger than 0."),
        (
            topic("bad/name"),
            "Topic name is invalid: 'bad/name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (topic(""), "Topic name is invalid: the empty string is not allowed"),
        (topic(".."), "Topic name is invalid: '..' is not allowed"),
        (topic("a" * 250), f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249"),
        (
            topic(assign={0: [0]}),
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time.",
        ),
        (manual({0: [0], 1: [0, 1]}), "All partitions should have the same number of replicas"),
        (manual({0: [1, 2], 1: [2, 2]}), "Duplicate replica assignment found: HashMap(0 -> ArrayBuffer(1, 2), 1 -> ArrayBuffer(2, 2))"),
        (manual({0: [1], 2: [1]}), "partitions should be a consecutive 0-based integer sequence"),
        (topic(partitions=MAX_CREATED_PARTITIONS + 1), "partitions should be a consecutive 0-based integer sequence"),
        (
            topic(configs=[("retention.ms", None), ("cleanup.policy", None)]),
            "Null value not supported for topic configs: retention.ms,cleanup.policy",
        ),
    ],
)
def test_a_topic_is_refused_in_the_words_of_kafka(wanted: Any, text: str) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_topic(wanted, facts())
    assert refusal.value.message == text


@pytest.mark.parametrize("lists", [{-1: [0]}, {-7: [0]}, {-1: [0], 1: [0]}, {-1: [0], 1: [0], 2: [0]}])
def test_negative_partitions_that_are_not_noticed_leave_no_partition_0(lists: dict[int, list[int]]) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_topic(manual(lists), facts())
    assert (refusal.value.code, refusal.value.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


PAIRS = [pair for pair in itertools.combinations(range(len(FAULTS)), 2) if pair not in ((3, 7), (4, 7))]
"""Without those that cannot meet: counts of an automatic placement, and a bad explicit one."""


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_first_of_two_faults_wins(first: int, second: int) -> None:
    code, one = FAULTS[first]
    _, other = FAULTS[second]
    # the fault that is looked at first decides about fields that both set
    assert refused(topic(**(other | one))) is code


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=MAX_CREATED_PARTITIONS + 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=2**31 - 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic(partitions=2**31 - 1, rf=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("no good", partitions=2**31 - 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(rf=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(rf=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(assign={0: [0]}, partitions=-1, rf=1), ErrorCode.INVALID_REQUEST),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("dying"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (manual({0: [0], 1: [0, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual({0: [0, 1], 1: [2, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual({1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual({0: [0], 2: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual({-1: [0], 0: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual({0: [], 1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_more_faults(wanted: Any, code: ErrorCode) -> None:
    assert refused(wanted) is code


def test_some_racks_only_matter_to_placement() -> None:
    racks = facts(racks={0: "r", 1: None})
    assert refused(topic(), racks) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused(topic("no good"), racks) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused(topic(rf=3), racks) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert plan_topic(manual({0: [0]}), racks).assignments == {0: (0,)}


@pytest.mark.parametrize(
    ("wanted", "assignments", "configs"),
    [
        (topic(partitions=3, rf=2), {0: (0, 1), 1: (1, 2), 2: (2, 0)}, {}),
        (topic(partitions=-1, rf=-1), {0: (0, 1, 2), 1: (1, 2, 0)}, {}),
        (topic(partitions=-1, rf=1), {0: (0,), 1: (1,)}, {}),
        (manual({1: [2, 0], 0: [0, 1]}), {1: (2, 0), 0: (0, 1)}, {}),
        (manual({0: [99, -5]}), {0: (99, -5)}, {}),
        (manual([(0, [1]), (0, [2])]), {0: (2,)}, {}),
        (manual({0: [], 1: []}), {0: (), 1: ()}, {}),
        (topic(configs=[("a", "1"), ("a", "2"), ("b", "")]), {0: (0,)}, {"a": "2", "b": ""}),
    ],
)
def test_plans(wanted: Any, assignments: dict[int, tuple[int, ...]], configs: dict[str, str]) -> None:
    plan = plan_topic(wanted, facts())
    assert (plan.name, plan.assignments, plan.configs) == ("t", assignments, configs)
    assert plan.replication_factor == len(assignments[0])


def test_placement_rolls_the_dice() -> None:
    rolls = iter([2, 1])
    plan = plan_topic(topic(partitions=4, rf=2), facts(dice=lambda n: next(rolls)))
    assert plan.assignments == place_replicas({0: None, 1: None, 2: None}, 4, 2, 2, 1)


def test_what_the_policy_is_told() -> None:
    told: list[Any] = []
    known = facts(check_policy=lambda *args: told.append(args))
    plan_topic(topic("auto", 2, 1, configs={"a": "1"}), known)
    plan_topic(manual({0: [1, 2]}, name="manual"), known)
    assert told == [("auto", 2, 1, None, {"a": "1"}), ("manual", None, None, {0: (1, 2)}, {})]


@pytest.mark.parametrize(
    ("wanted", "written", "needed"),
    [
        (topic(), True, False),
        (topic(), False, True),
        (topic("a.c"), True, True),
        (topic("a_c"), True, True),
        (topic(configs={"bad": "1"}), True, True),
        (topic("unwelcome"), True, True),
        (manual({0: [0, 0]}), True, True),
    ],
)
def test_topic_names_are_asked_for_only_where_they_decide(wanted: Any, written: bool, needed: bool) -> None:
    known = facts(existing=None)
    if needed:
        with pytest.raises(TopicNamesNeeded):
            plan_topic(wanted, known, written=written)
    else:
        assert plan_topic(wanted, known, written=written).name == wanted.name


@pytest.mark.parametrize("fault", [topic("cached"), topic(partitions=0), topic("no good"), topic("dying"), topic(configs={"a": None})])
def test_topic_names_are_not_asked_for_where_an_earlier_check_fails(fault: Any) -> None:
    assert isinstance(refused(fault, facts(existing=None)), ErrorCode)


def test_topics_of_one_request_collide_with_each_other() -> None:
    known = facts()
    plan_topic(topic("x.y"), known)
    assert refused(topic("x_y"), known) is ErrorCode.INVALID_TOPIC_EXCEPTION
    known = facts()
    plan_topic(topic("x.y"), known, written=False)
    assert plan_topic(topic("x_y"), known, written=False).name == "x_y"


async def test_refused_before_anything_is_known() -> None:
    async def codes(names: list[str]) -> list[int]:
        refusals = await refuse_creations(names, lambda name: not name.startswith("secret"))
        return [0 if refusal is None else refusal.code for refusal in refusals]

    assert await codes(["a", "secret", "b", "b", "secret2", "secret2"]) == [0, 29, 42, 42, 42, 42]
    assert await codes(["__cluster_metadata", "__cluster_metadata", "a"]) == [42, 42, 0]


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a", True), ("A.b_c-9", True), ("x" * 249, True), ("...", True), ("x" * 250, False), ("", False), (".", False), ("..", False)]
    + [(f"a{c}b", False) for c in "/ \n:,äµ\u0660"]
    + [("a\n", False)],
)
def test_names(name: str, valid: bool) -> None:
    assert is_valid_name(name) is valid


@pytest.mark.parametrize(
    ("name", "existing", "other"),
    [
        ("a.b", {"a_b"}, "a_b"),
        ("a_b", {"a.b"}, "a.b"),
        ("a.b_c", {"a_b.c"}, "a_b.c"),
        ("ab", {"a.b"}, None),
        ("a-b", {"a_b"}, None),
        ("a.b", {"a-b", "ab"}, None),
    ],
)
def test_collisions(name: str, existing: set[str], other: str | None) -> None:
    assert TopicNames(existing).colliding(name) == other


# CreatePartitions


def stored(*lists: tuple[int, ...]) -> StoredTopic:
    return StoredTopic(ID, {index: Assignment(replicas) for index, replicas in enumerate(lists)})


BROKERS: dict[int, str | None] = {0: None, 1: None, 2: None}
TWO = stored((1, 2), (2, 0))
MOVING = StoredTopic(ID, {0: Assignment((1, 2)), 1: Assignment((0, 1), adding=(0,))})


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (growth(2), "Topic already has 2 partitions."),
        (growth(1), "Topic currently has 2 partitions, which is higher than the requested 1."),
        (growth(3, [[99, 1]]), "Unknown broker(s) in replica assignment: 99."),
        (growth(4, [[99, 1], [98, 97]]), "Unknown broker(s) in replica assignment: 99, 98, 97."),
        (growth(4, [[1, 2]]), "Increasing the number of partitions by 2 but 1 assignments provided."),
        (growth(-(2**31), [[1, 2]]), "Increasing the number of partitions by 2147483646 but 1 assignments provided."),
        (growth(3, [[1, 1]]), "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 2."),
        (growth(3, [[]]), "Cannot have replication factor of 0 for partition id 2."),
        (
            growth(5, [[1, 2], [1], [0, 1, 2]]),
            "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [3, 4] "
            "have replication factors [1, 3], respectively.",
        ),
    ],
)
def test_a_growth_is_refused_in_the_words_of_kafka(wanted: Any, text: str) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_growth(wanted, TWO, BROKERS)
    assert refusal.value.message == text


@pytest.mark.parametrize(
    ("wanted", "node", "code"),
    [
        (growth(9), MOVING, ErrorCode.REASSIGNMENT_IN_PROGRESS),
        (growth(1), MOVING, ErrorCode.REASSIGNMENT_IN_PROGRESS),
        (growth(3), None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (growth(3), stored(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (growth(2), TWO, ErrorCode.INVALID_PARTITIONS),
        (growth(1), TWO, ErrorCode.INVALID_PARTITIONS),
        (growth(-1), TWO, ErrorCode.INVALID_PARTITIONS),
        (growth(2, []), TWO, ErrorCode.INVALID_PARTITIONS),
        (growth(MAX_PARTITIONS + 1), TWO, ErrorCode.INVALID_PARTITIONS),
        (growth(2**31 - 1), TWO, ErrorCode.INVALID_PARTITIONS),
        (growth(2**31 - 1, [[0, 1]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(3, [[1, 9]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(3, []), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(3, [[0, 1], [1, 2]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(3, [[]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(3, [[1, 1]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(3, [[1]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(4, [[1, 0], [1]]), TWO, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth(2), stored((0, 1, 2, 3)), ErrorCode.INVALID_REPLICATION_FACTOR),
        (growth(2), stored(()), ErrorCode.UNKNOWN_SERVER_ERROR),
        (growth(2), StoredTopic(ID, {1: Assignment((0,))}), ErrorCode.UNKNOWN_SERVER_ERROR),
        (growth(2, [[0]]), StoredTopic(ID, {1: Assignment((0,))}), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_growths_refused(wanted: Any, node: StoredTopic | None, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_growth(wanted, node, BROKERS)
    assert refusal.value.code is code


@pytest.mark.parametrize(
    ("wanted", "node", "added"),
    [
        (growth(3, [[2, 0]]), TWO, {2: (2, 0)}),
        (growth(4, [[2, 0], [0, 2]]), TWO, {2: (2, 0), 3: (0, 2)}),
        (growth(7), stored((0,)), {1: (1,), 2: (2,), 3: (0,), 4: (1,), 5: (2,), 6: (0,)}),
        (growth(3), stored((1, 2)), {1: (2, 1), 2: (0, 2)}),
        (growth(2), stored((5,)), {1: (1,)}),
    ],
)
def test_growths(wanted: Any, node: StoredTopic, added: dict[int, tuple[int, ...]]) -> None:
    plan = plan_growth(wanted, node, BROKERS)
    assert (plan.name, plan.stored, plan.added) == ("t", node, added)


async def test_growths_refused_before_the_topic_is_read() -> None:
    refusals = await refuse_growths(["a", "b", "b", "secret", "dying", "dying"], lambda name: name != "secret", {"dying"}.__contains__)
    codes = {name: None if refusal is None else int(refusal.code) for name, refusal in refusals.items()}
    assert codes == {"a": None, "b": 42, "secret": 29, "dying": 42}
    (alone,) = (await refuse_growths(["dying"], lambda name: True, {"dying"}.__contains__)).values()
    assert alone is not None
    assert alone.code is ErrorCode.INVALID_TOPIC_EXCEPTION


# DeleteTopics

NAMES = {ID: "t", OTHER_ID: "ghost"}


async def judged(*asked: tuple[str | None, bytes], describe: bool = True, delete: bool = True) -> tuple[list[Any], list[str]]:
    deletions = [Deletion(name, topic_id) for name, topic_id in asked]
    wanted = await judge_deletions(deletions, NAMES.get, lambda name: describe, lambda name: delete, {"t", "u"})
    return [(d.name, d.topic_id, int(d.code)) for d in deletions], wanted


@pytest.mark.parametrize(
    ("asked", "rights", "answer", "wanted"),
    [
        (("t", ZERO_UUID), {}, ("t", ZERO_UUID, 0), ["t"]),
        ((None, ID), {}, ("t", ID, 0), ["t"]),
        (("nope", ZERO_UUID), {}, ("nope", ZERO_UUID, 3), []),
        ((None, OTHER_ID), {}, ("ghost", OTHER_ID, 3), []),
        ((None, b"x" * 16), {}, (None, b"x" * 16, 100), []),
        ((None, ZERO_UUID), {}, (None, ZERO_UUID, 29), []),
        ((None, ID), {"describe": False}, (None, ID, 29), []),
        ((None, ID), {"delete": False}, ("t", ID, 29), []),
        ((None, b"x" * 16), {"describe": False, "delete": False}, (None, b"x" * 16, 100), []),
        (("t", ZERO_UUID), {"describe": False}, ("t", ZERO_UUID, 0), ["t"]),
        (("t", ZERO_UUID), {"delete": False}, ("t", ZERO_UUID, 29), []),
        (("nope", ZERO_UUID), {"delete": False}, ("nope", ZERO_UUID, 29), []),
    ],
)
async def test_one_deletion(asked: Any, rights: dict[str, bool], answer: Any, wanted: list[str]) -> None:
    assert await judged(asked, **rights) == ([answer], wanted)


async def test_name_and_id_for_one_refuse_all() -> None:
    asked = [("t", ZERO_UUID), ("u", ID), (None, ID), (None, ZERO_UUID)]
    assert await judged(*asked) == ([(name, topic_id, 42) for name, topic_id in asked], [])


async def test_an_answer_for_each_element_of_the_same_topic() -> None:
    """The first one carries what became of it; unknown ones are unknown each time."""
    asked = ("t", ZERO_UUID), ("t", ZERO_UUID), (None, ID), ("u", ZERO_UUID), ("no", ZERO_UUID), ("no", ZERO_UUID)
    deletions = [Deletion(name, topic_id) for name, topic_id in asked]
    assert await judge_deletions(deletions, NAMES.get, lambda name: True, lambda name: True, {"t", "u"}) == ["t", "u"]
    await settle_deletions(deletions, {"t": ErrorCode.REQUEST_TIMED_OUT, "u": ErrorCode.NONE})
    assert [int(d.code) for d in deletions] == [7, 0, 0, 0, 3, 3]
