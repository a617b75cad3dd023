"""The actions of the tool, for both implementations of `Cluster` (controller 18, 22.7). Nothing is changed before all checks have passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from klamm.cli.reassign_partitions import plan, reports
from klamm.cli.reassign_partitions.cluster import Cluster, Replica, Throttles
from klamm.cli.tools.failures import ToolFailed
from klamm.cli.tools.files import Moves
from klamm.controller.decisions.throttled_replicas import slow_warning
from klamm.controller.values import Assignment
from klamm.protocol.nouns import Ints, TopicPartition

RETRY_S = 0.1
Say = Callable[[str], None]


class Limits(NamedTuple):
    """Options of --execute: rates in bytes per second (None: no throttle), and how long moves between log directories may take to start."""

    throttle: int | None
    log_dir_throttle: int | None
    timeout_ms: int
    additional: bool


class Console(NamedTuple):
    """Outputs of the tool: `say` for results, `warn` for warnings and failures."""

    say: Say
    warn: Say


async def generate(cluster: Cluster, names: list[str], broker_ids: list[int], rack_aware: bool, dice: Random, console: Console) -> None:
    """--generate: print the current replicas of topics, and proposed replicas on these brokers."""
    racks = await cluster.brokers()
    topics = await cluster.topics(names)
    proposed = plan.propose(names, topics, broker_ids, racks, rack_aware, dice)
    console.say(reports.proposal(plan.current_replicas(proposed, topics), proposed))


async def execute(cluster: Cluster, moves: Moves, limits: Limits, console: Console) -> None:
    """--execute: start the reassignments of a file, or change the throttle of reassignments in progress."""
    running = await cluster.reassignments()
    new_throttle_only = limits.throttle is not None and plan.is_new_throttle_only(moves, running)
    if running and not limits.additional and not new_throttle_only:
        raise ToolFailed(plan.RUNNING)
    if limits.throttle == 0 and cluster.removes_throttles:
        raise ToolFailed("--throttle 0: the controller refuses a rate with which nothing moves; -1 means no throttle")
    topics = await cluster.topics(plan.topics_of(moves))
    live = await cluster.brokers()
    plan.check_moves(moves, live, topics)
    slow = None if limits.throttle is None else slow_warning(limits.throttle)
    if slow is not None:
        console.warn(f"Warning: {slow}")
    current = plan.current_replicas(moves, topics)
    targets = {partition: move.replicas for partition, move in moves.items()}
    taken = {*live, *plan.taking_part(running)} if cluster.removes_throttles else live
    throttled = None if limits.throttle is None else plan.throttles_of(limits.throttle, targets, current, running, taken)
    if new_throttle_only and throttled is not None:
        await _throttle_log_dirs(cluster, moves, limits, console)
        await cluster.change_throttle(throttled)
        console.say(reports.throttle_set(throttled.rate))
        console.say(reports.throttle_changed(moves))
        return
    console.say(reports.rollback(current))
    if limits.log_dir_throttle is not None or (throttled is not None and not cluster.removes_throttles):
        console.say(reports.VERIFY_REMINDER)
    await _throttle_log_dirs(cluster, moves, limits, console)
    await _start(cluster, targets, throttled, running, console)
    await _move_log_dirs(cluster, plan.requested_log_dirs(moves), limits.timeout_ms, console)


async def _throttle_log_dirs(cluster: Cluster, moves: Moves, limits: Limits, console: Console) -> None:
    brokers = sorted({broker for _, broker in plan.requested_log_dirs(moves)})
    if limits.log_dir_throttle is not None:
        await cluster.throttle_log_dir_moves(brokers, limits.log_dir_throttle)
        console.say(reports.log_dir_throttle_set(limits.log_dir_throttle))


async def _start(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Ints],
    throttled: Throttles | None,
    running: Mapping[TopicPartition, Assignment],
    console: Console,
) -> None:
    refused = await cluster.start(targets, throttled, running)
    accepted = [partition for partition in targets if partition not in refused]
    if accepted:
        if throttled is not None:
            console.say(reports.throttle_set(throttled.rate))
        console.say(reports.started(accepted))
    _fail("Error reassigning partition", {str(partition): reason for partition, reason in sorted(refused.items())}, console)


async def _move_log_dirs(cluster: Cluster, wanted: dict[Replica, str], timeout_ms: int, console: Console) -> None:
    """Start moves between log directories. Retry for up to `timeout_ms` while brokers do not have the replicas yet."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_ms / 1000
    while wanted:
        outcome = await cluster.move_log_dirs(wanted)
        begun = [replica for replica in wanted if replica not in outcome]
        if begun:
            console.say(reports.log_dir_moves_started(begun))
        wanted = {replica: wanted[replica] for replica, reason in outcome.items() if reason is None}
        _fail("Error moving replica", {f"{p}-{b}": reason for (p, b), reason in sorted(outcome.items()) if reason is not None}, console)
        if wanted and loop.time() >= end:
            waiting = ",".join(f"{partition}-{broker}" for partition, broker in sorted(wanted))
            raise ToolFailed(f"Timed out before these log directory moves could be started: {waiting}")
        if wanted:
            await asyncio.sleep(RETRY_S)


