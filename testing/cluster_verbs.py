"""The verbs of a cluster for tests about brokers, the controller, the clock, topics, groups and transactional ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.control import bodies
from klamm.control.json_object import JsonObject
from klamm.testing.arguments import texts_of
from klamm.testing.steered_cluster import Steered

__tracebackhide__ = True  # pytest leaves out the lines of this module


class ClusterVerbs:
    """A running cluster, as `AsyncCluster` has it."""

    def __init__(self, cluster: Steered) -> None:
        self._cluster = cluster
        self._control = cluster.control
        self._now, self._then = cluster.now, cluster.then
        self._created: set[str] = set()

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every running broker, sorted by id."""
        return self._cluster.addresses

    @property
    def controller_id(self) -> int:
        """Broker id of the controller, -1 if there is none at the moment."""
        return self._now(self._control.controllers())[0]

    @property
    def metrics_ports(self) -> dict[int, int]:
        """The port of each running broker's metrics, by broker id: `http://127.0.0.1:PORT/metrics`. Empty without `metrics_port`."""
        return self._cluster.metrics_ports

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
        }
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

    async def features(self) -> list[JsonObject]:
        """The finalized features, as each broker shows them: id, epoch, finalized, supported."""
        shown: list[JsonObject] = (await self._then(self._control.features()))["brokers"]
        return shown

    async def set_feature(self, name: str, level: int) -> None:
        """Set the level of a feature, as `transaction.version`, while clients run; 0 removes it. Returns when every broker shows it. Raises
        Refused if a broker does not support the level.
        """
        await self._then(self._control.set_feature(name, bodies.convert(bodies.FeatureBody, {"level": level})))

    async def show_cluster_id(self, cluster_id: str | None) -> None:
        """Let the brokers show this cluster id to clients, or with None the real one again. Clients that want the former one when they
        connect, in ApiVersions 5, have to bootstrap again (KIP-1242). `reset` undoes it.
        """
        await self._then(self._control.show_cluster_id(bodies.convert(bodies.ClusterIdBody, {"id": cluster_id})))

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
