"""Which offsets a reset gives, and how its times and topics are read. Pure."""

from __future__ import annotations

import click
import pytest

from klamm.admin import CommittedOffset, GroupDescription, GroupState, LogOffset, MemberDescription, TopicPartition
from klamm.cli.groups.group_descriptions import member_row, offset_rows
from klamm.cli.groups.new_offsets import Logs, Target, duration_ms, new_offsets, specs, time_ms
from klamm.cli.tools.chosen_topics import TOPIC, ChosenTopic

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
LOGS = Logs({A: LogOffset(10), B: LogOffset(0)}, {A: LogOffset(20), B: LogOffset(5)}, {A: LogOffset(12, 99), B: LogOffset(-1)})
COMMITTED = {A: CommittedOffset(15), B: None}
ASSIGNED = bytes.fromhex("0000 00000001 0001 61 00000002 00000003 00000000 00000000")


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (Target("to-earliest"), (10, 0)),
        (Target("to-latest"), (20, 5)),
        (Target("to-current"), (15, 5)),
        (Target("to-offset", 12), (12, 5)),
        (Target("to-offset", -7), (10, 0)),
        (Target("to-offset", 2**62), (20, 5)),
        (Target("to-datetime", 50), (12, 5)),
        (Target("by-duration", 50), (12, 5)),
    ],
    ids=str,
)
def test_a_new_offset_is_in_the_log(target: Target, offsets: tuple[int, int]) -> None:
    assert new_offsets(target, [A, B], COMMITTED, LOGS) == {A: offsets[0], B: offsets[1]}


@pytest.mark.parametrize(("shift", "offset"), [(0, 15), (3, 18), (-3, 12), (6, 20), (-6, 10)])
def test_an_offset_is_shifted_within_the_log(shift: int, offset: int) -> None:
    assert new_offsets(Target("shift-by", shift), [A], COMMITTED, LOGS) == {A: offset}


def test_an_offset_that_does_not_exist_cannot_be_shifted() -> None:
    with pytest.raises(ValueError, match="b-1"):
        new_offsets(Target("shift-by", 1), [B], COMMITTED, LOGS)


def test_only_times_have_to_be_looked_up() -> None:
    assert specs(Target("to-datetime", 50), [A]) == specs(Target("by-duration", 50), [A]) == {A: 50}
    assert specs(Target("by-duration", -1), [A]) == {A: 0}
    assert specs(Target("to-offset", 50), [A]) == {}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T02:00:00.000+02:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str, ms: int) -> None:
    assert time_ms(text) == ms


@pytest.mark.parametrize("text", ["", "now", "1970-13-01T00:00:00"])
def test_other_texts_are_not_times(text: str) -> None:
    with pytest.raises(ValueError):
        time_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("P1DT1H1M1.25S", 90_061_250), ("PT0S", 0), ("-PT1S", -1000), ("PT1.5S", 1500)],
)
def test_a_duration_has_days_hours_minutes_and_seconds(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1Y", "PT1", "P1.5D"])
def test_other_texts_are_not_durations(text: str) -> None:
    with pytest.raises(ValueError):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "topic"),
    [("orders", ChosenTopic("orders", None)), ("orders:0", ChosenTopic("orders", (0,))), ("a.b:2,0,2", ChosenTopic("a.b", (2, 0)))],
)
def test_a_topic_may_name_partitions(text: str, topic: ChosenTopic) -> None:
    assert TOPIC.convert(text, None, None) == topic


@pytest.mark.parametrize("text", ["", "orders:", "orders:x", ":1", "orders:1,", "orders:-1", "orders:1234567890"])
def test_other_texts_are_not_topics(text: str) -> None:
    with pytest.raises(click.BadParameter):
        TOPIC.convert(text, None, None)


def test_the_rows_of_a_group_have_its_offsets_and_its_members() -> None:
    one = MemberDescription("m-1", "i-1", "c", "/h", b"", ASSIGNED)
    idle = MemberDescription("m-2", None, "c", "/h", b"", b"")
    group = GroupDescription("g", GroupState.STABLE, "consumer", "range", (idle, one), 1)
    zero, three = TopicPartition("a", 0), TopicPartition("a", 3)
    committed = {zero: CommittedOffset(4), B: CommittedOffset(9)}
    assert offset_rows(group, committed, {zero: LogOffset(10), three: LogOffset(7)}) == [
        ("g", "a", 0, 4, 10, 6, "m-1", "/h", "c"),
        ("g", "a", 3, None, 7, None, "m-1", "/h", "c"),
        ("g", "b", 1, 9, None, None, None, None, None),
        ("g", None, None, None, None, None, "m-2", "/h", "c"),
    ]
    assert [member_row(group, member) for member in group.members] == [
        ("g", "m-2", None, "/h", "c", 0, None), ("g", "m-1", "i-1", "/h", "c", 2, "a(0,3)"),
    ]
