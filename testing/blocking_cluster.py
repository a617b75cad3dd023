"""The verbs of a cluster for tests, for threads without an event loop: they block. Any thread may use them.

What they do, take, return and raise is written at the same names of `AsyncCluster`, `Fault` and `Hold`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.seams.steering import HoldState
from klamm.server.faults.fault import DiskHit, Hit
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.arguments import FaultArguments, RequestFilter
from klamm.testing.async_cluster import WRITE, AsyncCluster
from klamm.testing.fault import Fault
from klamm.testing.hold import Hold
from klamm.testing.request import Request
from klamm.testing.steered_cluster import Steered
from klamm.testing.waits import LOOK_S, TIMEOUT_S, Place, WaitTimedOut

__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")


class BlockingFault:
    """A fault. `with` removes it at the end; its counts stay."""

    def __init__(self, fault: Fault, thread: LoopThread) -> None:
        self._fault = fault
        self._thread = thread

    @property
    def may_miss(self) -> bool:
        """Whether it is right that it hits nothing."""
        return self._fault.may_miss

    @property
    def is_state(self) -> bool:
        """Whether it is how a link or a disk is for some time, whether a request meets that or not."""
        return self._fault.is_state

    @property
    def number(self) -> int:
        """1, 2, … in the order in which the faults of a cluster were made."""
        return self._fault.number

    @property
    def hits(self) -> int:
        """How many requests it hit."""
        return self._fault.hits

    @property
    def matches(self) -> int:
        """How many requests it was about while it could hit them."""
        return self._fault.matches

    @property
    def last(self) -> list[Hit | DiskHit]:
        """The last 100 requests that it hit; of a slow disk the last 100 operations of logs."""
        return self._fault.last

    @property
    def text(self) -> str:
        """What it is about, what it does, and its counts, in one line."""
        return self._fault.text

    def wait(self, hits: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it has hit this number of requests. Raises WaitTimedOut."""
        self._thread.call(self._fault.wait(hits, timeout_s=timeout_s))

    def remove(self) -> None:
        """End it. Does nothing if it is removed."""
        self._thread.call(_made_of(self._fault.remove))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        return repr(self._fault)


