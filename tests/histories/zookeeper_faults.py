"""A ZooKeeper of its own for one history: frozen, killed and started again, and sessions of brokers that somebody else ends.

It keeps its data over a restart. Each broker reaches it through a proxy of its own, on a port that stays while the server's changes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from kazoo.handlers.threading import KazooTimeoutError

from klamm.server.local.loop_thread import LoopThread
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.proxy import Proxy
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_until_stopped
from klamm.tests.histories.chaos import AWAY_S, Chaos, Fault
from klamm.zk.embedded.server import EmbeddedZooKeeper

CHROOT = "/history"
REGISTERED_S = 60.0


class FailingZooKeeper:
    """A server, a proxy for each broker, and one for the test's own session."""

    def __init__(self, folder: Path, ids: Iterable[int]) -> None:
        self.server = EmbeddedZooKeeper(folder)
        self.server.start()
        self._loop = LoopThread("zookeeper-proxies")
        self._ways = {broker_id: self._proxy() for broker_id in ids}
        self._own = self._proxy()
        self.tree = Tree(f"127.0.0.1:{self._own.port}", CHROOT)

    def close(self) -> None:
        self.tree.close()
        for proxy in (*self._ways.values(), self._own):
            self._loop.call(proxy.close())
        self._loop.close()
        self.server.stop()

    def address(self, broker_id: int) -> str:
        """`zookeeper.connect` of a broker."""
        return f"127.0.0.1:{self._ways[broker_id].port}{CHROOT}"

    def faults(self) -> dict[str, Fault]:
        """What may happen, by name."""
        return {"ZooKeeper frozen": self.freeze, "ZooKeeper killed": self.kill, "session taken over": self.take_over}

    def freeze(self, chaos: Chaos, broker_id: int) -> None:
        """Nobody hears from ZooKeeper; after that it notices the sessions that were silent too long."""
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until_stopped(pid)
            chaos.wait(*AWAY_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        self._again(chaos)

    def kill(self, chaos: Chaos, broker_id: int) -> None:
        """kill -9; it starts with what it had, on another port."""
        self.server.stop()
        chaos.wait(*AWAY_S)
        port = int(self.server.start().rsplit(":", 1)[1])
        for proxy in (*self._ways.values(), self._own):
            proxy.target_port = port
        self._again(chaos)

    def take_over(self, chaos: Chaos, broker_id: int) -> None:
        """Somebody with the broker's session id and password closes its session, unless that is over already."""
        epoch = self.tree.broker_epoch(broker_id)
        try:
            self._loop.call(self._ways[broker_id].end_session())
        except KazooTimeoutError:
            chaos.done["session over already"] += 1
            return
        broker = chaos.members.brokers[broker_id]
        broker.wait(lambda: self.tree.broker_epoch(broker_id) not in (-1, epoch), "registered in a new session", REGISTERED_S)
        self._again(chaos)

    def _again(self, chaos: Chaos) -> None:
        """Wait until this session and all brokers are connected again."""
        wait_for(lambda: self.tree.client.connected, "connected to ZooKeeper again")
        chaos.revive()
        chaos.members.settled()

    def _proxy(self) -> Proxy:
        return self._loop.call(Proxy(int(self.server.address.rsplit(":", 1)[1]), frames=False).start())
