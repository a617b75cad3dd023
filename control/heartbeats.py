"""Time that passes in steps, so that members and brokers that are alive can show it in between.

The clock of brokers can be advanced; consumers, and the connections between brokers, live in real time. Time that passes at once is longer
than sessions of members, the lag that a follower may have, and sessions of brokers that register with the controller, so it would expel
those that are alive too. Between two steps everybody is waited for who was heard before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from klamm.control.refusal import Refused
from klamm.server.broker_server import BrokerServer

ALIVE_S = 6.0
"""Who is not heard for this time (s), twice the usual `heartbeat.interval.ms`, is not alive, and is not waited for again."""
MAX_STEPS = 1000
LOOK_S = 0.005
Heard = Mapping[str, int]
"""Who has to show that it is alive → a number that changes whenever it does."""


def heard_by(broker: BrokerServer) -> dict[str, int]:
    """Who has to show this broker that it is alive: members of groups, followers that lack records, registered brokers."""
    heard = {
        f"member {member.member_id} of group {group.group_id}": member.deadline_ms
        for group in broker.services.groups.groups() for member in group.members.values() if not member.is_waiting
    }
    for topic, index, hosted in broker.replicas:
        if hosted.leadership is not None:
            end_offset = hosted.log_end_offset
            heard |= {
                f"follower {number} of {topic}-{index}": follower.last_caught_up_ms
                for number, follower in hosted.leadership.followers.items()
                if number in hosted.isr and max(follower.log_end_offset, 0) < end_offset
            }
    term = broker.controller.term if broker.controller.is_active else None
    if term is not None:
        heard |= {f"broker {number}": round(heard_at * 1000) for number, heard_at in term.sessions.heard_at().items()}
    return heard


def check_step(ms: int, step_ms: int) -> None:
    """Raises Refused for steps that are none, or too many."""
    if step_ms < 1 or -(-ms // step_ms) > MAX_STEPS:
        raise Refused(f"step_ms: 1 or more, and at most {MAX_STEPS} steps")


async def advance_in_steps(
    ms: int, step_ms: int, advance: Callable[[int], Awaitable[int]], look: Callable[[], Awaitable[Heard]]
) -> tuple[int, list[str]]:
    """Let time pass in steps; returns how many timers fired, and who was waited for in vain. `advance` lets some time (ms) pass at once."""
    fired, left_ms, silent = 0, ms, set[str]()
    while left_ms > 0:
        part_ms = min(step_ms, left_ms)
        left_ms -= part_ms
        fired += await advance(part_ms)
        silent |= await _silent(look, silent)
    return fired, sorted(silent)


async def _silent(look: Callable[[], Awaitable[Heard]], known: set[str]) -> set[str]:
    """Wait until all are heard but those who are known to be silent. Returns who was not heard in ALIVE_S."""
    before = await look()
    waiting = before.keys() - known
    loop = asyncio.get_running_loop()
    end = loop.time() + ALIVE_S
    while waiting and loop.time() < end:
        await asyncio.sleep(LOOK_S)
        now = await look()
        waiting = {each for each in waiting if now.get(each) == before[each]}
    return waiting
