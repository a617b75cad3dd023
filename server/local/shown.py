"""What the brokers of a cluster show of it, and when that is the outcome of a step: of brokers in this process, and of what others told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from klamm.broker.metadata_cache import CachedPartition
from klamm.server.broker_server import BrokerServer


class Shown(Protocol):
    """What one broker shows of the cluster, and of another broker."""

    @property
    def controller_id(self) -> int: ...
    @property
    def is_controller(self) -> bool: ...
    @property
    def is_online(self) -> bool: ...
    @property
    def topics(self) -> AbstractSet[str]: ...
    @property
    def propagated(self) -> AbstractSet[str]:
        """The topics that it has told the brokers of, if it is the controller."""

    @property
    def shows_broker(self) -> bool: ...
    @property
    def shows_as_leader(self) -> bool: ...
    @property
    def shows_without_leader(self) -> bool:
        """Whether a partition with that broker in its ISR has no leader."""


class LiveView:
    """The `Shown` of a broker in this process, as it is when it is looked at. `about` is the other broker."""

    def __init__(self, broker: BrokerServer, about: int | None = None) -> None:
        self._broker = broker
        self._about = about

    @property
    def _partitions(self) -> Iterable[CachedPartition]:
        return (partition for topic in self._broker.metadata.topics.values() for partition in topic.partitions.values())

    @property
    def controller_id(self) -> int:
        """-1 without one."""
        shown = self._broker.metadata.controller_id
        return -1 if shown is None else shown

    @property
    def is_controller(self) -> bool:
        return self._broker.controller.is_active

    @property
    def is_online(self) -> bool:
        return self._broker.is_online

    @property
    def topics(self) -> AbstractSet[str]:
        return self._broker.metadata.topics.keys()

    @property
    def propagated(self) -> AbstractSet[str]:
        return self._broker.controller.propagated_topics()

    @property
    def shows_broker(self) -> bool:
        return self._about in self._broker.metadata.brokers

    @property
    def shows_as_leader(self) -> bool:
        return any(each.leader == self._about for each in self._partitions)

    @property
    def shows_without_leader(self) -> bool:
        return any(each.leader < 0 and self._about in each.isr for each in self._partitions)


def controller_of(shown: Mapping[int, Shown]) -> int:
    """The controller, if all agree; -1 otherwise. `shown` is what each broker shows that responds."""
    ids = {view.controller_id for view in shown.values()}
    number = ids.pop() if len(ids) == 1 else -1
    return number if number in shown and shown[number].is_controller else -1


def is_shown_by_all(shown: Mapping[int, Shown], number: int) -> bool:
    """Whether all brokers show this one, it shows all topics, and no partition that it can lead is without a leader."""
    controller = controller_of(shown)
    if controller < 0 or number not in shown or not shown[number].is_online:
        return False
    return (
        all(view.shows_broker for view in shown.values())
        and shown[controller].propagated <= shown[number].topics
        and not any(view.shows_without_leader for view in shown.values())
    )


def is_forgotten(shown: Mapping[int, Shown], number: int) -> bool:
    """Whether no other broker shows this one, neither as a broker nor as a leader."""
    others = [view for broker, view in shown.items() if broker != number]
    return not others or (
        controller_of(shown) not in (-1, number) and not any(view.shows_broker or view.shows_as_leader for view in others)
    )
