"""All brokers are restarted, one after the other, under groups of six consumers of several libraries: no record and no commit is lost.

`GROUPS_COORDINATED_BY=kafka pytest tests/groups/test_rolling_restart.py` runs the same against brokers of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.groups.brokers import BROKERS, close, make_members
from klamm.tests.groups.consumers import OFFSETS_TOPIC, ConsumerGroup
from klamm.tests.harness.members import Members

pytestmark = pytest.mark.slow

CONFLUENT, PYTHON, AIO, JS = "confluent", "kafka-python", "aiokafka", "kafkajs"
KINDS = {
    "eager": ("range", [CONFLUENT, CONFLUENT, PYTHON, PYTHON, AIO, JS]),
    "cooperative": ("cooperative-sticky", [CONFLUENT, CONFLUENT, CONFLUENT, PYTHON, PYTHON, PYTHON]),
    "static": ("range", [CONFLUENT, CONFLUENT, PYTHON, PYTHON, AIO, AIO]),
}
"""Strategy and libraries of the members. Only two libraries have a cooperative strategy, and kafkajs has no static members."""


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Members]:
    made = make_members(zookeeper, chroot, tmp_path)
    yield made
    close(made)


@pytest.mark.parametrize("kind", KINDS)
def test_six_consumers_lose_nothing_while_every_broker_is_restarted_and_the_controller_moves(members: Members, kind: str) -> None:
    strategy, libraries = KINDS[kind]
    with ConsumerGroup(members, kind, 12, f"{kind}-readers") as group:
        started = [
            group.start(
                library=library, strategy=strategy, session_ms=15_000, instance=f"member-{number}" if kind == "static" else None
            )
            for number, library in enumerate(libraries)
        ]
        group.shared(*started)
        ids = {each.member_id for each in group.describe().members}
        with group.writing():
            for broker_id in BROKERS:
                controller = members.controller().id
                members.brokers[broker_id].stop()
                (other, *_) = [each.id for each in members.running() if each.id != controller]
                members.office(other)
                group.goes_on()
                members.start(broker_id)
                members.in_sync([OFFSETS_TOPIC, group.topic])
                group.goes_on()
        group.reads(group.written)
        group.shared(*started)
        group.reads(group.write())
        group.all_is_committed()
        if kind == "static":
            assert {each.member_id for each in group.describe().members} == ids, "no static member had to join again"
