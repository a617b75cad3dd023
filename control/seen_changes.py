"""What of the controller's changes is new. A new controller reads the whole cluster, so most of its first changes are known already."""

from __future__ import annotations

from klamm.control.json_object import JsonObject
from klamm.controller.changes import Change, StatesChanged, TopicAdded, TopicRemoved
from klamm.controller.values import LeaderAndIsr
from klamm.protocol.nouns import TopicPartition


class SeenChanges:
    """Remembers topics and states of partitions over controllers."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, LeaderAndIsr | None] = {}
        self._topics: set[str] = set()

    def new(self, change: Change) -> Change | None:
        """The change without what is known; None if nothing is left of it."""
        match change:
            case StatesChanged(states):
                news = tuple((partition, state) for partition, state in states if self._is_new(partition, state))
                self._states.update(news)
                return StatesChanged(news) if news else None
            case TopicAdded(topic):
                if topic in self._topics:
                    return None
                self._topics.add(topic)
            case TopicRemoved(topic):
                self._topics.discard(topic)
                for partition in [each for each in self._states if each.topic == topic]:
                    del self._states[partition]
        return change

    def _is_new(self, partition: TopicPartition, state: LeaderAndIsr | None) -> bool:
        known = self._states.get(partition)
        if known is None or state is None:
            return known is not state
        return (known.leader, known.isr, known.leader_epoch) != (state.leader, state.isr, state.leader_epoch)


class SeenRows:
    """As `SeenChanges` for changes as `views.change` shows them, which come from several processes."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], JsonObject] = {}

    def new(self, change: JsonObject) -> JsonObject | None:
        """The change without what is known; None if nothing is left of it."""
        if change["change"] == "TopicRemoved":
            self._rows = {key: row for key, row in self._rows.items() if key[0] != change["topic"]}
        if change["change"] != "StatesChanged":
            return change
        rows = [row for row in change["partitions"] if self._rows.get((row["topic"], row["partition"])) != row]
        self._rows |= {(row["topic"], row["partition"]): row for row in rows}
        return change | {"partitions": rows} if rows or change["more"] else None
