"""What `--progress`, `--progress --watch` and `--list` show: on a narrow terminal, and as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from typing import Any, cast

import pytest
from rich.console import Console as Terminal

from klamm.cli.reassign_partitions import watch
from klamm.cli.reassign_partitions.actions import Console, show_list
from klamm.cli.reassign_partitions.cluster import BrokerReplicas, Cluster, HostedReplica, TopicView
from klamm.cli.reassign_partitions.progress import Look, Row, Speed, summary
from klamm.cli.tools.files import Move
from klamm.controller.values import Assignment
from klamm.protocol.nouns import TopicPartition

T0 = TopicPartition("t", 0)
MOVES = {T0: Move((2,), ("any",))}


class Moving:
    """A cluster in which the replica of t-0 on broker 2 is 5 messages behind at the first look, and in sync from the second on."""

    def __init__(self) -> None:
        self._looks = 0

    async def brokers(self) -> dict[int, str | None]:
        return {1: None, 2: None}

    async def topics(self, names: Collection[str]) -> dict[str, TopicView]:
        return {"t": TopicView({0: (2, 1)}, {0: (1,) if self._looks < 2 else (1, 2)}, {0: 1})}

    async def reassignments(self) -> dict[TopicPartition, Assignment]:
        self._looks += 1
        return {T0: Assignment((2, 1), (2,), (1,))} if self._looks < 2 else {}

    async def replicas_of(self, brokers: Collection[int]) -> dict[int, BrokerReplicas]:
        behind = self._looks < 2
        held = {1: HostedReplica("/d", 100, 0), 2: HostedReplica("/d", 40 if behind else 100, 5 if behind else 0)}
        return {broker: BrokerReplicas({T0: held[broker]}) for broker in brokers}


def moving() -> Cluster:
    return cast("Cluster", Moving())


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.console = Console(self.lines.append, self.lines.append)

    @property
    def values(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_narrow_terminal_shows_the_bar_and_all_numbers(width: int) -> None:
    look = Look(tuple(Row(TopicPartition("orders", n), 3, "Behind: 1302 messages behind") for n in range(4)), 29_500_000, 60_100_000, 4)
    speed = Speed()
    speed.saw(0, 0)
    speed.saw(10, 29_500_000)
    shown = io.StringIO()
    terminal = Terminal(file=shown, width=width, height=24, force_terminal=True, color_system=None)
    terminal.print(watch._drawn(look, speed, terminal))
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines)
    bar = next(number for number, line in enumerate(lines) if "━" in line)
    assert set(lines[bar]) <= set("━╸") and " ".join(lines[bar + 1 :]) == summary(look, speed)


async def test_progress_as_json_is_one_line() -> None:
    said = Said()
    await watch.show_once(moving(), MOVES, said.console, as_json=True)
    (line,) = said.values
    (row,) = line["replicas"]
    assert (row["topic"], row["partition"], row["broker"]) == ("t", 0, 2) and isinstance(row["status"], str)


async def test_a_watch_as_json_is_one_line_for_each_change() -> None:
    said = Said()
    await watch.watch(moving(), MOVES, said.console, as_json=True, interval_s=0)
    assert [(line["bytes"], line["bytes_in_all"], line["partitions_in_progress"]) for line in said.values] == [(40, 100, 1), (100, 100, 0)]
    assert [line["replicas"][0]["in_sync"] for line in said.values] == [False, True]


async def test_a_watch_says_no_line_twice_when_the_reassignment_ends_after_its_replicas_are_in_sync() -> None:
    class Ending(Moving):
        async def reassignments(self) -> dict[TopicPartition, Assignment]:
            self._looks += 1
            return {T0: Assignment((2, 1), (2,), (1,))} if self._looks < 4 else {}

    said = Said()
    await watch.watch(cast("Cluster", Ending()), MOVES, said.console, interval_s=0)
    lines = [line for line in "\n".join(said.lines).splitlines() if "replicas in sync" in line]
    assert [line.split(",")[0] for line in lines] == ["0 of 1 replicas in sync", "1 of 1 replicas in sync"]


async def test_the_list_as_json_has_all_reassignments() -> None:
    said = Said()
    await show_list(moving(), said.console, as_json=True)
    assert said.values == [{"reassignments": [{"topic": "t", "partition": 0, "replicas": [2, 1], "adding": [2], "removing": [1]}]}]
