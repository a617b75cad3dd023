"""The waits of a cluster for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from klamm.broker.groups.states import GroupState
from klamm.control.history import Exchange
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.testing.arguments import RequestFilter
from klamm.testing.cluster_requests import ClusterRequests
from klamm.testing.cluster_text import group_text, topic_text
from klamm.testing.request import Request
from klamm.testing.waits import TIMEOUT_S, Condition, WaitTimedOut, until

__tracebackhide__ = True  # pytest leaves out the lines of this module

GROUP_STATES = tuple(each.value for each in GroupState)
TIMED_OUT = 408
"""The status of what was waited for in vain."""


class ClusterWaits(ClusterRequests):
    """A running cluster, as `AsyncCluster` has it."""

    async def wait_for_configs(self, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all running brokers have processed the last changes of dynamic configs, SCRAM users, quotas and ACLs. As with Kafka, a
        request that changes them has its response earlier.
        """
        begun = self.here()
        try:
            await self._then(self._control.configs_processed(timeout_ms=round(timeout_s * 1000)))
        except Refused as refused:
            if refused.status != TIMED_OUT:
                raise
            what = "all brokers have processed the last changes of configs, users, quotas and ACLs"
            raise WaitTimedOut(await self.wait_text(what, timeout_s, begun)) from None

    async def wait_for_leader(
        self, topic: str, partition: int, leader: int | None = None, *, other_than: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until every running broker shows this leader, without `leader` the same one, any but `other_than`. Returns
        its id.
        """
        wanted = "a leader" if leader is None else f"leader {leader}"
        what = f"{wanted}{_but(other_than)} of {topic}-{partition} in the metadata of all brokers"

        async def shown() -> tuple[int, ...]:
            rows = await self._then(self._control.replicas(topic, partition))
            ids = {row.get("leader", -1) for row in rows.values()}
            return tuple(ids) if len(ids) == 1 and ids.isdisjoint((-1, other_than)) and leader in (None, *ids) else ()

        return int((await until(self, shown, what, timeout_s, lambda: self._topic_text(topic)))[0])

    async def wait_for_isr(self, topic: str, partition: int, isr: Iterable[int], *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until every running broker shows these in-sync replicas, in any order."""
        wanted = set(isr)

        async def shown() -> bool:
            rows = await self._then(self._control.replicas(topic, partition))
            return bool(rows) and all("isr" in row and set(row["isr"]) == wanted for row in rows.values())

        what = f"isr {sorted(wanted)} of {topic}-{partition} in the metadata of all brokers"
        await until(self, shown, what, timeout_s, lambda: self._topic_text(topic))

    async def wait_for_controller(
        self, broker: int | None = None, *, other_than: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until every running broker shows the active controller, without `broker` any but `other_than`. Returns its id."""

        async def agreed() -> tuple[int, ...]:
            active, others = await self._then(self._control.controllers())
            is_shown = active >= 0 and all(each == active for each in others.values())
            return (active,) if is_shown and active != other_than and broker in (None, active) else ()

        wanted = "a controller" if broker is None else f"broker {broker} as the controller"
        what = f"{wanted}{_but(other_than)} that all brokers show"
        return int((await until(self, agreed, what, timeout_s))[0])

    async def wait_for_high_watermark(self, topic: str, partition: int, offset: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until consumers can read all records below this offset: the leader's high watermark is there."""

        async def is_there() -> bool:
            rows = await self._then(self._control.replicas(topic, partition))
            return any(row.get("role") == "leader" and row["high_watermark"] >= offset for row in rows.values())

        what = f"high watermark {offset} of {topic}-{partition}"
        await until(self, is_there, what, timeout_s, lambda: self._topic_text(topic))

    async def wait_for_replicas(
        self, topic: str, partition: int, offset: int, brokers: Iterable[int] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Wait until the logs of these brokers, or of all running replicas, have all records below this offset."""
        wanted = None if brokers is None else set(brokers)

        async def are_there() -> bool:
            rows = await self._then(self._control.replicas(topic, partition))
            ends = {number: row["log_end_offset"] for number, row in rows.items() if "log_end_offset" in row}
            asked = set(ends) if wanted is None else wanted
            return bool(asked) and all(ends.get(number, -1) >= offset for number in asked)

        what = f"replicas {'that run' if wanted is None else sorted(wanted)} of {topic}-{partition} with all records below {offset}"
        await until(self, are_there, what, timeout_s, lambda: self._topic_text(topic))

    async def wait_for_reassignment(self, topic: str, partition: int | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until no partition of the topic, or not this one, is being reassigned."""

        async def has_ended() -> bool:
            shown = await self._then(self._control.topic(topic))
            rows = [row for row in shown["partitions"] if partition in (None, row["partition"])]
            return bool(rows) and not any(row["adding"] or row["removing"] for row in rows)

        name = topic if partition is None else f"{topic}-{partition}"
        await until(self, has_ended, f"the end of the reassignment of {name}", timeout_s, lambda: self._topic_text(topic))

    async def wait_for_group(
        self, name: str, state: str = "Stable", *, members: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> JsonObject:
        """Wait until a group is in this state, and has this number of members. Returns the group."""
        if state not in GROUP_STATES:
            raise Refused(f"state: {state!r} is none of {', '.join(GROUP_STATES)}")

        async def groups() -> list[JsonObject]:
            return list((await self._then(self._control.groups()))["groups"])

        async def shown() -> JsonObject | None:
            group = next((each for each in await groups() if each["group"] == name), None)
            if group is None:
                return {"group": name, "state": "Dead", "members": []} if state == "Dead" else None
            return group if group["state"] == state and members in (None, len(group["members"])) else None

        async def view() -> str:
            return group_text(await groups(), name)

        what = f"group {name} in state {state}" + ("" if members is None else f" with {members} members")
        found: JsonObject = await until(self, shown, what, timeout_s, view)
        return found

    async def wait_for_requests(self, count: int = 1, *, timeout_s: float = TIMEOUT_S, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """Wait until clients have sent this number of requests that match, since this object was made. Returns all that match."""
        named = ", ".join(f"{key}={value}" for key, value in wanted.items())
        matching: dict[int, Exchange] = {}
        wanted["after"] = max(self.begun.request, wanted.get("after", 0))

        def sent() -> list[Exchange]:
            """Looks at each request until it has its response, and not again."""
            last = self._control.history.last()
            newest = self._all_exchanges(after=wanted["after"])
            matching.update((each.number, each) for each in self._exchanges(**wanted))
            open_numbers = [each.number for each in newest if each.response is None]
            if newest:
                wanted["after"] = max(wanted["after"], min([last, newest[0].number, *(number - 1 for number in open_numbers)]))
            return [matching[number] for number in sorted(matching)] if len(matching) >= count else []

        found = await until(self, sent, f"{count} requests" + (f" with {named}" if named else ""), timeout_s)
        return [Request(each) for each in found]

    async def wait_until(self, condition: Condition, what: str = "the condition", *, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until the condition, a function or coroutine function, returns something true, and return that."""
        return await until(self, condition, what, timeout_s)

    async def _topic_text(self, name: str) -> str:
        return topic_text(await self._then(self._control.topic(name)))


def _but(broker: int | None) -> str:
    return "" if broker is None else f" other than {broker}"
