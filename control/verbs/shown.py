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
