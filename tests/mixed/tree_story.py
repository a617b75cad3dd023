"""A story in which every election's winner is settled, so that ZooKeeper's content after each step can be compared between two tellings.

Broker 0 holds no data, 1 and 2 do. The office is moved by freezing all but the one who is to have it. Sessions of 0 and 2 are short: they
are the ones that are killed as controllers, while 1, whose session is long, is kept out of the way.

`Dump` is what a step leaves: for every znode its data, the number of writes to it and to its list of children, whether it is ephemeral,
and its ACL. What cannot be the same twice is masked: times, ids that are drawn, ports. Bytes are compared as they stand, with the order of
their keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.record_clients import produce

SESSION_MS = {0: 6000, 1: 30000, 2: 6000}
Dump = dict[str, str]


def settings_of(broker_id: int) -> dict[str, Any]:
    return {"zookeeper_session_timeout_ms": SESSION_MS[broker_id]}


class TreeStory:
    """One telling; broker 0 runs already and is controller."""

    def __init__(self, members: Members) -> None:
        self.members, self.tree = members, members.tree
        self.dumps: dict[str, Dump] = {}

    def tell(self) -> dict[str, Dump]:
        """All steps; what each of them left."""
        steps: list[Callable[[], None]] = [
            self.beginning,
            self.topics,
            self.office_of_another,
            self.controlled_shutdown,
            self.leading_controller_killed,
            self.election_by_node,
            self.dataless_controller_killed,
            self.deletion_handed_to_zero,
            self.deletion_handed_to_another,
            self.unclean_election,
            self.topic_of_an_old_tool,
            self.handed_over_again_and_again,
        ]
        for step in steps:
            step()
            self.members.settled()
            self.dumps[step.__name__] = self.dump()
        return self.dumps

    # steps

    def beginning(self) -> None:
        self.members.start(1)
        self.members.start(2)

    def topics(self) -> None:
        self.members.create("a", [[1, 2], [2, 1], [1, 2]])
        self.members.create("b", [[2, 1]], {"retention.ms": "100000", "cleanup.policy": "compact,delete"})
        self.members.create("c", [[1, 2], [2, 1]])
        self.members.create("single", [[1]])
        self.write("a")

    def office_of_another(self) -> None:
        self.office(1)
        self.members.grow("a", 5, [[2, 1], [1, 2]])
        self.members.alter_config("a", retention_ms="200000")
        self.members.alter_config("b", segment_bytes="1048576")

    def controlled_shutdown(self) -> None:
        self.office(0)
        self.members.brokers[2].stop()
        self.write("a")
        self.returns(2)
        self.prefer()

    def leading_controller_killed(self) -> None:
        """The new controller finds partitions that the dead one led."""
        self.office(2)
        self.killed_for(2, 0)
        self.members.becomes("a", 1, lambda s: s.leader == 1, "led by 1")
        self.returns(2)

    def election_by_node(self) -> None:
        listed = [{"topic": t, "partition": p} for t in ("a", "b", "c") for p in self.tree.assignment(t)]
        self.tree.put("/admin/preferred_replica_election", {"version": 1, "partitions": listed})
        wait_for(lambda: self.tree.exists("/admin/preferred_replica_election") is None, "the election is held")
        self.preferred()

    def dataless_controller_killed(self) -> None:
        self.killed_for(0, 2)
        self.members.start(0)

    def deletion_handed_to_zero(self) -> None:
        """A deletion that waits for a broker is finished by the next controller."""
        self.members.brokers[1].stop()
        self.members.becomes("single", 0, lambda s: s.leader == -1, "leaderless")
        self.deletion_handed("c", to=0, alive=2, down=1)

    def deletion_handed_to_another(self) -> None:
        self.members.brokers[2].stop()
        self.deletion_handed("b", to=1, alive=1, down=2)

    def unclean_election(self) -> None:
        self.office(0)
        self.members.create("u", [[2, 1]])
        self.members.brokers[1].stop()
        self.members.becomes("u", 0, lambda s: s.isr == [2], "without 1")
        self.write("u")
        self.members.brokers[2].stop()
        self.members.becomes("u", 0, lambda s: s.leader == -1, "leaderless")
        self.members.start(1)
        assert self.members.elect("u", unclean=True) == 0
        assert self.members.state("u").recovery == 1
        self.returns(2)
        self.prefer()

    def topic_of_an_old_tool(self) -> None:
        """No topic id, no config node; then a request to delete it, by node as well."""
        self.tree.put_topic("old", {0: [1, 2], 1: [2, 1]})
        self.members.in_sync(["old"])
        wait_for(lambda: self.tree.topic_id("old"), "an id for the topic")
        self.members.shown("old", 1, lambda leader: leader == 2)
        self.tree.put("/admin/delete_topics/old", b"")
        self.members.deleted("old")

    def handed_over_again_and_again(self) -> None:
        for to in (1, 0, 2, 0, 1, 2, 0):
            self.office(to)
        self.members.create("last", [[1, 2], [2, 1]])
        self.write("last")

    # parts of steps

    def write(self, topic: str) -> None:
        produce(self.members.bootstrap(1, 2), topic, map(str, range(50)), idempotent=False)

    def office(self, to: int) -> None:
        self.members.office(to)

    def killed_for(self, killed: int, to: int) -> None:
        """Kill the controller; `to` is the next, 1 is frozen until then."""
        assert self.tree.controller() == killed
        self.members.brokers[killed].kill()
        self.members.brokers[1].freeze()
        try:
            wait_for(lambda: self.tree.controller() == to, f"{to} controller")
        finally:
            self.members.brokers[1].thaw()
        self.members.governs()

    def returns(self, broker_id: int, without: str | None = None) -> None:
        self.members.start(broker_id)
        self.members.in_sync([t for t in self.tree.children("/brokers/topics") if t != without])

    def deletion_waits(self, topic: str, alive: int) -> None:
        """Ask for a deletion that one broker can carry out and the other cannot; returns when there is nothing more to do."""
        logs = [self.members.brokers[alive].folder / "data" / f"{topic}-{partition}" for partition in self.tree.assignment(topic)]
        self.members.delete(topic)
        wait_for(lambda: not any(log.exists() for log in logs), f"the logs on {alive} are gone")
        self.members.governs()

    def deletion_handed(self, topic: str, to: int, alive: int, down: int) -> None:
        """A deletion waits for the broker that is down, the office moves, the broker returns and the deletion is finished."""
        self.deletion_waits(topic, alive)
        self.office(to)
        assert self.tree.children("/admin/delete_topics") == [topic]
        self.returns(down, without=topic)
        self.members.deleted(topic)
        self.prefer()

    def prefer(self) -> None:
        """Preferred election of every partition."""
        for topic in self.tree.children("/brokers/topics"):
            for partition in sorted(self.tree.assignment(topic)):
                assert self.members.elect(topic, partition) in (0, 84)
        self.preferred()

    def preferred(self) -> None:
        for topic in self.tree.children("/brokers/topics"):
            for partition, replicas in self.tree.assignment(topic).items():
                self.members.led_by(topic, partition, replicas[0])

    # what it left

    def dump(self) -> Dump:
        """Every node below the chroot, masked."""
        ports = {str(broker.port): f"PORT-{broker.id}" for broker in self.members.brokers.values()}
        found: Dump = {}
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            try:
                data, stat = self.tree.client.get(path)
                acl = self.tree.client.get_acls(path)[0]
            except NoNodeError:
                continue
            waiting += [f"{path.rstrip('/')}/{child}" for child in self.tree.client.get_children(path)]
            text = "null" if data is None else data.decode()
            if path == "/cluster/id":
                text = json.dumps({**json.loads(text), "id": "CLUSTER"})
            text = re.sub(r'"timestamp":"\d+"', '"timestamp":"T"', text)
            text = re.sub(r'"topic_id":"[\w-]{22}"', '"topic_id":"ID"', text)
            text = re.sub(r"\d{4,5}", lambda match: ports.get(match[0], match[0]), text)
            kind = "ephemeral" if stat.ephemeralOwner else "persistent"
            rights = ",".join(f"{a.id.scheme}:{a.id.id}:{a.perms}" for a in acl)
            found[path] = f"{text} | version {stat.version} children {stat.cversion} | {kind} {rights}"
        return found


def differences(kafka: Dump, ours: Dump) -> list[str]:
    """Node by node: what a real controller left, what was left here."""
    return [
        f"{path}: real {kafka.get(path)!r}, here {ours.get(path)!r}"
        for path in sorted({*kafka, *ours})
        if kafka.get(path) != ours.get(path)
    ]
