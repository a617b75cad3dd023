"""The story of an office that changes hands while clients write and read: from broker 0 to one that carries data, and back.

Every way of losing it is used: `/controller` is deleted under a living controller, and controllers are killed. Who wins is left to the
brokers; when the office stays on the same side, it is taken away once more while those who are not to have it are frozen, so that they wake
up to a world that has changed. After every move all members must name the new controller, the clients must go on, and the new controller
must be able to create and delete a topic.

Clients use the listener that broker 0 does not have (see `data_story`): two producers with acks=all, one of them idempotent, and a
consumer group. Nothing is asserted about them before the end, so that `Account` tells the whole of it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import KafkaError

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.record_clients import RunningConsumer, RunningProducer, is_retriable, read_all

TOPICS = ("ledger", "notes")
ALONE_S = 30.0
"""How long one attempt to take the office away may last; a killed controller keeps it until its session has run out."""


@dataclasses.dataclass
class HandOverAccount:
    """What happened. A move is (from, to, how); `elections` counts those after which the office stayed on its side too."""

    moves: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)
    epochs: list[int] = dataclasses.field(default_factory=list)
    elections: int = 0
    acknowledged: Counter[str] = dataclasses.field(default_factory=Counter)
    lost: list[str] = dataclasses.field(default_factory=list)
    unread: list[str] = dataclasses.field(default_factory=list)
    duplicated: Counter[str] = dataclasses.field(default_factory=Counter)
    failed: list[tuple[str, KafkaError]] = dataclasses.field(default_factory=list)
    errors: list[KafkaError] = dataclasses.field(default_factory=list)
    slowest_s: float = 0.0

    @property
    def fatal(self) -> list[KafkaError]:
        """Errors that a client does not mend by itself."""
        return [error for error in self.errors if not is_retriable(error)]

    def __str__(self) -> str:
        ways = Counter(how for _, _, how in self.moves)
        return (
            f"{len(self.moves)} hand-overs ({ways['delete']} by deletion, {ways['kill']} by kill) in {self.elections} elections, slowest "
            f"{self.slowest_s:.1f} s; acknowledged {dict(self.acknowledged)}, lost {len(self.lost)}, duplicated {dict(self.duplicated)}, "
            f"unread {len(self.unread)}; client errors {dict(Counter(e.name() for e in self.errors))}"
        )


class HandOver:
    """One telling. `data` are the brokers that carry records; broker 0 is the other side. All run already, broker 0 is controller."""

    def __init__(self, members: Members, data: Sequence[int]) -> None:
        self.members, self.data, self.account = members, list(data), HandOverAccount()
        self.clients = ",".join(members.brokers[i].address("CLIENT") for i in data)
        for topic in TOPICS:
            placement = [self.data[p:] + self.data[:p] for p in range(len(self.data))]
            members.create(topic, placement, {"min.insync.replicas": str(max(1, len(self.data) - 1))})
        members.create("__consumer_offsets", [self.data, self.data[::-1]], {"cleanup.policy": "compact"})
        self.producers = [
            RunningProducer(self.clients, "ledger", "idempotent", 0.004, **{"enable.idempotence": True}),
            RunningProducer(self.clients, "notes", "plain", 0.004),
        ]
        self.consumer = RunningConsumer(self.clients, TOPICS, "audit")
        self.account.epochs.append(members.tree.controller_epoch())

    def tell(self, cycles: Sequence[str]) -> HandOverAccount:
        """Move the office there and back once for each of `cycles`, a way of losing it."""
        try:
            self.clients_go_on()
            for number, how in enumerate(cycles):
                self.move(how, to_zero=False, number=2 * number)
                self.move(how, to_zero=True, number=2 * number + 1)
            self.members.in_sync([*TOPICS, "__consumer_offsets"])
            self.clients_go_on()
            for producer in self.producers:
                producer.stop()
            self.settle_accounts()
        finally:
            self.close()
        return self.account

    def close(self) -> None:
        """End the clients, whatever they still have to do."""
        for producer in self.producers:
            producer.end()
        self.consumer.stop()

    def clients_go_on(self) -> None:
        for producer in self.producers:
            producer.goes_on()

    def move(self, how: str, *, to_zero: bool, number: int) -> None:
        """Take the office away until it has changed sides; then look whether all goes on."""
        tree, begin = self.members.tree, time.monotonic()
        old = tree.controller()
        killed = old if how == "kill" else None
        if killed is not None:
            self.members.brokers[killed].kill()
        else:
            tree.delete("/controller")
        self.next_term(f"round-{number}")
        if (tree.controller() == 0) != to_zero:
            wrong_side = [broker for broker in self.members.running() if (broker.id == 0) != to_zero]
            for broker in wrong_side:
                broker.freeze()
            tree.delete("/controller")
            wait_for(lambda: (holder := tree.controller()) != -1 and (holder == 0) == to_zero, "the right one is elected", ALONE_S)
            for broker in wrong_side:
                broker.thaw()
            self.next_term(f"round-{number}")
        self.account.moves.append((old, tree.controller(), how))
        self.account.slowest_s = max(self.account.slowest_s, time.monotonic() - begin)
        if killed is not None:
            self.members.start(killed)
            self.members.in_sync([*TOPICS, "__consumer_offsets"])
        self.clients_go_on()

    def next_term(self, topic: str) -> None:
        """Wait for the next controller, note its epoch, let it create a topic and delete it again.

        So its fail-over is over when this returns. A real broker that loses the office earlier may fail for good: it keeps a batch it
        cannot send, or nobody stands for election, because the node went before it was seen to come.
        """
        tree, old = self.members.tree, self.account.epochs[-1]
        wait_for(lambda: tree.controller_epoch() > old and tree.controller() != -1, f"a controller after epoch {old}", ALONE_S)
        self.account.epochs.append(tree.controller_epoch())
        self.account.elections += 1
        self.members.settled()
        alive = [i for i in self.data if self.members.brokers[i].alive()]
        self.members.create(topic, [alive, alive[::-1]])
        self.members.delete(topic)
        self.members.deleted(topic)

    def settle_accounts(self) -> None:
        """Compare what was acknowledged with what the logs hold, and with what the group has read."""
        account = self.account
        held = {topic: read_all(self.clients, topic) for topic in TOPICS}
        acknowledged = {name for producer in self.producers for name in producer.acknowledged}
        try:
            wait_for(lambda: acknowledged <= set(self.consumer.seen), "the group reads to the end")
        except AssertionError:
            account.unread = sorted(acknowledged - set(self.consumer.seen))
        self.consumer.stop()
        for producer in self.producers:
            account.acknowledged[producer.prefix] = len(producer.acknowledged)
            account.lost += sorted(set(producer.acknowledged) - set(held[producer.topic]))
            account.duplicated[producer.prefix] = sum(count - 1 for count in held[producer.topic].values())
            account.failed += producer.failed
            account.errors += producer.errors
        account.errors += self.consumer.errors
