"""A controller process is killed (kill -9) right before and right after each of its writes, another one takes over; and a real controller
takes over between two of Klamm's. No throttle of a request is left, none that a person has set goes, no reassignment is lost.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.mixed.write_gate import WriteGate
from klamm.tests.moves import throttled
from klamm.tests.moves.moving import Moving

pytestmark = [pytest.mark.slow]

REMOVALS = ("/admin/throttled_replicas_removal", "/admin/throttled_rates_removal")
MOVED = "/admin/reassign_partitions"
MOVE_CREATED = re.compile(rb"\0\0\0\x01\0\xff{4}....[^\0]*/admin/reassign_partitions", re.DOTALL)
"""Its creation in a multi; before it there is an attempt to set its data, which fails."""

RATE = 50_000_000


@pytest.fixture
def gate(zookeeper: str) -> Iterator[WriteGate]:
    one = WriteGate(int(zookeeper.rsplit(":", 1)[1]))
    yield one
    one.close()


def reassign(topic: str, brokers: list[int], rate: int) -> Any:
    request = messages.ReassignPartitionsRequest
    partition = request.Partition(partition_id=0, brokers=brokers)
    return request(topics=[request.Topic(name=topic, partitions=[partition])], throttle=rate, remove_throttle=True)


def alter_reassignments(topic: str, brokers: list[int]) -> Any:
    request = messages.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=brokers)
    return request(timeout_ms=10_000, topics=[request.ReassignableTopic(name=topic, partitions=[partition])])


def alter_rates(topic: str) -> Any:
    request = messages.AlterInterbrokerThrottledRatesRequest
    rates = [request.BrokerRate(broker_id=b, leader_rate=RATE, follower_rate=RATE) for b in (1, 2)]
    return request(brokers=rates, remove_throttle=True)


def alter_replicas(topic: str) -> Any:
    request = messages.AlterInterbrokerThrottledReplicasRequest
    partition = request.Partition(partition_id=0, leaders=[1], followers=[2])
    return request(topics=[request.Topic(name=topic, partitions=[partition])], remove_throttle=True)


LEAST_WRITES = {"45": 3, "1790": 6, "1791": 3, "1792": 3}
APIS: dict[str, tuple[int, Callable[[str], Any]]] = {
    "45": (0, lambda topic: alter_reassignments(topic, [2])),
    "1790": (0, lambda topic: reassign(topic, [2], RATE)),
    "1791": (0, alter_rates),
    "1792": (1, alter_replicas),
}


def throttles(tree: Tree) -> set[str]:
    """Topics and brokers with a throttle."""
    found = set()
    for kind in ("topics", "brokers"):
        for name in tree.children(f"/config/{kind}"):
            config = tree.json(f"/config/{kind}/{name}")["config"]
            if any(".replication.throttled." in key for key in config):
                found.add(f"{kind}/{name}")
    return found


def is_over(tree: Tree, topic: str) -> bool:
    """Nothing is reassigned, and nothing waits to be removed."""
    stored = tree.json(f"/brokers/topics/{topic}")
    moving = any(stored["adding_replicas"].values()) or any(stored["removing_replicas"].values())
    return not moving and all(tree.exists(path) is None for path in (MOVED, *REMOVALS))


@pytest.mark.requirement("R179-8", "R179-24", "R179-25")
@pytest.mark.parametrize("api", APIS)
def test_after_a_kill_at_any_write_no_throttle_is_left_and_no_reassignment_lost(
    new_members: Callable[..., Members], gate: WriteGate, zookeeper: str, api: str
) -> None:
    members = new_members(lambda _: {"auto_leader_rebalance_enable": "false", "zookeeper_session_timeout_ms": 6000})
    tree = members.tree
    hosts = tree.hosts.replace(zookeeper, f"127.0.0.1:{gate.port}", 1)
    members.settings_of = lambda broker_id, given=members.settings_of: (  # type: ignore[misc]
        given(broker_id) | ({"zookeeper_connect": hosts} if broker_id == 0 else {})
    )
    members.klamm(0, 1, 2)
    members.create("hand", [[1]], {"leader.replication.throttled.replicas": "0:1"})
    gate.kill = members.brokers[0].kill
    at = 0
    while all(_killed(members, gate, api, at + 1, after) for after in (False, True)):
        at += 1
    print(f"\n{api}: kills tried {2 * at}, right {2 * at}")
    assert at >= LEAST_WRITES[api]


def _killed(members: Members, gate: WriteGate, api: str, at: int, after: bool) -> bool:
    """Kill at one write, look at what comes of it; False where the request was over before that."""
    tree, what = members.tree, f"{api}, {'after' if after else 'before'} write {at}"
    if tree.controller() != 0:
        members.office(0)
    topic = f"moved-{api}-{at}-{after}"
    members.create(topic, [[1]])
    members.governs()
    gate.arm(at, after=after)
    version, make = APIS[api]
    sending = threading.Thread(target=_send, args=(members, make(topic), version))
    sending.start()
    wait_for(lambda: gate.struck or (not sending.is_alive() and _quiet(tree, topic, api)), f"{what}: it is over")
    sending.join()
    struck, written = gate.struck, b"".join(gate.written)
    gate.arm(0, after=False)
    if not struck:
        return False
    wait_for(lambda: not members.brokers[0].alive(), f"{what}: killed")
    gate.end_session()
    wait_for(lambda: tree.controller() in (1, 2), "another controller")
    wait_for(lambda: is_over(tree, topic), f"{what}: nothing is left")
    members.governs()
    assert throttles(tree) == {"topics/hand"}, what
    moved = {"45": topic.encode() in written, "1790": MOVE_CREATED.search(written) is not None}.get(api, False)
    assert tree.assignment(topic)[0] == [2 if moved else 1], what
    members.start(0)
    return True


def _quiet(tree: Tree, topic: str, api: str) -> bool:
    """Without a kill: 1791 and 1792 leave their throttles, a move comes to its end."""
    return api in ("1791", "1792") or is_over(tree, topic)


def _send(members: Members, message: Any, version: int) -> None:
    try:
        members.ask(message, version, 0)
    except (OSError, EOFError):
        pass  # it was killed


@pytest.mark.reference
@pytest.mark.requirement("R179-25")
def test_a_real_controller_in_between_leaves_throttles_and_the_next_controller_of_klamm_removes_them(
    new_members: Callable[..., Members],
) -> None:
    members = new_members(lambda _: throttled.SETTINGS)
    members.klamm(0, 1)
    members.kafka(2)
    tree = members.tree
    members.create("hand", [[1]], {"leader.replication.throttled.replicas": "0:1"})
    members.create("moved", [[1]])
    Moving(members, "moved", 1).fill(6 << 20)
    if tree.controller() != 0:
        members.office(0)
    (answer,) = members.ask(reassign("moved", [2], 600_000), 0, 0).topics
    assert answer.partitions[0].error_code == 0, answer
    wait_for(lambda: tree.json("/brokers/topics/moved")["adding_replicas"] == {"0": [2]}, "it moves")
    members.office(2)
    assert tree.json("/brokers/topics/moved")["adding_replicas"] == {"0": [2]}, "the real controller takes it over under way"
    wait_for(lambda: tree.assignment("moved")[0] == [2] and tree.exists(MOVED) is None, "the real controller completes it", 60)
    assert throttles(tree) == {"topics/hand", "topics/moved", "brokers/1", "brokers/2"}, "a real controller knows nothing of them"
    assert all(tree.exists(path) for path in REMOVALS)
    members.office(0)
    wait_for(lambda: is_over(tree, "moved"), "nothing is left")
    assert throttles(tree) == {"topics/hand"}
    assert tree.state("moved").leader == 2  # type: ignore[union-attr]
