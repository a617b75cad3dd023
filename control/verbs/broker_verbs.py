"""The verbs of `Control` for brokers, the controller, connections to ZooKeeper, and leaders in recovery."""

from __future__ import annotations

import asyncio

from klamm.control.bodies import (
    BrokerBody,
    ClusterIdBody,
    FeatureBody,
    KillBody,
    MoveBody,
    NewBrokerBody,
    RecoveryBody,
    StopBody,
    ZooKeeperDelayBody,
)
from klamm.control.broker_control import BrokerControl
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.verbs.parts import ACT_S, call
from klamm.control.verbs.shown import LOOK_S, SHOWN_S
from klamm.control.verbs.subject import Subject
from klamm.server.lifecycle.start_failure import StartFailed

__tracebackhide__ = True  # pytest leaves out the lines of this module


class BrokerVerbs(Subject):
    """Brokers and the controller."""

    async def brokers(self) -> JsonObject:
        """All brokers, those that do not run or do not respond included."""
        shown = await self._running_brokers()
        brokers = [self._shown(number, shown.get(number)) for number in range(1, self.cluster.count + 1)]
        active = (each["id"] for each in brokers if each.get("is_controller") and each["state"] != "paused")
        return {"brokers": brokers, "controller_id": next(active, -1)}

    async def broker(self, broker: int) -> JsonObject:
        """A broker. Its state is running, paused, stopped, killed, starting, or not responding."""
        self.parts.known(broker)
        return self._shown(broker, (await self._running_brokers(broker)).get(broker))

    async def _running_brokers(self, only: int | None = None) -> dict[int, JsonObject]:
        keys = None if only is None else (self.parts.key_of(only),)
        answers = await self.parts.ask(call(BrokerControl.brokers), only=keys)
        return {each["id"]: each for rows in answers.done.values() for each in rows}

    def _shown(self, number: int, running: JsonObject | None) -> JsonObject:
        state, pid = self.cluster.state_of(number), self.cluster.pids.get(number)
        if state == "down":
            return {"id": number, "state": "killed" if number in self.killed else "stopped"}
        process = {} if pid is None else {"pid": pid}
        if running is None:
            return {"id": number, **process, "state": "not responding" if state == "running" else state}
        return running | {"state": state} | process

    async def add_broker(self, body: NewBrokerBody) -> JsonObject:
        """Start one more broker, with the next id and configs of its own."""
        try:
            number = await self.cluster.add_broker(body.config)
        except StartFailed as error:
            raise Refused(str(error), 409) from None
        except ValueError as error:
            raise Refused(str(error), error.status if isinstance(error, Refused) else 400) from None
        await self.state.sync()
        return await self._changed(number)

    async def stop_broker(self, broker: int, body: StopBody) -> JsonObject:
        """Stop a broker with a controlled shutdown; one that is paused goes on for that."""
        self._check_runs(broker)
        await self.cluster.stop_broker(broker, lose_log=body.lose_log)
        return await self._changed(broker)

    async def kill_broker(self, broker: int, body: KillBody) -> JsonObject:
        """End a broker as `kill -9` does. With `expire` its ZooKeeper session ends at once, and no broker shows it any more."""
        self._check_runs(broker)
        self.killed.add(broker)
        await self.cluster.kill_broker(broker, expire=body.expire, lose_log=body.lose_log)
        return await self._changed(broker)

    async def start_broker(self, broker: int) -> JsonObject:
        """Start a broker that does not run, on its former port. `records_lost`: whether it does not find its records."""
        self.parts.known(broker)
        if self.cluster.state_of(broker) != "down":
            raise Refused(f"broker {broker} runs already", 409)
        return await self._start(broker, lost=not self.cluster.keeps_logs)

    async def restart_broker(self, broker: int, body: StopBody) -> JsonObject:
        """Stop a broker, if it runs, and start it again."""
        self.parts.known(broker)
        if self.cluster.state_of(broker) != "down":
            await self.cluster.stop_broker(broker, lose_log=body.lose_log)
        return await self._start(broker, lost=body.lose_log or not self.cluster.keeps_logs)

    async def _start(self, number: int, *, lost: bool) -> JsonObject:
        try:
            await self.cluster.start_broker(number)
        except StartFailed as error:
            raise Refused(str(error), 409) from None
        return await self._changed(number) | {"records_lost": lost}

    async def pause_broker(self, broker: int) -> JsonObject:
        """Let a broker stand still as SIGSTOP does: it reads and sends nothing, its timers stand, its ZooKeeper session ends in time."""
        self._check_runs(broker)
        if self.cluster.state_of(broker) == "starting":
            raise Refused(f"broker {broker} starts: it cannot be paused yet", 409)
        self.cluster.stand(broker)
        return await self._changed(broker)

    async def resume_broker(self, broker: int) -> JsonObject:
        """End a pause. Holds, faults and the time that passed by `advance` meanwhile reach the broker now."""
        self._check_runs(broker)
        if self.cluster.state_of(broker) != "paused":
            raise Refused(f"broker {broker} is not paused", 409)
        self.cluster.go_on(broker)
        part = self.parts.parts[self.parts.key_of(broker)]
        await self.state.sync((self.parts.key_of(broker),))
        if part.behind_ms:
            behind_ms, part.behind_ms = part.behind_ms, 0
            await self.parts.one(broker, call(BrokerControl.advance, behind_ms))
        return await self._changed(broker)

    def _check_runs(self, number: int) -> None:
        self.parts.known(number)
        if self.cluster.state_of(number) == "down":
            raise Refused(f"broker {number} does not run", 409)

    async def _changed(self, number: int) -> JsonObject:
        if self.cluster.state_of(number) != "down":
            self.killed.discard(number)
        await self.state.check_conditions()
        shown = await self.broker(number)
        self.events.add("broker", shown)
        return shown

    # --- the controller

    async def controller(self) -> JsonObject:
        """The active controller, among the brokers that respond, and what is held."""
        answers = await self.parts.ask(call(BrokerControl.controller))
        active = [each for each in answers.done.values() if each is not None]
        none: JsonObject = {"id": -1, "epoch": None, "queue": 0, "event": None}
        await self.state.look_at_holds()
        held = [hold.as_json() for hold in self.state.holds.values() if hold.state == "reached"]
        return max(active, key=lambda each: int(each["epoch"]), default=none) | {"held": held} | answers.missing

    async def move_controller(self, body: MoveBody) -> JsonObject:
        """Make a broker the controller."""
        if body.to is not None:
            self._check_runs(body.to)
            if self.cluster.state_of(body.to) == "paused":
                raise Refused(f"broker {body.to} is paused", 409)
        try:
            await self.cluster.move_controller(body.to)
        except Refused:
            raise
        except ValueError as error:
            raise Refused(str(error), 409) from None
        shown = await self.controller()
        self.events.add("controller", shown)
        return shown

    async def resign_controller(self) -> JsonObject:
        """Make the controller resign; any broker can become the next one."""
        if (await self.controller())["id"] < 0:
            raise Refused("there is no controller", 409)
        return await self.move_controller(MoveBody())

    async def controllers(self) -> tuple[int, dict[int, int]]:
        """The active controller, -1 without one, and which controller each broker shows that responds."""
        views = {number: each for rows in (await self.parts.ask(call(BrokerControl.views))).done.values() for number, each in rows.items()}
        active = next((number for number, each in views.items() if each.is_controller), -1)
        return active, {number: each.controller_id for number, each in views.items()}

    # --- ZooKeeper

    async def expire_session(self, body: BrokerBody) -> JsonObject:
        """End the ZooKeeper session of a broker, as ZooKeeper does when it hears nothing for too long."""
        return await self.parts.one(body.broker, call(BrokerControl.expire_session, body))

    async def cut_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker lose its connection to ZooKeeper, and get no other until it is restored."""
        return await self.parts.one(body.broker, call(BrokerControl.cut_zookeeper, body))

    async def restore_zookeeper(self, body: BrokerBody) -> JsonObject:
        """Let a broker connect to ZooKeeper again."""
        return await self.parts.one(body.broker, call(BrokerControl.restore_zookeeper, body))

    async def delay_zookeeper(self, body: ZooKeeperDelayBody) -> JsonObject:
        """Let each request of a broker to ZooKeeper wait before it is sent."""
        return await self.parts.one(body.broker, call(BrokerControl.delay_zookeeper, body))

    # --- features

    async def features(self) -> JsonObject:
        """The finalized features of the cluster, as each broker shows them that responds."""
        answers = await self.parts.ask(call(BrokerControl.features))
        rows = sorted((number, each) for rows in answers.some() for number, each in rows.items())
        return {"brokers": [{"id": number, **each} for number, each in rows]} | answers.missing

    async def set_feature(self, name: str, body: FeatureBody) -> JsonObject:
        """Set the level of a feature, or remove it with 0, also to a lower level than now. All brokers that respond must support the level.
        Returns when they show it.
        """
        level, shown = body.level, (await self.features())["brokers"]
        for each in shown:
            lowest, highest = each["supported"].get(name, (0, 0))
            if level and not lowest <= level <= highest:
                raise Refused(f"level: broker {each['id']} supports {name} from {lowest} to {highest}, not {level}")
        if any(each["finalized"].get(name, 0) != level for each in shown):
            writer: int = shown[0]["id"]
            await self.parts.one(writer, call(BrokerControl.write_feature, writer, name, level))
        try:
            async with asyncio.timeout(SHOWN_S):
                while any(each["finalized"].get(name, 0) != level for each in shown):
                    await asyncio.sleep(LOOK_S)
                    shown = (await self.features())["brokers"]
        except TimeoutError:
            raise Refused(f"not within {SHOWN_S:g} s: all brokers show level {level} of {name}", 408) from None
        self.events.add("feature", {"name": name, "level": level})
        return await self.features()

    async def show_cluster_id(self, body: ClusterIdBody) -> JsonObject:
        """Let the brokers that run show this cluster id to clients, or the real one again. A client that wants the former one in
        ApiVersions 5 has to bootstrap again (KIP-1242).
        """
        answers = await self.parts.ask(call(BrokerControl.show_cluster_id, body.id), limit_s=ACT_S)
        answers.some()
        self.events.add("cluster_id", {"shown": body.id})
        return {"shown": body.id} | answers.missing

    # --- recovery

    async def recovering(self) -> JsonObject:
        """The leaders that wait to be released, with `kip704.recovery.mode=manual` (KIP-704)."""
        answers = await self.parts.ask(call(BrokerControl.recovering))
        return {"recovering": [row for rows in answers.done.values() for row in rows]} | answers.missing

    async def release_recovery(self, body: RecoveryBody) -> JsonObject:
        """Let leaders that wait in recovery go on."""
        if body.partition is not None and body.topic is None:
            raise Refused("partition: it needs its topic")
        answers = await self.parts.ask(call(BrokerControl.release_recovery, body.topic, body.partition), limit_s=ACT_S)
        return {"released": [row for rows in answers.all() for row in rows]} | answers.missing
