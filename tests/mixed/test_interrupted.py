"""Klamm loses the controller's office in the middle of its work, by deletion of `/controller` and by kill -9; the next one finishes it.

Topics are asked for and asked to be deleted by znodes, as old tools do, and a moment later the office is gone. In the end everything asked
for has happened, on every member and on disk, and no node is left that should not be. Only Klamm is interrupted: a real broker may fail
for good when it is.
"""

from __future__ import annotations

import random
import time
from functools import partial

import pytest

from klamm.tests.harness.kafka import OwnedBroker, wait_for
from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed.kafka_errors import unusual

pytestmark = [pytest.mark.slow, pytest.mark.reference]

ROUNDS = 14
KILLS = (4, 9)


def logs(members: Members) -> dict[int, set[str]]:
    """Topics of which real brokers have logs."""
    folders = {broker.id: (broker.folder / "data").iterdir() for broker in members.real()}
    return {broker_id: {f.name.rpartition("-")[0] for f in found if f.is_dir()} for broker_id, found in folders.items()}


def knows_exactly(members: Members, wanted: set[str], broker: OwnedBroker) -> bool:
    """Whether a member's Metadata shows these topics, no others, and each with its three partitions and their leaders."""
    shown = {name: leaders for name, leaders in members.topics(broker).items() if leaders}
    return set(shown) == wanted and all(len(leaders) == 3 and -1 not in leaders for leaders in shown.values())


def test_what_klamm_began_the_next_controller_finishes(members: Members) -> None:
    chance = random.Random(20)
    tree, alive = members.tree, {0, 1, 2}
    members.klamm(0)
    members.kafka(1, 2)
    wanted: set[str] = set()
    for number in range(ROUNDS):
        for one in range(6):
            order = [1, 2] if chance.random() < 0.5 else [2, 1]
            tree.put_topic(f"t-{number}-{one}", {0: order, 1: order[::-1], 2: order})
        doomed = chance.sample(sorted(wanted), min(len(wanted), 4))
        for name in doomed:
            tree.put(f"/admin/delete_topics/{name}", b"")
        wanted = (wanted - set(doomed)) | {f"t-{number}-{one}" for one in range(6)}
        time.sleep(chance.random() * 0.03)
        if number in KILLS:
            members.brokers[0].kill()
            alive.discard(0)
        else:
            tree.delete("/controller")
        wait_for(lambda: tree.controller() in alive, "a controller")
        if number in KILLS:
            members.start(0)
            alive.add(0)
        for broker in members.running():
            wait_for(partial(knows_exactly, members, wanted, broker), f"round {number}: broker {broker.id} knows what is left")
        wait_for(lambda: tree.children("/admin/delete_topics") == [], f"round {number}: nothing waits to be deleted")
        members.in_sync(sorted(wanted))
        members.governs()
        if tree.controller() != 0:
            members.office(0)
    assert set(tree.children("/brokers/topics")) == wanted
    assert set(tree.children("/config/topics")) <= wanted
    wait_for(lambda: all(names == wanted for names in logs(members).values()), "the logs are those of the topics")
    assert unusual(members.real()) == []
    stale = "STALE_CONTROLLER_EPOCH"  # the answer to what was sent before the office was gone
    assert [line for line in grave(members, 0) if stale not in line] == []