async def verify(cluster: Cluster, moves: Moves, preserve_throttles: bool, console: Console) -> None:
    """--verify: print the status of the reassignments of a file, and remove throttles if nothing is in progress."""
    topics = await cluster.topics(plan.topics_of(moves))
    running = await cluster.reassignments()
    console.say(reports.verified(moves, topics, running))
    moving = await _verify_log_dirs(cluster, moves, console)
    if not running and not moving and not preserve_throttles:
        await _remove_throttles(cluster, moves, console)


async def _verify_log_dirs(cluster: Cluster, moves: Moves, console: Console) -> bool:
    """Print the state of each replica for which the file names a directory. Return whether one is still being moved."""
    wanted = plan.requested_log_dirs(moves)
    if not wanted:
        return False
    live = await cluster.brokers()
    held = await cluster.replicas_of(sorted({broker for _, broker in wanted if broker in live}))
    outcomes = [reports.log_dir_move(replica, directory, held) for replica, directory in sorted(wanted.items())]
    for line, _ in outcomes:
        console.say(line)
    return any(is_moving for _, is_moving in outcomes)


async def _remove_throttles(cluster: Cluster, moves: Moves, console: Console) -> None:
    live = await cluster.brokers()
    topics = await cluster.topics(plan.topics_of(moves))
    absent = [broker for broker in plan.brokers_of(moves) if broker not in live]
    console.say(reports.clearing(sorted(live), plan.topics_of(moves)))
    if absent:
        console.warn(f"Throttles of these brokers are not removed, because they are not alive: {reports.ids(absent)}")
    await cluster.remove_throttles(sorted(live), sorted(topics))


async def cancel(cluster: Cluster, moves: Moves, preserve_throttles: bool, console: Console) -> None:
    """--cancel: cancel the reassignments and moves of a file that are in progress, and remove throttles.

    If the controller removes throttles itself, it does so when the last reassignment ends. Until then, other reassignments keep their
    throttles (R179-24).
    """
    running = await cluster.reassignments()
    active = sorted(partition for partition in moves if partition in running)
    refused = await cluster.cancel(active) if active else {}
    ended = [partition for partition in active if partition not in refused]
    if ended or not active:
        console.say(reports.cancelled(ended) if ended else reports.NOTHING_TO_CANCEL)
    _fail("Error cancelling partition reassignment", {str(partition): reason for partition, reason in refused.items()}, console)
    await _cancel_log_dirs(cluster, moves, console)
    if preserve_throttles:
        return
    if cluster.removes_throttles:
        await _remove_log_dir_throttles(cluster, moves, console)
        console.say(reports.CONTROLLER_REMOVES)
    else:
        await _remove_throttles(cluster, moves, console)


async def _remove_log_dir_throttles(cluster: Cluster, moves: Moves, console: Console) -> None:
    """Remove the rates of moves between log directories, because no controller does. Brokers on which such a move is still in progress keep
    theirs.
    """
    named = sorted({broker for _, broker in plan.requested_log_dirs(moves)})
    live = await cluster.brokers() if named else {}
    held = await cluster.replicas_of([broker for broker in named if broker in live])
    idle = [broker for broker in held if all(replica.future_dir is None for replica in held[broker].replicas.values())]
    if idle:
        console.say(reports.clearing_log_dirs(idle))
        await cluster.remove_log_dir_throttles(idle)


async def _cancel_log_dirs(cluster: Cluster, moves: Moves, console: Console) -> None:
    """Cancel moves between log directories: a move ends if its replica is assigned to the directory where it already is."""
    wanted = plan.requested_log_dirs(moves)
    if not wanted:
        console.say(reports.NO_MOVE_TO_CANCEL)
        return
    live = await cluster.brokers()
    held = await cluster.replicas_of(sorted({broker for _, broker in wanted if broker in live}))
    back = {}
    for (partition, broker), directory in wanted.items():
        replica = held[broker].replicas.get(partition) if broker in held else None
        if replica is not None and replica.future_dir == directory:
            back[partition, broker] = replica.log_dir
    outcome = await cluster.move_log_dirs(back) if back else {}
    ended = [replica for replica in back if replica not in outcome]
    if ended or not back:
        console.say(reports.log_dir_moves_cancelled(ended) if ended else reports.NO_MOVE_TO_CANCEL)
    gone = "the broker does not have the replica"
    _fail("Error cancelling move of replica", {f"{p}-{b}": gone if r is None else r for (p, b), r in outcome.items()}, console)


async def show_list(cluster: Cluster, console: Console, as_json: bool = False) -> None:
    """--list: print all reassignments in progress, as text or as one line of JSON."""
    running = await cluster.reassignments()
    console.say(reports.as_line(reports.listed_as_json(running)) if as_json else reports.listed(running))


def _fail(what: str, reasons: Mapping[str, str], console: Console) -> None:
    """Raise ToolFailed if something was refused. Several reasons are printed first, one line each."""
    if len(reasons) == 1:
        ((name, reason),) = reasons.items()
        raise ToolFailed(f"{what} {name}: {reason}")
    for name, reason in reasons.items():
        console.warn(f"{what} {name}: {reason}")
    if reasons:
        raise ToolFailed(f"{len(reasons)} of these failed")
