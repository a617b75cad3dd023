"""Links between brokers as faults on the requests that they send to each other."""

from __future__ import annotations

from klamm.control.bodies import EffectBody, FaultBody, FilterBody, LinkBody
from klamm.control.refusal import Refused

__tracebackhide__ = True  # pytest leaves out the lines of this module


def faults_of_link(body: LinkBody) -> list[FaultBody]:
    """The faults of a link, for one direction or both. Raises Refused."""
    if body.from_broker == body.to_broker:
        raise Refused("a link is between two brokers")
    if body.cut == bool(body.delay_ms):
        raise Refused("a link has one of cut and delay_ms")
    ways = [(body.from_broker, body.to_broker)] + [(body.to_broker, body.from_broker)] * body.both
    effect = EffectBody(delay_ms=body.delay_ms, close="before" if body.cut else None)
    return [FaultBody(filter=FilterBody(from_broker=sender, broker=receiver), effect=effect) for sender, receiver in ways]
