"""One partition of a simulation: its state, and what a rule of the controller makes of it."""

from __future__ import annotations

from klamm.controller.decisions.decision import Decide, Decision, Refuse, Situation
from klamm.controller.states import PartitionState
from klamm.controller.values import Assignment, LeaderAndIsr, Proposal
from klamm.pipeline.simulation.steps import Brokers
from klamm.protocol.nouns import Ints

CONTROLLER_EPOCH = 2**31 - 1
"""Epoch of the simulated controller. It is later than that of every state."""

_NOBODY: frozenset[int] = frozenset()


class Simulated:
    """One partition, or all that are alike. The fields in front are the whole input of the rules."""

    __slots__ = ("assignment", "behind", "bytes_in", "bytes_out", "min_isr", "offline_dirs", "phase", "queued", "refused", "state",
                 "targets", "unclean", "unclean_elections")

    def __init__(
        self, assignment: Assignment, state: LeaderAndIsr | None, *, offline_dirs: frozenset[int] = _NOBODY, unclean: bool | None = None,
        min_isr: int | None = None, queued: bool = False, targets: tuple[Ints | None, ...] = (),
    ) -> None:
        self.assignment = assignment
        self.state = state
        self.offline_dirs = offline_dirs
        """Brokers whose log directory with this partition is offline."""
        self.unclean = unclean
        """`unclean.leader.election.enable` of the topic, None where it has none."""
        self.min_isr = min_isr
        """`min.insync.replicas` of the topic, None where it has none."""
        self.queued = queued
        """Whether the topic is queued for deletion."""
        self.targets = targets
        """What the reassignment files of the simulation want of this partition."""
        self.phase = PartitionState.NEW
        self.behind = _NOBODY
        """Replicas that run and do not join the ISR."""
        self.unclean_elections = 0
        self.refused = 0
        """Reassignments that the controller refused."""
        self.bytes_in: tuple[int, ...] = ()
        """Brokers that copied the partition since this was last emptied, one entry for each copy."""
        self.bytes_out: tuple[int, ...] = ()
        """Brokers that it was copied from."""

    def begin(self, brokers: Brokers) -> None:
        """The partition is as a controller finds it (controller 6.3)."""
        if self.state is not None:
            online = self.online(brokers)
            self.phase = PartitionState.ONLINE if self.state.leader in online else PartitionState.OFFLINE
            isr = self.state.isr
            if len(isr) < len(self.assignment.replicas):
                self.behind = frozenset(r for r in self.assignment.replicas if r in online and r not in isr)

    def online(self, brokers: Brokers) -> frozenset[int]:
        """Brokers whose replica may lead or stay in sync."""
        return brokers.alive - self.offline_dirs if self.offline_dirs else brokers.alive

    def decide(self, rule: Decide, brokers: Brokers, proposal: Proposal | None = None) -> Decision:
        """What a rule says of the partition; it takes hold."""
        situation = Situation(
            self.state, self.assignment, brokers.registered, brokers.shutting_down, self.offline_dirs, CONTROLLER_EPOCH, self.queued,
            proposal,
        )
        decision = rule(situation)
        if not isinstance(decision, Refuse):
            self.state = decision.state
        return decision

    def is_untouched(self, broker_ids: tuple[int, ...]) -> bool:
        """Whether none of these brokers has a replica, and nothing waits."""
        if self.behind or self.offline_dirs or self.state is None:
            return False
        replicas, leader = self.assignment.replicas, self.state.leader
        return not any(b in replicas or b == leader for b in broker_ids)
