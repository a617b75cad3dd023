"""The story of a cluster whose controller holds no data: broker 0 controls, the others carry records while they stop, die, freeze, return.

It is told of Klamm as broker 0 and, to know which errors are usual, of a real one. Clients come in by a listener that broker 0 does not
have, as in an installation with dedicated controllers: whoever sees a broker may ask it for anything that any broker can do, and Klamm
serves neither groups nor producer ids. Brokers and administrators use the other. Every step waits for what it must bring.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.record_clients import produce, read_all, read_by_group
from klamm.tests.reference.tools import Tools

LISTENERS: dict[str, Any] = {
    "listener_security_protocol_map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
SOON: dict[str, Any] = {"replica_lag_time_max_ms": 2000, "replica_high_watermark_checkpoint_interval_ms": 1000}
"""A follower that is silent for two seconds leaves the ISR; a log folder that is gone is noticed at the next checkpoint."""


def settings_of(broker_id: int) -> dict[str, Any]:
    """Settings of the members; all but broker 0 have a listener for clients."""
    return {**dedicated(broker_id), **SOON}


def dedicated(broker_id: int) -> dict[str, Any]:
    """Listeners of a cluster in which broker 0 is for brokers and administrators only."""
    ours = f"INTERNAL://127.0.0.1:{free_port()}"
    return {**LISTENERS, "listeners": f"{ours},CLIENT://127.0.0.1:{free_port()}" if broker_id else ours}


class DataStory:
    """One telling. `data` are the ids of the brokers that carry records, two at least; the members run already."""

    def __init__(self, members: Members, data: Sequence[int]) -> None:
        self.members, self.data = members, list(data)
        self.clients = ",".join(members.brokers[i].address("CLIENT") for i in data)
        self.tools = Tools(members.jars, members.folder, members.bootstrap(0))
        self.data_tools = Tools(members.jars, members.folder, self.clients)
        self.written: dict[str, int] = {}

    def tell(self) -> None:
        self.created()
        self.written_and_read()
        self.stopped()
        self.killed()
        self.frozen()
        self.unclean()
        self.grown()
        self.deleted()
        self.deleted_while_a_replica_is_down()
        self.log_folder_lost()

    def rotated(self, by: int) -> list[int]:
        return self.data[by:] + self.data[:by]

    def write(self, prefix: str, count: int = 100, topic: str = "orders") -> None:
        texts = [f"{prefix}-{n}" for n in range(count)]
        produce(self.clients, topic, texts)
        if topic == "orders":
            self.written.update(dict.fromkeys(texts, 1))

    def read(self) -> None:
        found = read_all(self.clients, "orders")
        assert found == self.written, {"lost": set(self.written) - set(found), "more": found - Counter(self.written)}

    def created(self) -> None:
        placement = ",".join(":".join(map(str, self.rotated(p))) for p in range(len(self.data)))
        configs = ["--config", f"min.insync.replicas={len(self.data) - 1}"]
        said = self.tools.succeed("kafka-topics", "--create", "--topic", "orders", "--replica-assignment", placement, *configs)
        assert said == "Created topic orders.\n"
        self.members.create("__consumer_offsets", [self.data, self.rotated(1)], {"cleanup.policy": "compact"})
        self.members.create("pair", [self.data[:2]])
        self.members.create("doomed", [self.data, self.rotated(1)])

    def written_and_read(self) -> None:
        lines = [f"line-{n}" for n in range(50)]
        self.data_tools.succeed("kafka-console-producer", "--topic", "orders", stdin="".join(f"{line}\n" for line in lines))
        self.written.update(dict.fromkeys(lines, 1))
        self.write("first")
        self.read()
        assert read_by_group(self.clients, "orders", "shop", len(self.written)) == self.written
        console = self.data_tools.run(
            "kafka-console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", len(self.written)
        )
        assert sorted(console.stdout.split()) == sorted(self.written), console
        self.write("gone", topic="doomed")

    def stopped(self) -> None:
        """A controlled shutdown: leaderships move before the broker goes, nothing is written to by a leader that is gone."""
        one, two = self.data[:2]
        before = self.members.state("orders")
        self.members.brokers[one].stop()
        moved = self.members.becomes("orders", 0, lambda s: s.leader == two and one not in s.isr, f"led by {two}")
        assert (moved.le, moved.pe) == (before.le + 1, before.pe + 1), "one move, before the broker was gone"
        self.write("stopped")
        self.members.start(one)
        self.members.in_sync(["orders", "pair", "__consumer_offsets"])
        back = self.members.state("orders")
        assert (back.le, back.leader) == (moved.le, two), "it came back into the ISR by the leader's word"
        assert self.tools.succeed("kafka-leader-election", "--election-type", "preferred", "--topic", "orders", "--partition", 0)
        self.members.shown("orders", 0, lambda leader: leader == one)
        self.write("returned")
        self.read()

    def killed(self) -> None:
        """kill -9: the session runs out, the next one in the ISR leads."""
        two, three = self.rotated(1)[:2]
        before = self.members.state("orders", 1)
        assert before.leader == two
        self.members.brokers[two].kill()
        moved = self.members.becomes("orders", 1, lambda s: s.leader == three and two not in s.isr, f"led by {three}")
        assert (moved.le, moved.pe) == (before.le + 1, before.pe + 1)
        self.write("killed")
        self.members.start(two)
        self.members.in_sync(["orders", "pair", "__consumer_offsets"])
        assert self.members.elect("orders", 1) == 0
        self.members.shown("orders", 1, lambda leader: leader == two)
        self.write("risen")
        self.read()

    def frozen(self) -> None:
        """A follower falls behind, is taken out of the ISR by its leader's AlterPartition, catches up, is taken in again."""
        one, two = self.data[:2]
        before = self.members.state("pair")
        assert before.leader == one
        self.members.brokers[two].freeze()
        try:
            self.write("alone", topic="pair")  # acknowledged only when the ISR has shrunk: nobody is behind while nothing is written
            shrunk = self.members.becomes("pair", 0, lambda s: s.isr == [one], f"without {two}")
        finally:
            self.members.brokers[two].thaw()
        assert (shrunk.le, shrunk.pe, shrunk.leader) == (before.le, before.pe + 1, one), "an ISR change raises no leader epoch"
        grown = self.members.becomes("pair", 0, lambda s: s.isr == [one, two], f"with {two}")
        assert (grown.le, grown.pe) == (before.le, before.pe + 2)
        self.members.in_sync(["orders", "__consumer_offsets"])
        self.write("thawed")

    def unclean(self) -> None:
        """The only replica in sync goes, another is elected in spite of it, by request and by config; it recovers."""
        one, two = self.data[:2]
        for round_, ask in enumerate((self._ask_for_unclean, self._allow_unclean)):
            self.members.elect("pair")
            self.members.shown("pair", 0, lambda leader: leader == one)
            self.members.brokers[two].stop()
            self.members.becomes("pair", 0, lambda s: s.isr == [one], f"without {two}")
            self.write(f"lonely-{round_}", topic="pair")
            self.members.brokers[one].stop()
            self.members.becomes("pair", 0, lambda s: s.leader == -1 and s.isr == [one], "leaderless")
            self.members.start(two)
            self.members.shown("pair", 0, lambda leader: leader == -1)
            ask()
            elected = self.members.becomes("pair", 0, lambda s: (s.leader, s.isr) == (two, [two]), f"led by {two}")
            assert elected.recovery == 1
            self.members.shown("pair", 0, lambda leader: leader == two)
            self.write(f"unclean-{round_}", topic="pair")
            self.members.start(one)
            healthy = self.members.becomes("pair", 0, lambda s: sorted(s.isr) == sorted([one, two]), "in sync")
            assert (healthy.recovery, healthy.le) == (0, elected.le)
            self.members.in_sync(["orders", "__consumer_offsets"])
        self.read()

    def _ask_for_unclean(self) -> None:
        self.tools.succeed("kafka-leader-election", "--election-type", "unclean", "--topic", "pair", "--partition", 0)

    def _allow_unclean(self) -> None:
        change = ["--entity-type", "topics", "--entity-name", "pair", "--add-config", "unclean.leader.election.enable=true"]
        self.tools.succeed("kafka-configs", "--alter", *change)

    def grown(self) -> None:
        placement = [":".join(map(str, self.rotated(p))) for p in range(len(self.data))]
        wanted = ",".join([*placement, placement[0]])
        self.tools.succeed(
            "kafka-topics", "--alter", "--topic", "orders", "--partitions", len(self.data) + 1, "--replica-assignment", wanted
        )
        self.members.shown("orders", len(self.data), lambda leader: leader == self.data[0])
        self.write("grown")
        self.read()

    def logs(self, broker_id: int, topic: str) -> list[str]:
        """Log folders that a broker still has for a topic, those being deleted included."""
        folder = self.members.brokers[broker_id].folder / "data"
        return sorted(p.name for p in folder.iterdir() if p.name.startswith((f"{topic}-", f"{topic}.")) and p.is_dir())

    def has_no_logs(self, broker_id: int, topic: str) -> bool:
        return not self.logs(broker_id, topic)

    def deleted(self) -> None:
        """The topic, its nodes and its logs are gone; the name is free for another."""
        assert all(self.logs(i, "doomed") for i in self.data)
        old = self.members.tree.topic_id("doomed")
        self.tools.succeed("kafka-topics", "--delete", "--topic", "doomed")
        self._gone("doomed", self.data)
        self.members.create("doomed", [self.data, self.rotated(1)])
        assert self.members.tree.topic_id("doomed") not in (None, old)
        self.write("again", topic="doomed")
        assert read_all(self.clients, "doomed") == {f"again-{n}": 1 for n in range(100)}

    def deleted_while_a_replica_is_down(self) -> None:
        """A deletion waits for the replica that is down."""
        down = self.data[1]
        self.members.brokers[down].stop()
        self.members.delete("doomed")
        wait_for(lambda: not any(self.logs(i, "doomed") for i in self.data if i != down), "the logs of the living are gone")
        assert self.members.tree.children("/admin/delete_topics") == ["doomed"]
        self.members.start(down)
        self._gone("doomed", self.data)
        self.members.in_sync(["orders", "pair", "__consumer_offsets"])
        self.read()

    def log_folder_lost(self) -> None:
        """A broker loses one of its log folders and lives on: its replicas there are offline, its others are not."""
        one, two = self.data[:2]
        members, folder = self.members, self.members.brokers[one].folder / "data"
        members.brokers[one].stop()
        members.brokers[one].settings["log.dirs"] = f"{folder},{folder}-2"
        members.start(one)
        members.create("elsewhere", [[one, two]])  # goes to the folder that holds less
        assert not self.logs(one, "elsewhere")
        members.in_sync(["orders", "pair", "elsewhere"])
        members.elect("pair")
        members.shown("pair", 0, lambda leader: leader == one)
        before, epoch = members.state("pair"), members.tree.broker_epoch(one)
        shutil.rmtree(folder)
        moved = members.becomes("pair", 0, lambda s: s.leader == two and s.isr == [two], f"led by {two}")
        assert moved.le == before.le + 1
        members.becomes("orders", 0, lambda s: one not in s.isr and s.leader != one, f"without {one}")
        members.shown("pair", 0, lambda leader: leader == two)
        wait_for(lambda: members.tree.children("/log_dir_event_notification") == [], "the notification is dealt with")
        kept = members.state("elsewhere")
        assert (kept.leader, sorted(kept.isr)) == (one, sorted([one, two])), "the other folder is as it was"
        assert members.tree.broker_epoch(one) == epoch
        self.write("one-folder")
        self.write("one-folder", topic="elsewhere")
        members.brokers[one].stop()
        members.start(one)
        members.in_sync(["orders", "pair", "elsewhere", "__consumer_offsets"])
        self.read()

    def _gone(self, topic: str, brokers: Sequence[int]) -> None:
        tree = self.members.tree
        paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
        wait_for(lambda: not any(tree.exists(path) for path in paths), f"the nodes of {topic} are gone")
        for broker_id in brokers:
            wait_for(partial(self.has_no_logs, broker_id, topic), f"the logs of {topic} on broker {broker_id} are gone")
        self.members.shown(topic, 0, lambda leader: leader is None)
