"""What brokers show of the cluster, and waits until they show the outcome of a step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from klamm.control.broker_control import BrokerControl
from klamm.control.refusal import Refused
from klamm.control.state import View
from klamm.control.verbs.parts import Parts, call

SHOWN_S = 30.0
"""How long brokers may take to show the outcome of a step."""
LOOK_S = 0.01
Views = Mapping[int, View]
"""What each broker shows that responds."""


async def until_shown(
    parts: Parts, holds: Callable[[Views], bool], what: str, *, broker: int | None = None, topic: str | None = None
) -> Views:
    """Wait until this holds for what the brokers show that respond. Raises Refused after SHOWN_S."""
    try:
        async with asyncio.timeout(SHOWN_S):
            while True:
                answers = await parts.ask(call(BrokerControl.views, broker, topic))
                shown = {number: each for rows in answers.done.values() for number, each in rows.items()}
                if holds(shown):
                    return shown
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise Refused(f"not within {SHOWN_S:g} s: {what}", 408) from None


def controller_of(shown: Views) -> int:
    """The controller, if all agree; -1 otherwise."""
    ids = {view.controller_id for view in shown.values()}
    number = ids.pop() if len(ids) == 1 else -1
    return number if number in shown and shown[number].is_controller else -1


def is_shown_by_all(shown: Views, number: int) -> bool:
    """Whether all brokers show this one, it shows all topics, and no partition that it can lead is without a leader."""
    controller = controller_of(shown)
    if controller < 0 or number not in shown or not shown[number].is_online:
        return False
    return (
        all(view.shows_broker for view in shown.values())
        and shown[controller].propagated <= shown[number].topics
        and not any(view.shows_without_leader for view in shown.values())
    )


def is_forgotten(shown: Views, number: int) -> bool:
    """Whether no other broker shows this one, neither as a broker nor as a leader."""
    others = [view for broker, view in shown.items() if broker != number]
    named = any(view.shows_broker or view.shows_as_leader for view in others)
    return not others or (controller_of(shown) not in (-1, number) and not named)
