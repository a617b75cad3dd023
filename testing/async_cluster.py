"""The verbs of a cluster for tests, on the event loop of the cluster.

They are those of the control API (`klamm.control.verbs`) with types of Python; arguments that are not valid raise `Refused`, a ValueError.
An `AsyncCluster` also remembers when it was made, and which faults and holds were made through it: a test has one of its own.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from klamm.broker.groups.states import GroupState
from klamm.control import bodies, views
from klamm.control.history import Exchange
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.testing.arguments import FaultArguments, RequestFilter, fault_body, texts_of
from klamm.testing.cluster_text import cluster_text, controller_text, group_text, topic_text
from klamm.testing.fault import Fault
from klamm.testing.hold import Hold, hold_body
from klamm.testing.request import Request
from klamm.testing.steered_cluster import Steered
from klamm.testing.transcript import timeline
from klamm.testing.waits import TIMEOUT_S, Condition, Place, WaitTimedOut, until

__tracebackhide__ = True  # pytest leaves out the lines of this module

WRITE = "ZooKeeperWrite"
GROUP_STATES = tuple(each.value for each in GroupState)
SHOWN_REQUESTS = 20
TIMED_OUT = 408
"""The status of what was waited for in vain."""


class AsyncCluster:
    """A running cluster. Its methods are called on the event loop that runs it."""

    def __init__(self, cluster: Steered) -> None:
        self._cluster = cluster
        self._control = cluster.control
        self._now, self._then = cluster.now, cluster.then
        self._suffix = secrets.token_hex(3)
        self._created: set[str] = set()
        self._faults: list[Fault] = []
        self._holds: list[Hold] = []
        self.begun = self.here()
        """When this object was made."""

    def again(self) -> AsyncCluster:
        """The same cluster with other names of topics, and with neither faults nor requests of the past."""
        return AsyncCluster(self._cluster)

    # --- what it is

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every running broker, separated by commas."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for _, host, port in self.addresses)

    @property
    def client(self) -> dict[str, str]:
        """What the client `admin` needs besides, with the names of librdkafka; empty without `tls` and `sasl`."""
        return self._cluster.client

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every running broker, sorted by id."""
        return self._cluster.addresses

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 if there is none at the moment."""
        return self._cluster.controller_id

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def zookeeper(self) -> str:
        """host:port[,…][/chroot] of its ZooKeeper."""
        return self._cluster.zookeeper

    @property
    def control_url(self) -> str | None:
        """Address of the control API, None without `control_port`."""
        return self._cluster.control_url

    def topic_name(self, name: str) -> str:
        """A name that no other test uses; the same one for the same name in one test."""
        return f"{name}-{self._suffix}"

    def describe(self) -> str:
        """Brokers, controller, clock, topics, groups, faults and holds as text."""
        words = set(re.findall(r"[\w.-]+", "\n".join(self.transcript())))
        named = words | {word.rpartition("-")[0] for word in words}  # a topic is there with the number of a partition

        def rank(name: str) -> int:
            """First what the test has made, then what its requests named."""
            return self._rank(name) and (1 if name in named else 2)

        return self._now(cluster_text(self._control, rank))

    def _rank(self, name: str) -> int:
        """0 for the topics and groups of the test, 1 for others."""
        return int(name not in self._created and not name.endswith(self._suffix))

    # --- faults and holds

    @property
    def faults(self) -> list[Fault]:
        """The faults that were made through this object, removed ones too."""
        return list(self._faults)

    @property
    def holds(self) -> list[Hold]:
        """The holds that were made through this object, released ones too."""
        return list(self._holds)

    def fault(self, *, may_miss: bool = False, **arguments: Unpack[FaultArguments]) -> Fault:
        """A fault that requests meet from now on: see `FaultArguments` and docs/testing_with_klamm.md.

        With `may_miss` the plugin of pytest does not complain if no request meets it. Raises Refused.
        """
        number = self._now(self._control.add_fault(fault_body(arguments)))["id"]
        fault = Fault(self, self._cluster, number, may_miss=may_miss, is_state="slow_disk_ms" in arguments)
        self._faults.append(fault)
        return fault

    def cut_link(self, from_broker: int, to_broker: int, *, both: bool = True, may_miss: bool = False) -> list[Fault]:
        """Let no request from one broker reach the other, with `both` in the other direction neither, until the faults are removed."""
        return self._link(bodies.LinkBody(from_broker=from_broker, to_broker=to_broker, cut=True, both=both), may_miss)

    def slow_link(self, from_broker: int, to_broker: int, delay_ms: int, *, both: bool = True, may_miss: bool = False) -> list[Fault]:
        """Let requests from one broker reach the other late, with `both` also in the other direction, until the faults are removed."""
        return self._link(bodies.LinkBody(from_broker=from_broker, to_broker=to_broker, delay_ms=delay_ms, both=both), may_miss)

    def _link(self, body: bodies.LinkBody, may_miss: bool) -> list[Fault]:
        numbers = self._now(self._control.add_link(body))["faults"]
        faults = [Fault(self, self._cluster, number, may_miss=may_miss, is_state=True) for number in numbers]
        self._faults += faults
        return faults

    def hold(
        self, phase: str | type[Any], *, where: Mapping[str, Any] | None = None, count: int | None = None, nth: int = 1,
        may_miss: bool = False, **fields: Any,
    ) -> Hold:
        """A hold of a phase (docs/phases.md), from now on. Fields of the phase are given by name, or all as `where`.

        The first `nth` - 1 phases that match pass, the next `count` are held, without it all until the hold is released. With `may_miss`
        the plugin of pytest does not complain if it is never reached. Raises Refused.
        """
        return self._hold(hold_body(phase, where, fields, count, nth), may_miss)

    def fail_at(
        self, phase: str | type[Any], error: str = "ConnectionLost", *, where: Mapping[str, Any] | None = None, count: int | None = None,
        nth: int = 1, may_miss: bool = False, **fields: Any,
    ) -> Hold:
        """Let what reaches this phase fail with this error (`Hold.fail`), from the `nth` time on, `count` times.

        The third read of a znode: `fail_at("ZooKeeperRead", paths="/brokers/topics/orders", when="before", nth=3, count=1)`. Raises
        Refused, for phases at which nothing can fail too.
        """
        return self._hold(hold_body(phase, where, fields, count, nth, fail=error), may_miss)

    def delay_at(
        self, phase: str | type[Any], delay_ms: int, *, where: Mapping[str, Any] | None = None, count: int | None = None, nth: int = 1,
        may_miss: bool = False, **fields: Any,
    ) -> Hold:
        """Let what reaches this phase go on after this time of the clock, from the `nth` time on, `count` times. Raises Refused."""
        return self._hold(hold_body(phase, where, fields, count, nth, delay_ms=delay_ms), may_miss)

    def crash_before(
        self, phase: str | type[Any] = WRITE, *, where: Mapping[str, Any] | None = None, nth: int = 1, may_miss: bool = False, **fields: Any
    ) -> Hold:
        """Kill the broker that is about to do this, and let its ZooKeeper session end. That is possible before a ZooKeeperWrite.

        Raises Refused, for other phases too: they are reached when something is done.
        """
        return self._hold(hold_body(phase, where, fields, 1, nth, "before"), may_miss)

    def crash_after(
        self, phase: str | type[Any] = WRITE, *, where: Mapping[str, Any] | None = None, nth: int = 1, may_miss: bool = False, **fields: Any
    ) -> Hold:
        """Kill the broker that reaches this phase, and let its ZooKeeper session end: what the name of the phase says is done, nothing
        after it. After a ZooKeeperWrite ZooKeeper has the write, and nobody knows that. Raises Refused.
        """
        return self._hold(hold_body(phase, where, fields, 1, nth, "after"), may_miss)

    def _hold(self, body: bodies.HoldBody, may_miss: bool) -> Hold:
        number = self._now(self._control.hold(body))["id"]
        hold = Hold(self, self._cluster, number, may_miss=may_miss)
        self._holds.append(hold)
        return hold

    def phases(self) -> list[JsonObject]:
        """All phases, with their fields and whether they can fail."""
        shown: list[JsonObject] = self._now(self._control.phases())["phases"]
        return shown

    # --- requests

    def requests(self, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """Requests of clients since this object was made, oldest first: those that match. Raises Refused.

        The cluster keeps the last 20,000 requests or 64 MB; of older ones the last 2,000 that had an error. `error="any"` is any error. An
        API, error or broker that does not exist is refused.
        """
        return [Request(each) for each in self._exchanges(**wanted)]

    def _all_exchanges(self, **wanted: Any) -> list[Exchange]:
        return self._now(self._control.history.exchanges(**wanted))

    def _events(self, since: int) -> list[JsonObject]:
        async def events() -> list[JsonObject]:
            return self._control.events.since(since)

        return self._now(events())

    def _exchanges(self, **wanted: Unpack[RequestFilter]) -> list[Exchange]:
        wanted["after"] = max(self.begun.request, wanted.get("after", 0))
        try:
            return self._all_exchanges(**wanted)[::-1]
        except TypeError:
            raise Refused(f"requests are filtered by {', '.join(RequestFilter.__annotations__)}") from None

    # --- brokers, controller, clock

    async def kill_broker(self, broker: int, *, expire: bool = True, lose_log: bool = False) -> None:
        """End a broker as `kill -9` does. With `expire` its ZooKeeper session ends at once, and this returns when no broker shows it."""
        await self._then(self._control.kill_broker(broker, bodies.KillBody(expire=expire, lose_log=lose_log)))

    async def stop_broker(self, broker: int, *, lose_log: bool = False) -> None:
        """Stop a broker with a controlled shutdown. Returns when no other broker shows it."""
        await self._then(self._control.stop_broker(broker, bodies.StopBody(lose_log=lose_log)))

    async def start_broker(self, broker: int) -> None:
        """Start a broker that does not run, on its former port. Returns when every broker shows it."""
        await self._then(self._control.start_broker(broker))

    async def add_broker(self, config: Mapping[str, str | int | bool] | None = None) -> int:
        """Start one more broker, with the next id and these configs besides those of all. Returns its id when every broker shows it. Raises
        Refused.
        """
        return int((await self._then(self._control.add_broker(bodies.NewBrokerBody(config=texts_of(config)))))["id"])

    async def restart_broker(self, broker: int, *, lose_log: bool = False) -> None:
        """Stop a broker, if it runs, and start it again. Returns when every broker shows it."""
        await self._then(self._control.restart_broker(broker, bodies.StopBody(lose_log=lose_log)))

    async def brokers(self) -> list[JsonObject]:
        """All brokers, those that do not run included."""
        shown: list[JsonObject] = (await self._then(self._control.brokers()))["brokers"]
        return shown

    async def pause_broker(self, broker: int) -> None:
        """Let a broker stand still as SIGSTOP does: clients wait for responses, it fetches nothing, and its ZooKeeper session ends in time.
        """
        await self._then(self._control.pause_broker(broker))

    async def resume_broker(self, broker: int) -> None:
        """End a pause."""
        await self._then(self._control.resume_broker(broker))

    async def move_controller(self, to: int | None = None) -> int:
        """Make this broker the controller, or any other than the present one. Returns its id when every broker shows it."""
        await self._then(self._control.move_controller(bodies.MoveBody(to=to)))
        return self.controller_id

    async def resign_controller(self) -> int:
        """Make the controller resign; another broker takes over. Returns its id when every broker shows it."""
        await self._then(self._control.resign_controller())
        return self.controller_id

    async def expire_session(self, broker: int) -> None:
        """End the ZooKeeper session of a broker, as ZooKeeper does when it hears nothing for too long."""
        await self._then(self._control.expire_session(bodies.BrokerBody(broker=broker)))

    async def cut_zookeeper(self, broker: int) -> None:
        """Let a broker lose its connection to ZooKeeper, and get no other until `restore_zookeeper`."""
        await self._then(self._control.cut_zookeeper(bodies.BrokerBody(broker=broker)))

    async def restore_zookeeper(self, broker: int) -> None:
        """Let a broker connect to ZooKeeper again."""
        await self._then(self._control.restore_zookeeper(bodies.BrokerBody(broker=broker)))

    async def delay_zookeeper(self, broker: int, delay_ms: int) -> None:
        """Let each request of a broker to ZooKeeper wait this long before it is sent; 0 ends that."""
        await self._then(self._control.delay_zookeeper(bodies.ZooKeeperDelayBody(broker=broker, ms=delay_ms)))

    async def advance(self, seconds: float, *, step: float | None = None) -> int:
        """Let time pass at once for brokers, controllers and coordinators. Returns how many timers fired.

        Clients live in real time: time that is longer than the session of a member ends this session, although the member is alive, and
        followers that lack records leave the ISR. With `step`, in seconds, it passes in steps. After each of them all members, followers
        and registered brokers that are alive are waited for: one interval of heartbeats in real time for each step, and 6 s once for one
        that is not alive. A step must be shorter than the sessions. To let one member time out, take `expire_members`.
        """
        step_ms = None if step is None else round(step * 1000)
        return int((await self._then(self._control.advance_clock(bodies.AdvanceBody(ms=round(seconds * 1000), step_ms=step_ms))))["fired"])

    async def freeze_clock(self) -> None:
        """Let time pass only by `advance`."""
        await self._then(self._control.freeze_clock())

    async def resume_clock(self) -> None:
        """Let real time pass again."""
        await self._then(self._control.resume_clock())

    async def clock(self) -> JsonObject:
        """The time of the brokers, and whether it is frozen."""
        shown: JsonObject = await self._then(self._control.clock_state())
        return shown

    # --- topics and groups

    async def create_topic(
        self, name: str, partitions: int | None = None, replication_factor: int | None = None, *,
        replicas: Sequence[Sequence[int]] | None = None, config: Mapping[str, str | int | bool] | None = None,
    ) -> str:
        """Create a topic: one partition and as many replicas as brokers run, at most three, unless it is said. `replicas` has the brokers
        of each partition. Returns the name when every broker shows the topic with leaders. Raises Refused.
        """
        if replicas is None:
            partitions = 1 if partitions is None else partitions
            replication_factor = min(3, len(self.addresses)) if replication_factor is None else replication_factor
        body = {
            "name": name, "partitions": partitions, "replication_factor": replication_factor, "configs": texts_of(config),
            "replicas": None if replicas is None else [list(each) for each in replicas],
        }  # fmt: skip
        self._created.add(name)
        await self._then(self._control.create_topic(bodies.convert(bodies.TopicBody, body)))
        return name

    async def add_partitions(self, name: str, partitions: int, *, replicas: Sequence[Sequence[int]] | None = None) -> None:
        """Let a topic have this number of partitions. `replicas` has the brokers of each new one. Returns when every broker shows them with
        leaders. Raises Refused.
        """
        body = {"partitions": partitions, "replicas": None if replicas is None else [list(each) for each in replicas]}
        await self._then(self._control.add_partitions(name, bodies.convert(bodies.PartitionsBody, body)))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Returns when no broker shows it. Raises Refused."""
        await self._then(self._control.delete_topic(name))

    async def topics(self) -> list[JsonObject]:
        """All topics with their numbers of partitions, as the controller shows them."""
        shown: list[JsonObject] = (await self._then(self._control.topics()))["topics"]
        return shown

    async def topic(self, name: str) -> JsonObject:
        """A topic as ZooKeeper and each broker see it. Raises Refused if there is none."""
        shown: JsonObject = await self._then(self._control.topic(name))
        return shown

    async def groups(self) -> list[JsonObject]:
        """All consumer groups, as their coordinators have them."""
        shown: list[JsonObject] = (await self._then(self._control.groups()))["groups"]
        return shown

    async def group(self, name: str) -> JsonObject:
        """A consumer group as its coordinator has it. Raises Refused if there is none."""
        shown: JsonObject = await self._then(self._control.group(name))
        return shown

    async def rebalance(self, group: str) -> None:
        """Let a group rebalance now."""
        await self._then(self._control.rebalance(group))

    async def expire_members(self, group: str, member: str | None = None) -> list[str]:
        """Let the session of a member, or of all, time out now: the group removes them and rebalances. Returns their ids."""
        return list((await self._then(self._control.expire_members(group, bodies.MemberBody(member=member))))["expired"])

    async def transactions(self) -> list[JsonObject]:
        """All transactional ids, as their coordinators have them."""
        shown: list[JsonObject] = (await self._then(self._control.transactions()))["transactions"]
        return shown

    async def transaction(self, transactional_id: str) -> JsonObject:
        """A transactional id as its coordinator has it. Raises Refused if there is none."""
        shown: JsonObject = await self._then(self._control.transaction(transactional_id))
        return shown

    async def expire_transaction(self, transactional_id: str) -> None:
        """Let the time-out of the open transaction of an id be over now: its coordinator aborts it and fences the producer. Raises Refused,
        also if no transaction is open.
        """
        await self._then(self._control.expire_transaction(transactional_id))

    async def recovering(self) -> list[JsonObject]:
        """The leaders that wait in recovery after an unclean election, with `kip704.recovery.mode=manual` (KIP-704): topic, partition,
        broker, leader epoch.
        """
        shown: list[JsonObject] = (await self._then(self._control.recovering()))["recovering"]
        return shown

    async def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[JsonObject]:
        """Let leaders that wait in recovery go on: all, those of a topic, or that of one partition. Returns the released ones."""
        body = bodies.RecoveryBody(topic=topic, partition=partition)
        released: list[JsonObject] = (await self._then(self._control.release_recovery(body)))["released"]
        return released

    # --- waits

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

    # --- for the plugin and for waits

    async def restore(self) -> list[int]:
        """Remove all faults and holds, let the clock run, resume and start all brokers, and store dynamic configs of brokers, SCRAM users,
        quotas and ACLs as they were when the cluster started.

        Returns when the cluster is whole: all brokers are registered and in everybody's metadata, all ISRs are full, preferred replicas
        lead, coordinators are loaded. Returns the brokers that were added: these stay, as do topics, groups and the time by which the clock
        was advanced. Raises Refused if the cluster cannot be made whole within 30 s.
        """
        added: list[int] = (await self._then(self._control.reset()))["added"]
        return added

    def here(self) -> Place:
        """The present place in time."""
        return Place(time.time_ns() // 1_000_000, self._control.history.last(), self._control.events.total)

    def transcript(self, since: Place | None = None) -> list[str]:
        """Requests of clients and events since then, in order; without `since` since this object was made."""
        since = self.begun if since is None else since
        exchanges = self._all_exchanges()[::-1]
        older = {each.peer for each in exchanges if each.number <= since.request}
        shown = [each for each in exchanges if each.number > since.request]
        return timeline(shown, self._events(since.event), since.at_ms, self._topic_of, rank=self._rank, older=older)

    async def wait_text(self, what: str, timeout_s: float, since: Place, view: Callable[[], Awaitable[str]] | None = None) -> str:
        """The text of a wait that timed out."""
        try:
            state = self.describe() if view is None else f"{await view()}\n{await self._then(controller_text(self._control))}"
        except Exception as error:  # noqa: BLE001 a state that cannot be shown must not hide that the wait timed out
            state = f"the state cannot be shown: {error!r}"
        exchanges = self._all_exchanges(after=since.request)
        lines = timeline(exchanges[:SHOWN_REQUESTS][::-1], (), since.at_ms, self._topic_of)
        events = timeline((), self._events(since.event), since.at_ms, rank=self._rank)
        parts = [f"not within {timeout_s:g} s: {what}", "present state:", *(f"  {line}" for line in state.splitlines())]
        if lines:
            parts.append(f"requests of clients since the wait began (the last {min(len(exchanges), SHOWN_REQUESTS)} of {len(exchanges)}):")
            parts += lines
        else:
            parts.append("no client sent a request since the wait began")
        parts += ["events since the wait began:", *events] if events else ["no event since the wait began"]
        return "\n".join(parts)

    def _topic_of(self, topic_id: bytes) -> str:
        return self._control.history.topic_name(topic_id) or views.uuid(topic_id) or "?"

    async def _topic_text(self, name: str) -> str:
        return topic_text(await self._then(self._control.topic(name)))


def _but(broker: int | None) -> str:
    return "" if broker is None else f" other than {broker}"
