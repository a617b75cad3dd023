"""The verbs of `Control` for topics, groups and transactional ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.control.bodies import MemberBody, PartitionsBody, TopicBody
from klamm.control.broker_control import BrokerControl
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.state import View
from klamm.control.verbs.parts import Call, Silent, call
from klamm.control.verbs.shown import LOOK_S, until_shown
from klamm.control.verbs.subject import Subject
from klamm.protocol.errors import ErrorCode
from klamm.server.local.shown import controller_of

__tracebackhide__ = True  # pytest leaves out the lines of this module

TOPIC_S = 40.0


class TopicVerbs(Subject):
    """Topics are changed by the part of the controller; groups and transactional ids are with their coordinators."""

    async def topics(self, *, states: bool = False) -> JsonObject:
        """Names and numbers of partitions of all topics, as the controller's broker has them in its metadata.

        With `states` each topic has the leader, the ISR and the replicas of each partition too.
        """
        answers = await self.parts.ask(call(BrokerControl.topics, states))
        answers.some()
        active = await self.parts.ask(call(BrokerControl.controller))
        asked = next((key for key, each in active.done.items() if each is not None and key in answers.done), next(iter(answers.done)))
        return {"topics": answers.done[asked]} | answers.missing

    async def topic(self, name: str) -> JsonObject:
        """A topic as ZooKeeper and each broker see it."""
        answers = await self.parts.ask(call(BrokerControl.topic, name))
        whole, *others = answers.some()
        for row in whole["partitions"]:
            for other in others:
                for each in other["partitions"]:
                    if each["partition"] == row["partition"]:
                        row["brokers"] |= each["brokers"]
        return whole | answers.missing

    async def replicas(self, topic: str, partition: int) -> dict[int, JsonObject]:
        """A partition as each broker that responds sees it: leader and ISR in its metadata, and its replica, if it has one."""
        answers = await self.parts.ask(call(BrokerControl.replicas, topic, partition))
        return {broker: each for rows in answers.done.values() for broker, each in rows.items()}

    async def create_topic(self, body: TopicBody) -> JsonObject:
        """Create a topic by a request to the controller. Returns when every broker that responds shows it, with leaders."""
        await self._at_controller(call(BrokerControl.create_topic, body), ErrorCode.TOPIC_ALREADY_EXISTS)
        await self._until_all(lambda view: view.topic_has_leaders, f"all brokers show topic {body.name!r}", body.name)
        self.events.add("topic", {"created": body.name})
        return await self.topic(body.name)

    async def add_partitions(self, name: str, body: PartitionsBody) -> JsonObject:
        """Let a topic have more partitions. Returns when every broker that responds shows them, with leaders."""
        count = body.partitions
        await self._at_controller(call(BrokerControl.add_partitions, name, body), ErrorCode.INVALID_PARTITIONS)
        what = f"all brokers show {count} partitions of topic {name!r}"
        await self._until_all(lambda view: view.topic_has_leaders and view.topic_partitions >= count, what, name)
        self.events.add("topic", {"grown": name, "partitions": count})
        return await self.topic(name)

    async def delete_topic(self, name: str) -> JsonObject:
        """Delete a topic by a request to the controller. Returns when no broker that responds shows it."""
        await self._at_controller(call(BrokerControl.delete_topic, name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._until_all(lambda view: not view.topic_partitions, f"no broker shows topic {name!r}", name)
        self.events.add("topic", {"deleted": name})
        return {"name": name}

    async def _until_all(self, holds: Callable[[View], bool], what: str, topic: str) -> None:
        await until_shown(self.parts, lambda shown: all(map(holds, shown.values())), what, topic=topic)

    async def _at_controller(self, wanted: Call[None], done: ErrorCode) -> None:
        """Let the controller's part do this, or that of the next controller if it ends meanwhile. `done` is then the error that says that
        the former one did it.
        """
        is_repeated = False
        try:
            async with asyncio.timeout(TOPIC_S):
                while True:
                    shown = await until_shown(self.parts, lambda shown: controller_of(shown) >= 0, "there is a controller")
                    part = self.parts.parts.get(self.parts.key_of(controller_of(shown)))
                    try:
                        if part is not None:
                            return await part.done(wanted, TOPIC_S)
                    except Silent:
                        is_repeated = True
                    except Refused as refused:
                        if not is_repeated or done.name not in str(refused):
                            raise
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise Refused(f"the controller did not respond within {TOPIC_S:g} s", 408) from None

    # --- groups and transactional ids

    async def groups(self) -> JsonObject:
        """All groups that the coordinators among the brokers have that respond."""
        answers = await self.parts.ask(call(BrokerControl.groups))
        return {"groups": [row for rows in answers.done.values() for row in rows]} | answers.missing

    async def group(self, name: str) -> JsonObject:
        """A group."""
        return (await self.parts.ask(call(BrokerControl.group, name))).some()[0]

    async def expire_members(self, name: str, body: MemberBody) -> JsonObject:
        """Let the session of a member, or of all members, time out now: their group removes them and rebalances."""
        return await self._at_coordinator(await self.group(name), call(BrokerControl.expire_members, name, body))

    async def rebalance(self, name: str) -> JsonObject:
        """Let a group rebalance now."""
        return await self._at_coordinator(await self.group(name), call(BrokerControl.rebalance, name))

    async def transactions(self) -> JsonObject:
        """All transactional ids that the coordinators among the brokers have that respond."""
        answers = await self.parts.ask(call(BrokerControl.transactions))
        return {"transactions": [row for rows in answers.done.values() for row in rows]} | answers.missing

    async def transaction(self, name: str) -> JsonObject:
        """A transactional id."""
        return (await self.parts.ask(call(BrokerControl.transaction, name))).some()[0]

    async def expire_transaction(self, name: str) -> JsonObject:
        """Let the time-out of the open transaction of an id be over now: its coordinator aborts it and fences the producer."""
        return await self._at_coordinator(await self.transaction(name), call(BrokerControl.expire_transaction, name))

    async def _at_coordinator(self, shown: JsonObject, wanted: Call[JsonObject]) -> JsonObject:
        return await self.parts.one(shown["coordinator"], wanted)