class BlockingHold:
    """A hold. `with` releases it at the end; its counts stay."""

    def __init__(self, hold: Hold, thread: LoopThread) -> None:
        self._hold = hold
        self._thread = thread

    @property
    def may_miss(self) -> bool:
        """Whether it is right that it is never reached."""
        return self._hold.may_miss

    @property
    def number(self) -> int:
        """1, 2, … in the order in which the holds of a cluster were made."""
        return self._hold.number

    @property
    def state(self) -> HoldState:
        """Whether it waits for a phase (`armed`), holds one (`reached`) or has ended (`released`)."""
        return self._hold.state

    @property
    def hits(self) -> int:
        """How many phases were held, or were the end of a broker."""
        return self._hold.hits

    @property
    def held(self) -> list[Any]:
        """The phases that are held now, in the order of their arrival."""
        return self._hold.held

    @property
    def broker_ids(self) -> list[int]:
        """The brokers on which they are held, in the same order."""
        return self._hold.broker_ids

    @property
    def text(self) -> str:
        """What it holds, its state and its counts, in one line."""
        return self._hold.text

    def wait(self, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until it holds something; returns the phase that is held first. A crash is waited for until the broker is dead; then this
        returns None. Raises WaitTimedOut.
        """
        return self._thread.call(self._hold.wait(timeout_s=timeout_s))

    def step(self) -> Any:
        """Let the first that is held go on; the hold stays. Returns its phase. Raises Refused if it holds nothing."""
        return self._thread.call(_made_of(self._hold.step))

    def fail(self, error: str = "UNKNOWN_SERVER_ERROR", message: str | None = None) -> Any:
        """Let the first that is held fail (`Hold.fail`). Returns its phase. Raises Refused if nothing can fail there."""
        return self._thread.call(_made_of(self._hold.fail, error, message))

    def crash(self) -> int:
        """Kill the broker that is held first, and let its ZooKeeper session end. Returns its id. Raises Refused if it holds nothing."""
        return self._thread.call(self._hold.crash())

    def release(self) -> None:
        """End it; what it holds goes on."""
        self._thread.call(_made_of(self._hold.release))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def __repr__(self) -> str:
        return repr(self._hold)


class BlockingCluster:
    """A running cluster, for threads without an event loop."""

    def __init__(self, cluster: Steered | AsyncCluster, thread: LoopThread) -> None:
        self._inner = cluster if isinstance(cluster, AsyncCluster) else AsyncCluster(cluster)
        self._thread = thread

    def again(self) -> BlockingCluster:
        """The same cluster with other names of topics, and with neither faults nor requests of the past."""
        return BlockingCluster(self._inner.again(), self._thread)

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every running broker, separated by commas."""
        return self._inner.bootstrap_servers

    @property
    def client(self) -> dict[str, str]:
        """What the client `admin` needs besides, with the names of librdkafka; empty without `tls` and `sasl`."""
        return self._inner.client

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every running broker, sorted by id."""
        return self._inner.addresses

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 if there is none at the moment."""
        return self._inner.controller_id

    @property
    def cluster_id(self) -> str:
        return self._inner.cluster_id

    @property
    def zookeeper(self) -> str:
        """host:port[,…][/chroot] of its ZooKeeper."""
        return self._inner.zookeeper

    @property
    def control_url(self) -> str | None:
        """Address of the control API, None without `control_port`."""
        return self._inner.control_url

    def topic_name(self, name: str) -> str:
        """A name that no other test uses; the same one for the same name in one test."""
        return self._inner.topic_name(name)

    @property
    def faults(self) -> list[BlockingFault]:
        """The faults that were made through this object, removed ones too."""
        return [BlockingFault(each, self._thread) for each in self._inner.faults]

    @property
    def holds(self) -> list[BlockingHold]:
        """The holds that were made through this object, released ones too."""
        return [BlockingHold(each, self._thread) for each in self._inner.holds]

    def describe(self) -> str:
        """Brokers, controller, clock, topics, groups, faults and holds as text."""
        return self._made(self._inner.describe)

    def fault(self, *, may_miss: bool = False, **arguments: Unpack[FaultArguments]) -> BlockingFault:
        """A fault that requests meet from now on: see `FaultArguments` and docs/testing_with_klamm.md.

        With `may_miss` the plugin of pytest does not complain if no request meets it. Raises Refused.
        """
        return BlockingFault(self._made(lambda: self._inner.fault(may_miss=may_miss, **arguments)), self._thread)

    def cut_link(self, from_broker: int, to_broker: int, *, both: bool = True, may_miss: bool = False) -> list[BlockingFault]:
        """Let no request from one broker reach the other, with `both` in the other direction neither, until the faults are removed."""
        made = self._made(lambda: self._inner.cut_link(from_broker, to_broker, both=both, may_miss=may_miss))
        return [BlockingFault(each, self._thread) for each in made]

    def slow_link(
        self, from_broker: int, to_broker: int, delay_ms: int, *, both: bool = True, may_miss: bool = False
    ) -> list[BlockingFault]:
        """Let requests from one broker reach the other late, with `both` also in the other direction, until the faults are removed."""
        made = self._made(lambda: self._inner.slow_link(from_broker, to_broker, delay_ms, both=both, may_miss=may_miss))
        return [BlockingFault(each, self._thread) for each in made]

    def hold(
        self, phase: str | type[Any], *, where: Mapping[str, Any] | None = None, count: int | None = None, nth: int = 1,
        may_miss: bool = False, **fields: Any,
    ) -> BlockingHold:
        """Hold a phase (docs/phases.md) from now on. Fields of the phase are given by name, or all as `where`.

        The first `nth` - 1 phases that match pass, the next `count` are held, without it all until the hold is released. With `may_miss`
        the plugin of pytest does not complain if it is never reached. Raises Refused.
        """
        return self._held(lambda: self._inner.hold(phase, where=where, count=count, nth=nth, may_miss=may_miss, **fields))

    def fail_at(
        self, phase: str | type[Any], error: str = "ConnectionLost", *, where: Mapping[str, Any] | None = None, count: int | None = None,
        nth: int = 1, may_miss: bool = False, **fields: Any,
    ) -> BlockingHold:
        """Let what reaches this phase fail with this error (`BlockingHold.fail`), from the `nth` time on, `count` times.

        The third read of a znode: `fail_at("ZooKeeperRead", paths="/brokers/topics/orders", when="before", nth=3, count=1)`. Raises
        Refused, for phases at which nothing can fail too.
        """
        return self._held(
            lambda: self._inner.fail_at(phase, error, where=where, count=count, nth=nth, may_miss=may_miss, **fields)
        )

    def delay_at(
        self, phase: str | type[Any], delay_ms: int, *, where: Mapping[str, Any] | None = None, count: int | None = None, nth: int = 1,
        may_miss: bool = False, **fields: Any,
    ) -> BlockingHold:
        """Let what reaches this phase go on after this time of the clock, from the `nth` time on, `count` times. Raises Refused."""
        return self._held(
            lambda: self._inner.delay_at(phase, delay_ms, where=where, count=count, nth=nth, may_miss=may_miss, **fields)
        )

    def crash_before(
        self, phase: str | type[Any] = WRITE, *, where: Mapping[str, Any] | None = None, nth: int = 1, may_miss: bool = False, **fields: Any
    ) -> BlockingHold:
        """Kill the broker that is about to do this, and let its ZooKeeper session end. That is possible before a ZooKeeperWrite.

        Raises Refused, for other phases too: they are reached when something is done.
        """
        return self._held(lambda: self._inner.crash_before(phase, where=where, nth=nth, may_miss=may_miss, **fields))

    def crash_after(
        self, phase: str | type[Any] = WRITE, *, where: Mapping[str, Any] | None = None, nth: int = 1, may_miss: bool = False, **fields: Any
    ) -> BlockingHold:
        """Kill the broker that reaches this phase, and let its ZooKeeper session end: what the name of the phase says is done, nothing
        after it. After a ZooKeeperWrite ZooKeeper has the write, and nobody knows that. Raises Refused.
        """
        return self._held(lambda: self._inner.crash_after(phase, where=where, nth=nth, may_miss=may_miss, **fields))

    def phases(self) -> list[JsonObject]:
        """All phases, with their fields and whether they can fail."""
        return self._made(self._inner.phases)

    def requests(self, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """Requests of clients since this object was made, oldest first: those that match. Raises Refused.

        The cluster keeps the last 20,000 requests or 64 MB; of older ones the last 2,000 that had an error. `error="any"` is any error. An
        API, error or broker that does not exist is refused.
        """
        return self._made(lambda: self._inner.requests(**wanted))

    def kill_broker(self, broker: int, *, expire: bool = True, lose_log: bool = False) -> None:
        """End a broker as `kill -9` does. With `expire` its ZooKeeper session ends at once, and this returns when no broker shows it."""
        self._thread.call(self._inner.kill_broker(broker, expire=expire, lose_log=lose_log))

    def stop_broker(self, broker: int, *, lose_log: bool = False) -> None:
        """Stop a broker with a controlled shutdown. Returns when no other broker shows it."""
        self._thread.call(self._inner.stop_broker(broker, lose_log=lose_log))

    def start_broker(self, broker: int) -> None:
        """Start a broker that does not run, on its former port. Returns when every broker shows it."""
        self._thread.call(self._inner.start_broker(broker))

    def add_broker(self, config: Mapping[str, str | int | bool] | None = None) -> int:
        """Start one more broker, with the next id and these configs besides those of all. Returns its id when every broker shows it. Raises
        Refused.
        """
        return self._thread.call(self._inner.add_broker(config))

    def restart_broker(self, broker: int, *, lose_log: bool = False) -> None:
        """Stop a broker, if it runs, and start it again. Returns when every broker shows it."""
        self._thread.call(self._inner.restart_broker(broker, lose_log=lose_log))

    def brokers(self) -> list[JsonObject]:
        """All brokers, those that do not run included."""
        return self._thread.call(self._inner.brokers())

    def pause_broker(self, broker: int) -> None:
        """Let a broker stand still as SIGSTOP does: clients wait for responses, it fetches nothing, and its ZooKeeper session ends in time.
        """
        self._thread.call(self._inner.pause_broker(broker))

    def resume_broker(self, broker: int) -> None:
        """End a pause."""
        self._thread.call(self._inner.resume_broker(broker))

    def move_controller(self, to: int | None = None) -> int:
        """Make this broker the controller, or any other than the present one. Returns its id when every broker shows it."""
        return self._thread.call(self._inner.move_controller(to))

    def resign_controller(self) -> int:
        """Make the controller resign; another broker takes over. Returns its id when every broker shows it."""
        return self._thread.call(self._inner.resign_controller())

    def expire_session(self, broker: int) -> None:
        """End the ZooKeeper session of a broker, as ZooKeeper does when it hears nothing for too long."""
        self._thread.call(self._inner.expire_session(broker))

    def cut_zookeeper(self, broker: int) -> None:
        """Let a broker lose its connection to ZooKeeper, and get no other until `restore_zookeeper`."""
        self._thread.call(self._inner.cut_zookeeper(broker))

    def restore_zookeeper(self, broker: int) -> None:
        """Let a broker connect to ZooKeeper again."""
        self._thread.call(self._inner.restore_zookeeper(broker))

    def delay_zookeeper(self, broker: int, delay_ms: int) -> None:
        """Let each request of a broker to ZooKeeper wait this long before it is sent; 0 ends that."""
        self._thread.call(self._inner.delay_zookeeper(broker, delay_ms))

    def advance(self, seconds: float, *, step: float | None = None) -> int:
        """Let time pass at once for brokers, controllers and coordinators. Returns how many timers fired.

        Clients live in real time: sessions that are shorter end, although their members are alive. With `step`, in seconds, it passes in
        steps, and those who are alive are waited for after each of them (see `AsyncCluster.advance`).
        """
        return self._thread.call(self._inner.advance(seconds, step=step))

    def freeze_clock(self) -> None:
        """Let time pass only by `advance`."""
        self._thread.call(self._inner.freeze_clock())

    def resume_clock(self) -> None:
        """Let real time pass again."""
        self._thread.call(self._inner.resume_clock())

    def clock(self) -> JsonObject:
        """The time of the brokers, and whether it is frozen."""
        return self._thread.call(self._inner.clock())

    def create_topic(
        self, name: str, partitions: int | None = None, replication_factor: int | None = None, *,
        replicas: Sequence[Sequence[int]] | None = None, config: Mapping[str, str | int | bool] | None = None,
    ) -> str:
        """Create a topic: one partition and as many replicas as brokers run, at most three, unless it is said. `replicas` has the brokers
        of each partition. Returns the name when every broker shows the topic with leaders. Raises Refused.
        """
        return self._thread.call(self._inner.create_topic(name, partitions, replication_factor, replicas=replicas, config=config))

    def add_partitions(self, name: str, partitions: int, *, replicas: Sequence[Sequence[int]] | None = None) -> None:
        """Let a topic have this number of partitions. `replicas` has the brokers of each new one. Returns when every broker shows them with
        leaders. Raises Refused.
        """
        self._thread.call(self._inner.add_partitions(name, partitions, replicas=replicas))

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Returns when no broker shows it. Raises Refused."""
        self._thread.call(self._inner.delete_topic(name))

    def topics(self) -> list[JsonObject]:
        """All topics with their numbers of partitions, as the controller shows them."""
        return self._thread.call(self._inner.topics())

    def topic(self, name: str) -> JsonObject:
        """A topic as ZooKeeper and each broker see it. Raises Refused if there is none."""
        return self._thread.call(self._inner.topic(name))

    def groups(self) -> list[JsonObject]:
        """All consumer groups, as their coordinators have them."""
        return self._thread.call(self._inner.groups())

    def group(self, name: str) -> JsonObject:
        """A consumer group as its coordinator has it. Raises Refused if there is none."""
        return self._thread.call(self._inner.group(name))

    def rebalance(self, group: str) -> None:
        """Let a group rebalance now."""
        self._thread.call(self._inner.rebalance(group))

    def expire_members(self, group: str, member: str | None = None) -> list[str]:
        """Let the session of a member, or of all, time out now: the group removes them and rebalances. Returns their ids."""
        return self._thread.call(self._inner.expire_members(group, member))

    def transactions(self) -> list[JsonObject]:
        """All transactional ids, as their coordinators have them."""
        return self._thread.call(self._inner.transactions())

    def transaction(self, transactional_id: str) -> JsonObject:
        """A transactional id as its coordinator has it. Raises Refused if there is none."""
        return self._thread.call(self._inner.transaction(transactional_id))

    def expire_transaction(self, transactional_id: str) -> None:
        """Let the time-out of the open transaction of an id be over now: its coordinator aborts it and fences the producer. Raises Refused,
        also if no transaction is open.
        """
        self._thread.call(self._inner.expire_transaction(transactional_id))

    def recovering(self) -> list[JsonObject]:
        """The leaders that wait in recovery after an unclean election, with `kip704.recovery.mode=manual` (KIP-704): topic, partition,
        broker, leader epoch.
        """
        return self._thread.call(self._inner.recovering())

    def release_recovery(self, topic: str | None = None, partition: int | None = None) -> list[JsonObject]:
        """Let leaders that wait in recovery go on: all, those of a topic, or that of one partition. Returns the released ones."""
        return self._thread.call(self._inner.release_recovery(topic, partition))

    def wait_for_configs(self, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all running brokers have processed the last changes of dynamic configs, SCRAM users, quotas and ACLs. As with Kafka, a
        request that changes them has its response earlier.
        """
        self._thread.call(self._inner.wait_for_configs(timeout_s=timeout_s))

    def wait_for_leader(
        self, topic: str, partition: int, leader: int | None = None, *, other_than: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until every running broker shows this leader, without `leader` the same one, any but `other_than`. Returns
        its id.
        """
        return self._thread.call(self._inner.wait_for_leader(topic, partition, leader, other_than=other_than, timeout_s=timeout_s))

    def wait_for_isr(self, topic: str, partition: int, isr: Iterable[int], *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until every running broker shows these in-sync replicas, in any order."""
        self._thread.call(self._inner.wait_for_isr(topic, partition, isr, timeout_s=timeout_s))

    def wait_for_controller(
        self, broker: int | None = None, *, other_than: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until every running broker shows the active controller, without `broker` any but `other_than`. Returns its id."""
        return self._thread.call(self._inner.wait_for_controller(broker, other_than=other_than, timeout_s=timeout_s))

    def wait_for_high_watermark(self, topic: str, partition: int, offset: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until consumers can read all records below this offset: the leader's high watermark is there."""
        self._thread.call(self._inner.wait_for_high_watermark(topic, partition, offset, timeout_s=timeout_s))

    def wait_for_replicas(
        self, topic: str, partition: int, offset: int, brokers: Iterable[int] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Wait until the logs of these brokers, or of all running replicas, have all records below this offset."""
        self._thread.call(self._inner.wait_for_replicas(topic, partition, offset, brokers, timeout_s=timeout_s))

    def wait_for_reassignment(self, topic: str, partition: int | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until no partition of the topic, or not this one, is being reassigned."""
        self._thread.call(self._inner.wait_for_reassignment(topic, partition, timeout_s=timeout_s))

    def wait_for_group(
        self, name: str, state: str = "Stable", *, members: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> JsonObject:
        """Wait until a group is in this state, and has this number of members. Returns the group."""
        return self._thread.call(self._inner.wait_for_group(name, state, members=members, timeout_s=timeout_s))

    def wait_for_requests(self, count: int = 1, *, timeout_s: float = TIMEOUT_S, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """Wait until clients have sent this number of requests that match, since this object was made. Returns all that match."""
        return self._thread.call(self._inner.wait_for_requests(count, timeout_s=timeout_s, **wanted))

    def wait_until(self, condition: Callable[[], T], what: str = "the condition", *, timeout_s: float = TIMEOUT_S) -> T:
        """Wait until the condition returns something true, and return that. It is called on this thread. Raises WaitTimedOut."""
        if timeout_s < 0:
            raise Refused("timeout_s: 0 or more")
        begun, end = self._inner.here(), time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() >= end:
                raise WaitTimedOut(self._thread.call(self._inner.wait_text(what, timeout_s, begun)))
            time.sleep(LOOK_S)
        return value

    def restore(self) -> list[int]:
        """Undo faults, holds, stops, pauses, and changes of dynamic configs of brokers, SCRAM users, quotas and ACLs; let the clock run.

        Returns when the cluster is whole. Returns the brokers that were added: these stay, as do topics, groups and the time by which the
        clock was advanced. Raises Refused if the cluster cannot be made whole within 30 s.
        """
        return self._thread.call(self._inner.restore())

    def transcript(self, since: Place | None = None) -> list[str]:
        """Requests of clients and events since then, in order; without `since` since this object was made."""
        return self._made(lambda: self._inner.transcript(since))

    def _made(self, call: Callable[[], T]) -> T:
        return self._thread.call(_made_of(call))

    def _held(self, call: Callable[[], Hold]) -> BlockingHold:
        return BlockingHold(self._made(call), self._thread)


async def _made_of(call: Callable[..., T], *arguments: Any) -> T:
    """Call a plain function on the thread of the loop; returns or raises what it does."""
    return call(*arguments)
