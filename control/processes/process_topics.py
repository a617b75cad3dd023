"""Topics, groups and transactions of a cluster whose brokers are in processes of their own: the verbs of `Control` about them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from klamm.control.bodies import MemberBody, PartitionsBody, TopicBody
from klamm.control.json_object import JsonObject
from klamm.control.processes.broker_processes import BrokerProcesses
from klamm.control.processes.process_steps import ProcessSteps
from klamm.control.refusal import Refused
from klamm.protocol.errors import ErrorCode

_NOBODY = "no broker runs and responds"


class ProcessTopics:
    """Asks the processes, and lets the controller's process or that of a coordinator change something."""

    def __init__(self, processes: BrokerProcesses, steps: ProcessSteps) -> None:
        self._processes = processes
        self._steps = steps

    async def topics(self, states: bool = False) -> JsonObject:
        """Names and numbers of partitions of all topics, as the controller's broker has them in its metadata.

        With `states` each topic has the leader, the ISR and the replicas of each partition too.
        """
        answers, missing = await self._processes.ask("GET", "/topics", query={"states": states})
        shown = {broker: answer for broker, answer in answers.items() if not isinstance(answer, Refused)}
        if not shown:
            raise Refused(_NOBODY, 409)
        controller = await self._processes.controller_id()
        topics: JsonObject = shown[controller] if controller in shown else next(iter(shown.values()))
        return topics | missing

    async def topic(self, name: str) -> JsonObject:
        """A topic as ZooKeeper and each broker see it."""
        answers, missing = await self._processes.ask("GET", _path("topics", name))
        shown = [answer for answer in _done(answers).values() if isinstance(answer, dict)]
        whole: JsonObject = shown[0]
        for row in whole["partitions"]:
            for other in shown[1:]:
                for each in other["partitions"]:
                    if each["partition"] == row["partition"]:
                        row["brokers"] |= each["brokers"]
        return whole | missing

    async def replicas(self, topic: str, partition: int) -> dict[int, JsonObject]:
        """A partition as each broker that responds sees it: leader and ISR in its metadata, and its replica, if it has one."""
        answers, _ = await self._processes.ask("GET", "/own/replica", query={"topic": topic, "partition": partition})
        return {broker: answer for broker, answer in answers.items() if not isinstance(answer, Refused)}

    async def create_topic(self, body: TopicBody) -> JsonObject:
        """Create a topic by a request to the controller. Returns when every broker that responds shows it, with leaders."""
        await self._steps.at_controller("POST", "/topics", msgspec.to_builtins(body), ErrorCode.TOPIC_ALREADY_EXISTS)
        await self._steps.until_shown(
            lambda shown: all(each["topic_has_leaders"] for each in shown.values()), f"all brokers show topic {body.name!r}",
            topic=body.name,
        )  # fmt: skip
        self._processes.events.add("topic", {"created": body.name})
        return await self.topic(body.name)

    async def add_partitions(self, name: str, body: PartitionsBody) -> JsonObject:
        """Let a topic have more partitions. Returns when every broker that responds shows them, with leaders."""
        path, count = f"{_path('topics', name)}/partitions", body.partitions
        await self._steps.at_controller("POST", path, msgspec.to_builtins(body), ErrorCode.INVALID_PARTITIONS)
        await self._steps.until_shown(
            lambda shown: all(each["topic_has_leaders"] and each["topic_partitions"] >= count for each in shown.values()),
            f"all brokers show {count} partitions of topic {name!r}", topic=name,
        )  # fmt: skip
        self._processes.events.add("topic", {"grown": name, "partitions": count})
        return await self.topic(name)

    async def delete_topic(self, name: str) -> JsonObject:
        """Delete a topic by a request to the controller. Returns when no broker that responds shows it."""
        await self._steps.at_controller("DELETE", _path("topics", name), None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._steps.until_shown(
            lambda shown: not any(each["shows_topic"] for each in shown.values()), f"no broker shows topic {name!r}", topic=name
        )
        self._processes.events.add("topic", {"deleted": name})
        return {"name": name}

    async def groups(self) -> JsonObject:
        """All groups that the coordinators among the brokers have that respond."""
        return await self._listed("groups")

    async def transactions(self) -> JsonObject:
        """All transactional ids that the coordinators among the brokers have that respond."""
        return await self._listed("transactions")

    async def group(self, name: str) -> JsonObject:
        """A group."""
        return await self._one(_path("groups", name))

    async def expire_members(self, name: str, body: MemberBody) -> JsonObject:
        """Let the session of a member, or of all members, time out now: their group removes them and rebalances."""
        return await self._at_coordinator(_path("groups", name), "expire", {"member": body.member})

    async def transaction(self, name: str) -> JsonObject:
        """A transactional id."""
        return await self._one(_path("transactions", name))

    async def expire_transaction(self, name: str) -> JsonObject:
        """Let the time-out of the open transaction of an id be over now: its coordinator aborts it and fences the producer."""
        return await self._at_coordinator(_path("transactions", name), "expire", {})

    async def rebalance(self, name: str) -> JsonObject:
        """Let a group rebalance now."""
        return await self._at_coordinator(_path("groups", name), "rebalance", {})

    async def _one(self, path: str) -> JsonObject:
        """What the coordinator among the brokers shows at this path. Raises Refused."""
        answers, _ = await self._processes.ask("GET", path)
        shown: JsonObject = next(iter(_done(answers).values()))
        return shown

    async def _at_coordinator(self, path: str, verb: str, body: JsonObject) -> JsonObject:
        coordinator = (await self._one(path))["coordinator"]
        answer: JsonObject = await self._processes.ask_one(coordinator, "POST", f"{path}/{verb}", body)
        return answer

    async def _listed(self, kind: str) -> JsonObject:
        answers, missing = await self._processes.ask("GET", f"/{kind}")
        return {kind: [row for each in answers.values() if not isinstance(each, Refused) for row in each[kind]]} | missing


def _path(kind: str, name: str) -> str:
    """The path of a topic, a group or a transactional id, whatever its name is. Raises Refused for a name that is a path itself."""
    if name in (".", ".."):
        raise Refused(f"{name!r} is no name", 404)
    return f"/{kind}/{quote(name, safe='')}"


def _done(answers: dict[int, Any]) -> dict[int, Any]:
    """The answers that are not refused. Raises the first Refused if all are, or if there are none."""
    done = {broker: answer for broker, answer in answers.items() if not isinstance(answer, Refused)}
    for answer in answers.values() if not done else ():
        raise answer
    if not done:
        raise Refused(_NOBODY, 409)
    return done
