"""The verbs of a cluster for tests, on the event loop of the cluster.

They are those of the control API (`klamm.control.verbs`) with types of Python; arguments that are not valid raise `Refused`, a ValueError.
An `AsyncCluster` also remembers when it was made, and which faults and holds were made through it: a test has one of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from klamm.control import bodies
from klamm.control.json_object import JsonObject
from klamm.testing.arguments import FaultArguments, fault_body
from klamm.testing.cluster_waits import ClusterWaits
from klamm.testing.fault import Fault
from klamm.testing.hold import Hold, hold_body
from klamm.testing.steered_cluster import Steered

__tracebackhide__ = True  # pytest leaves out the lines of this module

WRITE = "ZooKeeperWrite"


class AsyncCluster(ClusterWaits):
    """A running cluster. Its methods are called on the event loop that runs it."""

    def __init__(self, cluster: Steered) -> None:
        super().__init__(cluster)
        self._faults: list[Fault] = []
        self._holds: list[Hold] = []

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
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def zookeeper(self) -> str:
        """host:port[,…][/chroot] of its ZooKeeper. Another cluster may use the same ZooKeeper with another chroot."""
        return self._cluster.zookeeper

    @property
    def control_url(self) -> str | None:
        """Address of the control API, None without `control_port`."""
        return self._cluster.control_url

    def topic_name(self, name: str) -> str:
        """A name that no other test uses; the same one for the same name in one test."""
        return f"{name}-{self._suffix}"

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
