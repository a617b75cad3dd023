"""Random lives of a group: what members do, what fails, and a coordinator that moves, from a seed."""

from __future__ import annotations

from random import Random

import pytest

from klamm.broker.groups.rebalances import Limits
from klamm.broker.groups.requests import JoinResult, SyncResult
from klamm.broker.groups.states import STABLE
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.tests.broker.groups.group_driver import GROUP, GroupDriver

LIMITS = Limits(min_session_ms=1_000, max_size=5, initial_delay_ms=500)
STEPS = 120


class RandomMembers:
    """Clients that behave, and some that do not. A client knows only what it was told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driver = GroupDriver(LIMITS)
        self.ids: list[str] = [""] * 6
        self.generations = [-1] * 6
        self.tickets: list[str] = []
        self.committed: dict[TopicPartition, int] = {}
        self.highest = 0

    def step(self) -> None:
        client = self.random.randrange(len(self.ids))
        action = self.random.choice(
            (self.join, self.join, self.sync, self.sync, self.beat, self.commit, self.leave, self.restart, self.wait, self.wait, self.fail)
        )
        action(client)
        self.learn()
        self.check()

    def join(self, client: int) -> None:
        instance = f"static {client}" if client >= 4 else None
        protocols = self.random.choice((("range",), ("range", "sticky")))
        self.tickets.append(
            self.driver.join(
                f"client{client}", self.ids[client], instance=instance, protocols=protocols, session_ms=self.random.choice((1_000, 3_000)),
                rebalance_ms=self.random.choice((2_000, 4_000)), version=self.random.choice((3, 8, 9)),
            )
        )

    def sync(self, client: int) -> None:
        group = self.driver.groups.get(GROUP)
        members = [] if group is None else list(group.members)
        self.tickets.append(
            self.driver.sync(self.ids[client], self.generations[client], {each: each.encode() for each in members}, protocol=None)
        )

    def beat(self, client: int) -> None:
        self.driver.heartbeat(self.ids[client], self.generations[client])

    def commit(self, client: int) -> None:
        partition, offset = TopicPartition("t", self.random.randrange(3)), self.random.randrange(1_000)
        if self.driver.commit({partition: offset}, self.ids[client], self.generations[client]) is E.NONE:
            self.committed[partition] = offset

    def leave(self, client: int) -> None:
        self.driver.leave(self.ids[client])
        self.ids[client] = ""

    def restart(self, client: int) -> None:
        self.ids[client] = ""

    def wait(self, client: int) -> None:
        self.driver.advance(self.random.choice((10, 400, 1_500)))

    def fail(self, client: int) -> None:
        self.driver.error = self.random.choice((E.NONE, E.NONE, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT))

    def learn(self) -> None:
        """Clients take the ids and generations that they were given."""
        for ticket in [each for each in self.tickets if each in self.driver.results]:
            self.tickets.remove(ticket)
            result = self.driver.results[ticket]
            if isinstance(result, JoinResult) and result.member_id:
                for client in range(len(self.ids)):
                    if result.member_id.startswith((f"client{client}-", f"static {client}-")):
                        self.ids[client] = result.member_id
                        if result.error is E.NONE:
                            self.generations[client] = result.generation

    def check(self) -> None:
        group = self.driver.groups.get(GROUP)
        if group is None:
            return
        assert group.waiting_joins <= LIMITS.max_size
        assert group.leader is None or group.leader in group.members
        assert group.generation >= self.highest
        assert set(group.static_members.values()) <= set(group.members)
        assert not group.pending.keys() & group.members.keys()
        self.highest = group.generation

    def end(self) -> None:
        """Everything that waits is answered, and the log says the same as the memory."""
        self.driver.error = E.NONE
        self.driver.advance(20 * 60_000)
        self.learn()
        assert self.tickets == []
        assert self.driver.offsets() == self.committed == self.driver.reloaded(LIMITS).offsets()

    def moves(self) -> None:
        """Another coordinator takes over: those who wait are told, and a stable group stays one."""
        group = self.driver.groups.get(GROUP)
        assignments = None
        if group is not None and group.state is STABLE:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
        other = self.driver.reloaded(LIMITS)
        self.driver.groups.unload(self.driver.now)
        self.driver.settle()
        for ticket in self.tickets:
            result = self.driver.results[ticket]
            assert isinstance(result, JoinResult | SyncResult)
            assert result.error is E.NOT_COORDINATOR
        self.tickets.clear()
        other._tickets = self.driver._tickets
        other.results = self.driver.results
        self.driver = other
        loaded = other.groups.get(GROUP)
        if assignments is not None and loaded is not None:
            assert {each.member_id: each.assignment for each in loaded.members.values()} == assignments
        self.highest = 0 if loaded is None else loaded.generation


@pytest.mark.parametrize("seed", range(60))
def test_every_request_is_answered_once_and_the_log_has_what_memory_has(seed: int) -> None:
    members = RandomMembers(seed)
    for step in range(STEPS):
        members.step()
        if step % 40 == 39 and seed % 2:
            members.moves()
    members.end()
