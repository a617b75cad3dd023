"""The topics of the brokers in one process: methods of `BrokerControl`. Topics are changed by requests to the controller."""

from __future__ import annotations

from klamm.control import views
from klamm.control.bodies import PartitionsBody, TopicBody
from klamm.control.json_object import JsonObject
from klamm.control.own_brokers import OwnBrokers
from klamm.control.refusal import Refused
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.controller.values import StoreLost
from klamm.server.broker_server import BrokerServer

__tracebackhide__ = True  # pytest leaves out the lines of this module


class Topics:
    """The topics of these brokers."""

    def __init__(self, cluster: OwnBrokers) -> None:
        self._cluster = cluster

    def serving(self) -> list[BrokerServer]:
        """The brokers that run and are not paused."""
        return [broker for broker in self._cluster.awake if broker.started]

    async def topics(self, states: bool = False) -> list[JsonObject]:
        """All topics with their numbers of partitions, as the controller has them in its metadata if it is here. With `states` also the
        leader, the ISR and the replicas of each partition.
        """
        serving = self.serving()
        if not serving:
            raise Refused("no broker runs and responds", 409)
        asked = next((each for each in serving if each.id == self._cluster.controller_id), serving[0])
        shown = []
        for name, topic in sorted(asked.metadata.topics.items()):
            row: JsonObject = {"name": name, "partitions": len(topic.partitions)}
            shown.append(row | {"states": views.cached_states(topic)} if states else row)
        return shown

    async def topic(self, name: str) -> JsonObject:
        """A topic as ZooKeeper and each broker see it. A broker that is connected to ZooKeeper reads it.

        A name that no topic may have is not read: not every text may be in a path of ZooKeeper.
        """
        if not is_valid_name(name):
            raise Refused(f"there is no topic {name!r}", 404)
        connected = [broker for broker in self.serving() if broker.zk.is_connected]
        if not connected:
            raise Refused("no broker is connected to ZooKeeper", 409)
        try:
            return await views.topic(connected[0], self._cluster.brokers, name)
        except StoreLost as lost:
            raise Refused(f"broker {connected[0].id} cannot read the topic: {lost}", 409) from None

    async def create_topic(self, body: TopicBody) -> None:
        """Create a topic by a request to the controller."""
        from klamm.control.topic_requests import create_topic

        await create_topic(self._cluster, body)

    async def add_partitions(self, name: str, body: PartitionsBody) -> None:
        """Let a topic have more partitions, by a request to the controller."""
        from klamm.control.topic_requests import add_partitions

        await add_partitions(self._cluster, name, body)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic by a request to the controller. Returns when no broker of this process shows it."""
        from klamm.control.topic_requests import delete_topic

        await delete_topic(self._cluster, name)
