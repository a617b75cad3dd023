"""What one partition goes through at each step of a simulation: the controller's decisions, in the controller's sequence.

Every decision is made by the controller's own rule, a pure function of a `Situation` (`controller/decisions/decision.py`): nothing here
chooses a leader or changes an ISR. What is here is which rules are asked, in which order, when brokers end and start (controller 4.2,
4.3), at elections (10.1, 10.3), a controlled shutdown (10.4) and a reassignment (11.3). The store always accepts a write, and no other
writer interferes.

Behind each step the partition settles: a leader that was elected uncleanly reports that it has recovered, and replicas that run join the
ISR, one request for each in the order of the assignment, except for those that ran and were not in sync when the simulation began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.decisions import elections
from klamm.controller.decisions.decision import Decide, Decision, Refusal, Refuse, Situation, Write
from klamm.controller.decisions.elections import Strategy
from klamm.controller.decisions.hash_order import in_hash_order
from klamm.controller.partitions.alter_partition import AlterIsr
from klamm.controller.partitions.leader_elections import is_led_as_wanted
from klamm.controller.partitions.leader_rebalance import Group, add_to_groups
from klamm.controller.partitions.partition_machine import ElectLeader, InitialiseLeader
from klamm.controller.partitions.replica_machine import LeaveIsr
from klamm.controller.reassignment.procedure import looks_complete
from klamm.controller.reassignment.requests import check_target, reassigned
from klamm.controller.reassignment.steps import RaiseLeaderEpoch
from klamm.controller.states import PartitionState
from klamm.controller.values import RECOVERED, RECOVERING, Assignment, Broker, Election, LeaderAndIsr, Proposal
from klamm.pipeline.simulation.steps import (
    Blacklist,
    Brokers,
    Elect,
    Kill,
    Reassign,
    Rebalance,
    Return,
    Shutdown,
    Step,
    Unclean,
    after,
)
from klamm.protocol.nouns import NO_LEADER, Ints

CONTROLLER_EPOCH = 2**31 - 1
"""Of the simulated controller: later than that of each state."""
_ALTER_PARTITION = 3
"""Version of the requests by which leaders change their ISR."""

_NOBODY: frozenset[int] = frozenset()
_INITIALISE = InitialiseLeader()
_RAISE = RaiseLeaderEpoch()
_ALTER_ISR = AlterIsr()


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


class Procedures:
    """The steps of one simulation, applied to partitions one at a time."""

    def __init__(self, brokers: Brokers, steps: tuple[Step, ...], rebalanced: dict[int, frozenset[int]] | None = None) -> None:
        """`rebalanced`: for the number of a Rebalance step, the brokers that get leaders back (`owner`)."""
        self.before: list[Brokers] = []
        for step in steps:
            self.before.append(brokers)
            brokers = after(brokers, step)
        self.last = brokers
        self.steps = steps
        self.rebalanced = {} if rebalanced is None else rebalanced
        self._clusters: dict[Brokers, Cluster] = {}
        topic = Topic("", None)
        self._partition = Partition(topic, 0, Assignment(()))

    def apply(self, p: Simulated, number: int) -> bool:
        """Take a partition through a step, counted from 0. Whether anything of it may have changed."""
        step, brokers = self.steps[number], self.before[number]
        match step:
            case Kill(ids):
                if p.phase is PartitionState.ONLINE and _is_untouched(p, ids):
                    return False
                self._failed(p, replace(brokers, registered=brokers.registered.difference(ids)), ids)
            case Return(ids):
                if p.phase is PartitionState.ONLINE and _is_untouched(p, ids):
                    return False
                self._started(p, replace(brokers, registered=brokers.registered.union(ids)), ids)
            case Shutdown(ids):
                if p.phase is PartitionState.ONLINE and _is_untouched(p, ids):
                    return False
                for b in ids:
                    self._shut_down(p, replace(brokers, shutting_down=frozenset((b,))), b)
                    brokers = replace(brokers, registered=brokers.registered - {b})
                    self._failed(p, brokers, (b,))
                    self._settle(p, brokers)
                return True
            case Blacklist():
                return False
            case Unclean(enabled):
                if not enabled or brokers.unclean or p.phase is PartitionState.ONLINE:
                    return False
                self._trigger(p, replace(brokers, unclean=True))
            case Elect(unclean):
                if not self._elect(p, brokers, unclean):
                    return False
            case Rebalance():
                owner, is_imbalanced = self.owner(p, brokers)
                if not is_imbalanced or owner not in self.rebalanced[number]:
                    return False
                self._to_online(p, brokers, elections.Preferred(unlisted_only=True))
            case Reassign(plan):
                target = p.targets[plan] if plan < len(p.targets) else None
                if target is None or not self._reassign(p, brokers, target):
                    return False
            case _:
                assert_never(step)
        self._settle(p, after(brokers, step))
        return True

    def kinds(self, broker_ids: Iterable[int]) -> dict[int, int]:
        """Brokers with the same number are treated alike by all steps: rules compare ids, and look into the sets that the steps name. Where
        several brokers end together their ids give a sequence (`hash_order`), so that each of these is one of its kind.
        """
        numbers: dict[tuple[object, ...], int] = {}
        kinds: dict[int, int] = {}
        first = self.before[0] if self.before else self.last
        for b in broker_ids:
            traits: list[object] = [b in first.registered, b in first.listed]
            for number, step in enumerate(self.steps):
                match step:
                    case Kill(ids) | Shutdown(ids) if len(ids) > 1 and b in ids:
                        traits.append(b)
                    case Rebalance():
                        traits.append(b in self.rebalanced.get(number, ()))
                    case _:
                        traits.append(b in getattr(step, "brokers", ()))
            kinds[b] = numbers.setdefault(tuple(traits), len(numbers))
        return kinds

    def owner(self, p: Simulated, brokers: Brokers) -> tuple[int | None, bool]:
        """The broker whose ratio the automatic rebalance counts the partition in, and whether another one leads it (controller 10.3)."""
        if p.queued:
            return None, False
        groups: dict[int, Group] = {}
        add_to_groups((self._as_partition(p),), brokers.listed, groups, {})
        for broker_id, group in groups.items():
            return broker_id, bool(group.imbalanced)
        return None, False

    # --- the procedures ---

    def _failed(self, p: Simulated, brokers: Brokers, dead: tuple[int, ...]) -> None:
        """Controller 4.3: leaders are elected elsewhere, then the dead leave the ISRs."""
        p.behind = p.behind.difference(dead)
        p.offline_dirs = p.offline_dirs.difference(dead)
        if p.state is not None and not p.queued and p.state.leader not in p.online(brokers):
            p.phase = PartitionState.OFFLINE
        self._trigger(p, brokers)
        if p.queued or p.state is None:
            return
        for b in in_hash_order(dead):
            if b in p.assignment.replicas:
                p.decide(LeaveIsr(b), brokers)

    def _started(self, p: Simulated, brokers: Brokers, started: tuple[int, ...]) -> None:
        """Controller 4.2: what had no leader gets one, and reassignments that waited go on."""
        p.offline_dirs = p.offline_dirs.difference(started)
        self._trigger(p, brokers)
        if p.assignment.is_reassigning and not p.queued and not set(started).isdisjoint(p.assignment.target):
            self._branch(p, brokers)

    def _shut_down(self, p: Simulated, brokers: Brokers, broker_id: int) -> None:
        """Controller 10.4, of a partition with more than one replica."""
        replicas = p.assignment.replicas
        if broker_id not in replicas or len(replicas) < 2 or p.state is None or p.queued:
            return
        if p.state.leader == broker_id:
            self._to_online(p, brokers, elections.ControlledShutdown())
        else:
            p.decide(LeaveIsr(broker_id), brokers)

    def _trigger(self, p: Simulated, brokers: Brokers) -> None:
        """Controller 6.3: bring it online, unless it is."""
        if p.phase is not PartitionState.ONLINE and not p.queued:
            self._to_online(p, brokers, elections.Offline())

    def _to_online(self, p: Simulated, brokers: Brokers, strategy: Strategy) -> bool:
        """Controller 6.2: a new partition is initialised, any other elects a leader. Whether it has one."""
        if p.phase is PartitionState.NEW:
            decision = p.decide(_INITIALISE, brokers)
        else:
            decision = p.decide(ElectLeader(strategy, True, brokers.listed), brokers)
            refused = isinstance(decision, Refuse) and decision.reason is Refusal.NO_LEADER and strategy == elections.Offline()
            if refused and (brokers.unclean if p.unclean is None else p.unclean):
                decision = p.decide(ElectLeader(elections.Offline(allow_unclean=True), True, brokers.listed), brokers)
        if isinstance(decision, Refuse):
            return False
        p.phase = PartitionState.ONLINE
        if decision.state.recovery == RECOVERING:
            p.unclean_elections += 1
        return True

    def _elect(self, p: Simulated, brokers: Brokers, unclean: bool) -> bool:
        """Controller 10.1, by an administrator. Whether a rule was asked."""
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        if p.queued:
            return False
        if p.state is not None:
            cluster = self._cluster(brokers)
            if p.offline_dirs:
                cluster = self._with_offline_dirs(p, brokers)
            if is_led_as_wanted(cluster, self._as_partition(p), p.state, election):
                return False
        self._to_online(p, brokers, elections.Offline(allow_unclean=True) if unclean else elections.Preferred())
        return True

    def _reassign(self, p: Simulated, brokers: Brokers, target: Ints) -> bool:
        """Controller 11.1: check what is wanted, then U and what follows. Whether it began."""
        if p.queued or p.state is None or check_target(self._cluster(brokers), p.assignment, target) is not None:
            p.refused += 1
            return False
        wanted = reassigned(p.assignment, target)
        if wanted is None or not wanted.target:
            p.refused += 1
            return False
        gone = tuple(r for r in p.assignment.replicas if r not in wanted.replicas)
        p.assignment = wanted
        for b in in_hash_order(gone):
            p.decide(LeaveIsr(b), brokers)
        self._branch(p, brokers)
        return True

    def _branch(self, p: Simulated, brokers: Brokers) -> None:
        """Controller 11.3: complete what is in sync, else start the replicas (A)."""
        if looks_complete(self._as_partition(p), p.assignment):
            self._complete(p, brokers)
            return
        state = p.state
        if state is not None and state.leader == NO_LEADER:
            online = p.online(brokers)
            if any(member in online and member in p.assignment.replicas for member in state.isr):
                self._to_online(p, brokers, elections.Offline())
        p.decide(_RAISE, brokers)

    def _complete(self, p: Simulated, brokers: Brokers) -> None:
        """Controller 11.3, B: the leader moves into the target, the replicas that are to go leave."""
        removing = p.assignment.removing
        p.assignment = Assignment(p.assignment.target)
        state = p.state
        if state is not None and state.leader in p.assignment.replicas and state.leader in p.online(brokers):
            p.decide(_RAISE, brokers)
        else:
            self._to_online(p, brokers, elections.Reassigned())
        for b in in_hash_order(removing):
            p.decide(LeaveIsr(b), brokers)

    def _settle(self, p: Simulated, brokers: Brokers) -> None:
        """Leaders report that they have recovered, and replicas join."""
        while (state := p.state) is not None and p.phase is PartitionState.ONLINE and not p.queued:
            isr, replicas = state.isr, p.assignment.replicas
            if state.recovery == RECOVERED and len(isr) >= len(replicas):
                return
            online = p.online(brokers)
            if state.leader not in online:
                return
            joining = next((r for r in replicas if r not in isr and r in online and r not in p.behind), None)
            if state.recovery == RECOVERING:
                joining = None
            elif joining is None:
                return
            grown = isr if joining is None else (*isr, joining)
            proposal = Proposal(state.leader, state.leader_epoch, grown, RECOVERED, state.partition_epoch, _ALTER_PARTITION)
            if not isinstance(p.decide(_ALTER_ISR, brokers, proposal), Write):
                return
            if joining is not None and joining in p.assignment.adding:
                p.bytes_in += (joining,)
                p.bytes_out += (state.leader,)
            if p.assignment.is_reassigning and looks_complete(self._as_partition(p), p.assignment):
                self._complete(p, brokers)

    # --- what the rules take ---

    def _as_partition(self, p: Simulated) -> Partition:
        """The partition as the controller holds it; the same object at each call."""
        found = self._partition
        found.assignment, found.info = p.assignment, p.state
        return found

    def _cluster(self, brokers: Brokers) -> Cluster:
        """The brokers as the controller holds them."""
        cluster = self._clusters.get(brokers)
        if cluster is None:
            cluster = self._clusters[brokers] = Cluster(CONTROLLER_EPOCH)
            cluster.brokers_registered(Broker(b, 0, ()) for b in brokers.registered)
            for b in brokers.shutting_down:
                cluster.shutdown_began(b)
            cluster.blacklist_changed(brokers.listed)
        return cluster

    def _with_offline_dirs(self, p: Simulated, brokers: Brokers) -> Cluster:
        cluster = Cluster(CONTROLLER_EPOCH)
        cluster.brokers_registered(Broker(b, 0, ()) for b in brokers.registered)
        cluster.blacklist_changed(brokers.listed)
        for b in p.offline_dirs:
            cluster.offline_replicas_changed(b, (self._partition,))
        return cluster


def _is_untouched(p: Simulated, broker_ids: tuple[int, ...]) -> bool:
    """Whether none of these brokers has a replica, and nothing waits."""
    if p.behind or p.offline_dirs or p.state is None:
        return False
    replicas, leader = p.assignment.replicas, p.state.leader
    return not any(b in replicas or b == leader for b in broker_ids)
