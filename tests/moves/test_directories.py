"""Logs change their directory while their partition is reassigned: the new replica's, and the one that is removed in the middle of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.members import Members, grave
from klamm.tests.harness.waits import wait_for
from klamm.tests.moves.moving import folders, records_on_disk
from klamm.tests.moves.throttled import SETTINGS, TOPIC, UNLIMITED, Throttled

SOURCE, TARGET = 1, 2
NAMES = ("a", "b")
SIZE = 2 << 20
SLOW = 400_000
"""Bytes per second: both moves take several seconds."""


def where(members: Members, broker_id: int) -> list[str]:
    """The directories in which a broker has a log of the partition, or the copy that is to replace it."""
    return [name for name in NAMES if folders([members.brokers[broker_id].folder / name], TOPIC)]


def to_other_directory(members: Members, broker_id: int) -> str:
    """Begin to move the log to the directory in which it is not; that directory."""
    (home,) = where(members, broker_id)
    (other,) = set(NAMES) - {home}
    kind = messages.AlterReplicaLogDirsRequest
    path = str(members.brokers[broker_id].folder / other)
    topic = kind.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    answer = members.ask(kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=[topic])]), 2, broker_id)
    assert answer.results[0].partitions[0].error_code == 0, answer
    return other


@pytest.mark.slow
def test_new_replica_moves_to_the_other_directory_and_the_removed_one_leaves_nothing_in_both(new_members: Callable[..., Members]) -> None:
    members = new_members(SETTINGS, NAMES)
    members.klamm(SOURCE, TARGET)
    story = Throttled(members, SOURCE, TARGET, SIZE)
    moving = story.moving
    moving.clients(batch=2)
    try:
        moving.clients_go_on()
        rate = {"replica.alter.log.dirs.io.max.bytes.per.second": str(SLOW // 4)}
        (answer,) = members.ask(requests.set_configs(requests.BROKER, str(SOURCE), rate), 1, SOURCE).responses
        assert answer.error_code == 0, answer
        story.throttle(SLOW)
        story.move()
        wait_for(lambda: story.size(TARGET) > SLOW // 2, "some of it is there")
        to_other_directory(members, SOURCE)
        wanted = to_other_directory(members, TARGET)
        wait_for(lambda: where(members, SOURCE) == list(NAMES), "the old replica is in both")
        assert moving.moving().keys() == {0}
        story.throttle(UNLIMITED)
        moving.moved({0: [TARGET]})
        wait_for(lambda: where(members, TARGET) == [wanted], "the new replica is where it was told to be")
        wait_for(lambda: where(members, SOURCE) == [], "nothing is left of the old one")
        moving.clients_go_on()
        moving.judged()
    finally:
        moving.close()
    members.brokers[TARGET].stop()
    assert len(records_on_disk(members.brokers[TARGET].folder / wanted, TOPIC, 0)) > SIZE
    assert grave(members, SOURCE, TARGET) == []
