"""Random stories of clusters that keep a metadata log: brokers that register with the controller beside those that register themselves,
reassignments, elections, deletions and creations under the same name, changes of configs and of the blacklist, and time that passes.
"""

from __future__ import annotations

import dataclasses

from klamm.controller.events.catalogue import ConfigsChanged
from klamm.controller.values import ConfigEntity
from klamm.tests.controller.metadata_log.logged_simulation import LoggedSimulation
from klamm.tests.controller.reassignment.moving_story import BROKERS, MovingStory
from klamm.tests.controller.simulated import Faults

BLACKLIST = "preferred_leader_blacklist"
KEYS = ("retention.ms", "max.connections", "comment")


class LoggedStory(LoggedSimulation, MovingStory):
    """A seeded run with brokers that register by request, and a metadata log."""

    def __init__(self, seed: int, faults: Faults, throttled: bool = False) -> None:
        super().__init__(seed, faults, throttled)
        self.actions += [self.enlist, self.enlist, *[self.fetch] * 6, self.desert, self.dismiss, self.reconnect, self.wait]
        self.actions += [self.reconfigure, self.reconfigure, self.blacklist]
        if seed % 4 == 1:  # every few records a snapshot
            self.options = dataclasses.replace(self.options, metadata_log_bytes=1)

    # --- what happens ---

    def _chosen(self) -> int | None:
        return self.rng.choice(sorted(self.enlisted)) if self.enlisted else None

    def start(self) -> None:
        """A broker that registers itself may take the id of one that registers by request."""
        w = self.world
        free = [b for b in BROKERS if b not in w.brokers and (b not in self.enlisted or self.rng.random() < 0.2)]
        if len(w.online()) < 5 and free:
            w.start_broker(self.rng.choice(free))

    def enlist(self) -> None:
        free = [b for b in BROKERS if b not in self.enlisted and (b not in self.world.brokers or self.rng.random() < 0.2)]
        if free:
            self.do("start_request_broker", self.rng.choice(free))

    def fetch(self) -> None:
        self.do("let_fetch", sorted(b for b in self.enlisted if self.rng.random() < 0.8))

    def desert(self) -> None:
        if (broker_id := self._chosen()) is not None and self.rng.random() < 0.5:
            self.do("crash_request_broker", broker_id)

    def dismiss(self) -> None:
        if (broker_id := self._chosen()) is not None and self.rng.random() < 0.5:
            self.do("stop_request_broker", broker_id)

    def stop_request_broker(self, broker_id: int) -> None:
        self.enlisted[broker_id].stop()

    def reconnect(self) -> None:
        if (broker_id := self._chosen()) is not None:
            self.do("reconnect_request_broker", broker_id)

    def reconnect_request_broker(self, broker_id: int) -> None:
        self.enlisted[broker_id].reconnect()

    def wait(self) -> None:
        self.do("pass_time", self.rng.choice([500, 2000, 4000, 9500]))

    def pass_time(self, milliseconds: int) -> None:
        self.driven.jump(milliseconds / 1000)

    def reconfigure(self) -> None:
        w, rng = self.world, self.rng
        brokers = [f"brokers/{b}" for b in ("<default>", *BROKERS)]
        entity = rng.choice([*(f"topics/{name}" for name in sorted(w.topics) if name not in w.deletions), *brokers])
        kind, _, name = entity.partition("/")
        stored = dict((w.configs if kind == "topics" else w.broker_configs).get(name, {}))
        key = rng.choice(KEYS)
        if stored.pop(key, None) is None or rng.random() < 0.5:
            stored[key] = f"v{rng.randrange(5)}"
        self.do("change_config", kind, name, stored)

    def blacklist(self) -> None:
        """Brokers are put on the list of those that lead last, or taken from it."""
        name = "<default>"
        listed = ",".join(str(b) for b in self.rng.sample(BROKERS, self.rng.randint(0, 3)))
        self.do("change_config", "brokers", name, {**self.world.broker_configs.get(name, {}), BLACKLIST: listed})

    def change_config(self, kind: str, name: str, properties: dict[str, str]) -> None:
        """Somebody writes a config, and every broker is notified."""
        self.world.write_config(kind, name, properties)
        self.announce(kind, name)

    def announce(self, kind: str, name: str) -> None:
        for process in self.processes:
            process.controller.put(ConfigsChanged(ConfigEntity(kind, name)))

    # --- the end ---

    async def rest(self) -> None:
        await super().rest()
        for name in sorted(self.world.topics):
            self.announce("topics", name)
        await self.settle()

    async def restart_all(self) -> None:
        """Every broker runs, with all of its directories: those that register by request register again, the others are bounced."""
        for broker_id in BROKERS:
            if broker_id in self.enlisted and broker_id not in self.world.brokers:
                self.crash_request_broker(broker_id)
                self.start_request_broker(broker_id)
                await self.settle()
                continue
            if broker_id in self.enlisted:
                self.crash_request_broker(broker_id)
            if broker_id in self.world.brokers:
                self.world.stop_broker(broker_id)
                await self.settle()
            self.world.start_broker(broker_id)
            await self.settle()

    def check(self) -> None:
        super().check()
        active = self.active
        assert active is not None and active.controller.term is not None
        listed = self.world.broker_configs.get("<default>", {}).get(BLACKLIST, "")
        assert active.controller.term.cluster.listed == {int(b) for b in listed.split(",") if b}
