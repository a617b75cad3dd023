"""The verbs of `Control` about topics: they are read from the brokers, and changed by requests to the controller."""

from __future__ import annotations

from collections.abc import Callable

from klamm.control import views
from klamm.control.bodies import PartitionsBody, TopicBody
from klamm.control.brokers import Brokers
from klamm.control.event_log import EventLog
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.controller.values import StoreLost
from klamm.server.broker_server import BrokerServer

__tracebackhide__ = True  # pytest leaves out the lines of this module


class Topics:
    """The topics of these brokers. What changes is written to `events`."""

    def __init__(self, cluster: Brokers, events: EventLog, serving: Callable[[], list[BrokerServer]]) -> None:
        """`serving` returns the brokers that run and are not paused."""
        self._cluster = cluster
        self._events = events
        self._serving = serving

    def topics(self, states: bool = False) -> JsonObject:
        """Names and numbers of partitions of all topics, as the controller's broker has them in its metadata.

        With `states` each topic has the leader, the ISR and the replicas of each partition too.
        """
        shown = []
        for name, topic in sorted(self._any().metadata.topics.items()):
            row: JsonObject = {"name": name, "partitions": len(topic.partitions)}
            shown.append(row | {"states": views.cached_states(topic)} if states else row)
        return {"topics": shown}

    async def topic(self, name: str) -> JsonObject:
        """A topic as ZooKeeper and each broker see it. A broker that is connected to ZooKeeper reads it.

        A name that no topic may have is not read: not every text may be in a path of ZooKeeper.
        """
        if not is_valid_name(name):
            raise Refused(f"there is no topic {name!r}", 404)
        connected = [broker for broker in self._serving() if broker.started and broker.zk.is_connected]
        if not connected:
            raise Refused("no broker is connected to ZooKeeper", 409)
        try:
            return await views.topic(connected[0], self._cluster.brokers, name)
        except StoreLost as lost:
            raise Refused(f"broker {connected[0].id} cannot read the topic: {lost}", 409) from None

    async def create_topic(self, body: TopicBody) -> JsonObject:
        """Create a topic by a request to the controller. Returns when every running broker shows it, each partition with a leader."""
        from klamm.control.topic_requests import create_topic

        await create_topic(self._cluster, body)
        self._events.add("topic", {"created": body.name})
        return await self.topic(body.name)

    async def add_partitions(self, name: str, body: PartitionsBody) -> JsonObject:
        """Let a topic have more partitions, by a request to the controller. Returns when every running broker shows them with leaders."""
        from klamm.control.topic_requests import add_partitions

        await add_partitions(self._cluster, name, body)
        self._events.add("topic", {"grown": name, "partitions": body.partitions})
        return await self.topic(name)

    async def delete_topic(self, name: str) -> JsonObject:
        """Delete a topic by a request to the controller. Returns when no running broker shows it."""
        from klamm.control.topic_requests import delete_topic

        await delete_topic(self._cluster, name)
        self._events.add("topic", {"deleted": name})
        return {"name": name}

    def _any(self) -> BrokerServer:
        """A broker that can be asked: the controller, if it is not paused."""
        serving = self._serving()
        if not serving:
            raise Refused("no broker runs and responds", 409)
        return next((each for each in serving if each.id == self._cluster.controller_id), serving[0])
