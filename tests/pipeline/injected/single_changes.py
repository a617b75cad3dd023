"""Injections that change one message, and words for what they look for. For the violations and counterparts of the story `controllers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    Row,
    change,
    injected,
)

LEAD, UPDATE, STOP = Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.STOP_REPLICA


def states(body: Any) -> list[Any]:
    """The partition states of LeaderAndIsr or UpdateMetadata."""
    return [state for topic in body.topic_states for state in topic.partition_states]


def always(body: Any, row: Row) -> bool:
    return True


def simple(rule: str, name: str, key: int, direction: int, wanted: Callable[..., bool], how: Callable[[Any], Any], **more: Any) -> None:
    """An injection that changes one frame."""
    which = more.pop("which", 0)
    injected(rule, name, **more)(lambda world: change(world, key, direction, wanted, how, which=which))


def with_state(wanted: Callable[[Any], bool], how: Callable[[Any], None]) -> tuple[Callable[..., bool], Callable[[Any], None]]:
    """For the first partition state that is wanted."""

    def has(body: Any, row: Row) -> bool:
        return any(map(wanted, states(body)))

    def apply(body: Any) -> None:
        how(next(filter(wanted, states(body))))

    return has, apply


def setting(**values: Any) -> Callable[[Any], None]:
    """Give these attributes values; a function gets the value before."""

    def apply(thing: Any) -> None:
        for name, value in values.items():
            setattr(thing, name, value(getattr(thing, name)) if callable(value) else value)

    return apply


def led(state: Any) -> bool:
    return bool(state.leader > 0)


def is_later(state: Any) -> bool:
    return bool(state.leader > 0 and state.leader_epoch >= 2)


def ordinary(body: Any, row: Row) -> bool:
    """A frame of a client."""
    return row["kind"] == "accepted" and row["peer_id"] is None
