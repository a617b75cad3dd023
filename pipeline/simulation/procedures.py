"""What one partition goes through at each step of a simulation: the controller's decisions, in the controller's sequence.

Every decision is made by the controller's own rule, a pure function of a `Situation` (`controller/decisions/decision.py`): nothing here
chooses a leader or changes an ISR. When brokers fail and start, at a controlled shutdown and at a reassignment, the order of the steps is
the controller's own too (`controller/procedures.py`). What is here is which rule a step asks. The store always accepts a write, and no
other writer interferes.

After each step of the simulation the partition settles: a leader that was elected uncleanly reports that it has recovered, and replicas
that run join the ISR, one request for each in the order of the assignment, except for those that ran and were not in sync when the
simulation began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.decisions import elections
from klamm.controller.decisions.decision import Refusal, Refuse, Write
from klamm.controller.decisions.elections import Strategy
from klamm.controller.partitions.alter_partition import AlterIsr
from klamm.controller.partitions.leader_elections import is_led_as_wanted
from klamm.controller.partitions.leader_rebalance import Group, add_to_groups
from klamm.controller.partitions.partition_machine import ElectLeader, InitialiseLeader
from klamm.controller.partitions.replica_machine import LeaveIsr
from klamm.controller.procedures import (
    COMPLETION,
    FAILURE,
    SHUTDOWN,
    STARTUP,
    WAITING,
    FailureStep,
    ReassignmentStep,
    ShutdownStep,
    StartupStep,
)
from klamm.controller.reassignment.procedure import looks_complete
from klamm.controller.reassignment.requests import check_target, reassigned
from klamm.controller.reassignment.steps import RaiseLeaderEpoch
from klamm.controller.states import PartitionState
from klamm.controller.values import RECOVERED, RECOVERING, Assignment, Broker, Election, Proposal, SharedInts
from klamm.pipeline.simulation.simulated_partition import CONTROLLER_EPOCH, Simulated
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
from klamm.protocol.hash_order import in_hash_order
from klamm.protocol.nouns import NO_LEADER, Ints

_ALTER_PARTITION = 3
"""Version of the requests by which leaders change their ISR."""

_INITIALISE = InitialiseLeader()
_RAISE = RaiseLeaderEpoch()
_ALTER_ISR = AlterIsr()


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
                if p.phase is PartitionState.ONLINE and p.is_untouched(ids):
                    return False
                self._failed(p, replace(brokers, registered=brokers.registered.difference(ids)), ids)
            case Return(ids):
                if p.phase is PartitionState.ONLINE and p.is_untouched(ids):
                    return False
                self._started(p, replace(brokers, registered=brokers.registered.union(ids)), ids)
            case Shutdown(ids):
                if p.phase is PartitionState.ONLINE and p.is_untouched(ids):
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
        """Brokers failed (controller 4.3)."""
        p.behind = p.behind.difference(dead)
        p.offline_dirs = p.offline_dirs.difference(dead)
        for action in ON_FAILURE:
            action(self, p, brokers, dead)

    def _started(self, p: Simulated, brokers: Brokers, started: tuple[int, ...]) -> None:
        """Brokers started (controller 4.2)."""
        p.offline_dirs = p.offline_dirs.difference(started)
        for action in ON_STARTUP:
            action(self, p, brokers, started)

    def _shut_down(self, p: Simulated, brokers: Brokers, broker_id: int) -> None:
        """A broker asks whether it may stop (controller 10.4). It counts only for partitions with more than one replica."""
        replicas = p.assignment.replicas
        if broker_id not in replicas or len(replicas) < 2 or p.state is None or p.queued:
            return
        is_leader = p.state.leader == broker_id
        for action in ON_SHUTDOWN:
            action(self, p, brokers, broker_id, is_leader)

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
        """An administrator reassigns the partition (controller 11.1). Whether it began."""
        if p.queued or p.state is None or check_target(self._cluster(brokers), p.assignment, target) is not None:
            p.refused += 1
            return False
        wanted = reassigned(p.assignment, target, SharedInts())
        if wanted is None or not wanted.target:
            p.refused += 1
            return False
        REASSIGNMENT_ACTIONS[ReassignmentStep.STORE_TARGET](self, p, brokers, wanted)
        self._branch(p, brokers)
        return True

    def _branch(self, p: Simulated, brokers: Brokers) -> None:
        """Complete a reassignment whose target is in sync; else start the replicas (controller 11.3)."""
        whole = p.assignment
        for action in ON_COMPLETION if looks_complete(self._as_partition(p), whole) else ON_WAITING:
            action(self, p, brokers, whole)

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
                self._branch(p, brokers)

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

    # --- the steps of the procedures ---

    def mark_offline(self, p: Simulated, brokers: Brokers, dead: tuple[int, ...]) -> None:
        if p.state is not None and not p.queued and p.state.leader not in p.online(brokers):
            p.phase = PartitionState.OFFLINE

    def elect_leader(self, p: Simulated, brokers: Brokers, changed: tuple[int, ...]) -> None:
        self._trigger(p, brokers)

    def shrink_isr(self, p: Simulated, brokers: Brokers, dead: tuple[int, ...]) -> None:
        if p.queued or p.state is None:
            return
        for b in in_hash_order(dead):
            if b in p.assignment.replicas:
                p.decide(LeaveIsr(b), brokers)

    def resume_reassignment(self, p: Simulated, brokers: Brokers, started: tuple[int, ...]) -> None:
        if p.assignment.is_reassigning and not p.queued and not set(started).isdisjoint(p.assignment.target):
            self._branch(p, brokers)

    def relieve_leader(self, p: Simulated, brokers: Brokers, broker_id: int, is_leader: bool) -> None:
        if is_leader:
            self._to_online(p, brokers, elections.ControlledShutdown())

    def relieve_follower(self, p: Simulated, brokers: Brokers, broker_id: int, is_leader: bool) -> None:
        if not is_leader:
            p.decide(LeaveIsr(broker_id), brokers)

    def store_target(self, p: Simulated, brokers: Brokers, wanted: Assignment) -> None:
        gone = tuple(r for r in p.assignment.replicas if r not in wanted.replicas)
        p.assignment = wanted
        for b in in_hash_order(gone):
            p.decide(LeaveIsr(b), brokers)

    def elect_missing_leader(self, p: Simulated, brokers: Brokers, whole: Assignment) -> None:
        state = p.state
        if state is not None and state.leader == NO_LEADER:
            online = p.online(brokers)
            if any(member in online and member in p.assignment.replicas for member in state.isr):
                self._to_online(p, brokers, elections.Offline())

    def raise_epoch(self, p: Simulated, brokers: Brokers, whole: Assignment) -> None:
        p.decide(_RAISE, brokers)

    def use_target(self, p: Simulated, brokers: Brokers, whole: Assignment) -> None:
        p.assignment = Assignment(whole.target)

    def move_leader(self, p: Simulated, brokers: Brokers, whole: Assignment) -> None:
        state = p.state
        if state is not None and state.leader in p.assignment.replicas and state.leader in p.online(brokers):
            p.decide(_RAISE, brokers)
        else:
            self._to_online(p, brokers, elections.Reassigned())

    def stop_removed(self, p: Simulated, brokers: Brokers, whole: Assignment) -> None:
        for b in in_hash_order(whole.removing):
            p.decide(LeaveIsr(b), brokers)


def _nothing(*_: object) -> None:
    """A step that changes neither the state nor the assignment of a partition."""


OnBrokers = Callable[[Procedures, Simulated, Brokers, tuple[int, ...]], None]
"""The tuple has the brokers that failed or started."""
FAILURE_ACTIONS: Mapping[FailureStep, OnBrokers] = {
    FailureStep.MARK_OFFLINE: Procedures.mark_offline,
    FailureStep.ELECT_LEADERS: Procedures.elect_leader,
    FailureStep.SHRINK_ISRS: Procedures.shrink_isr,
    FailureStep.FAIL_DELETIONS: _nothing,
    FailureStep.SEND_BROKERS: _nothing,
}
STARTUP_ACTIONS: Mapping[StartupStep, OnBrokers] = {
    StartupStep.SEND_METADATA: _nothing,
    StartupStep.START_REPLICAS: _nothing,
    StartupStep.ELECT_LEADERS: Procedures.elect_leader,
    StartupStep.RESUME_REASSIGNMENTS: Procedures.resume_reassignment,
    StartupStep.RESUME_DELETIONS: _nothing,
    StartupStep.WATCH_BROKERS: _nothing,
}
OnShutdown = Callable[[Procedures, Simulated, Brokers, int, bool], None]
"""The broker that stops, and whether it led the partition before the first step."""
SHUTDOWN_ACTIONS: Mapping[ShutdownStep, OnShutdown] = {
    ShutdownStep.MOVE_LEADERS: Procedures.relieve_leader,
    ShutdownStep.SHRINK_ISRS: Procedures.relieve_follower,
}
OnReassignment = Callable[[Procedures, Simulated, Brokers, Assignment], None]
"""The assignment before the step, with the replicas that are added and removed; at STORE_TARGET the new one."""
REASSIGNMENT_ACTIONS: Mapping[ReassignmentStep, OnReassignment] = {
    ReassignmentStep.STORE_TARGET: Procedures.store_target,
    ReassignmentStep.ELECT_LEADER: Procedures.elect_missing_leader,
    ReassignmentStep.RAISE_EPOCH: Procedures.raise_epoch,
    ReassignmentStep.START_REPLICAS: _nothing,
    ReassignmentStep.USE_TARGET: Procedures.use_target,
    ReassignmentStep.MOVE_LEADER: Procedures.move_leader,
    ReassignmentStep.STOP_REMOVED: Procedures.stop_removed,
    ReassignmentStep.DELETE_REMOVED: _nothing,
    ReassignmentStep.STORE_COMPLETED: _nothing,
    ReassignmentStep.FORGET: _nothing,
}

# What is done, in the order of the controller's tables.
ON_FAILURE = [FAILURE_ACTIONS[step] for step in FAILURE]
ON_STARTUP = [STARTUP_ACTIONS[step] for step in STARTUP]
ON_SHUTDOWN = [SHUTDOWN_ACTIONS[step] for step in SHUTDOWN]
ON_WAITING = [REASSIGNMENT_ACTIONS[step] for step in WAITING]
ON_COMPLETION = [REASSIGNMENT_ACTIONS[step] for step in COMPLETION]
