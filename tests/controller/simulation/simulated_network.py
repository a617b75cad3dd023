"""A network in memory, on a loop with a clock of its own, so that the real channels of a controller talk to simulated brokers.

`SimulatedLoop` knows no sockets: its connections end at whoever listens in the same process, and its time goes forward when nobody has
anything else to do, so a second of retries costs nothing. `BrokerNetwork` listens for the brokers of a world. Frames come and go as bytes.
Requests and responses are lost (with the connection, or without a word), and delayed; a request whose response was lost is sent again, so
it arrives twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.protocol import messages
from klamm.protocol.framing import FrameReader
from klamm.tests.controller.simulated import SimulatedWorld
from klamm.tests.controller.simulated_brokers import STALE_CONTROLLER_EPOCH, SentFrame, SimulatedBrokers

Accept = Callable[["SimulatedPipe"], "BrokerEnd | None"]


@dataclass
class NetworkFaults:
    """Chances, between 0 and 1, for each request that arrives."""

    lost_request: float = 0.0
    """The connection breaks before the broker has read it."""
    lost_response: float = 0.0
    """The broker acts on it, and the connection breaks."""
    silence: float = 0.0
    """The broker acts on it, and never responds; the connection stays."""
    delay: float = 0.0
    """The response takes up to half a second."""
    refused: float = 0.0
    """For each connection: nobody accepts it."""


class SimulatedPipe(asyncio.Transport):
    """A client's end of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._broken = False
        self.received: Callable[[bytes], None] = lambda data: None

    def write(self, data: Any) -> None:
        if not self._broken:
            self._loop.call_soon(self.received, bytes(data))

    def abort(self) -> None:
        self._broken = True

    def close(self) -> None:
        self._broken = True

    def is_closing(self) -> bool:
        return self._broken

    def deliver(self, data: bytes) -> None:
        """The other end sends."""
        if not self._broken:
            self._protocol.data_received(data)

    def hang_up(self) -> None:
        """The other end closes the connection."""
        if not self._broken:
            self._broken = True
            self._loop.call_soon(self._protocol.connection_lost, None)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time goes forward to the next timer when nothing is ready, and whose connections stay in the process."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.accept: dict[str, Accept] = {}
        """Who listens at a host."""

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:
        protocol = protocol_factory()
        pipe = SimulatedPipe(self, protocol)
        await asyncio.sleep(0)
        accept = self.accept.get(host)
        end = None if accept is None else accept(pipe)
        if end is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        pipe.received = end.received
        protocol.connection_made(pipe)
        return pipe, protocol


class BrokerEnd:
    """A broker's end of a connection; it belongs to one process of the broker, known by its epoch."""

    def __init__(self, network: BrokerNetwork, broker_id: int, epoch: int, pipe: SimulatedPipe) -> None:
        self._network = network
        self._broker_id = broker_id
        self._epoch = epoch
        self._pipe = pipe
        self._reader = FrameReader(1 << 30)

    def received(self, data: bytes) -> None:
        network = self._network
        for payload in self._reader.feed(data):
            broker = network.world.brokers.get(self._broker_id)
            if broker is None or broker.epoch != self._epoch or network.strikes(network.faults.lost_request):
                self._pipe.hang_up()
                return
            header, offset = messages.decode_request_header(payload)
            request = SentFrame(self._broker_id, header.api_key, header.api_version, bytes(payload[offset:]))
            response = network.act(request)
            breaks = network.strikes(network.faults.lost_response)
            if breaks or network.strikes(network.faults.silence):
                network.not_answered(request)
                if breaks:
                    self._pipe.hang_up()
                return
            frame = messages.encode_response(
                header.api_key, header.api_version, header.correlation_id, messages.encode(response, header.api_version)
            )
            delay_s = network.rng.random() / 2 if network.strikes(network.faults.delay) else 0.0
            asyncio.get_running_loop().call_later(delay_s, self._pipe.deliver, frame)


class BrokerNetwork:
    """The brokers of a world at the other end of the network. What arrives at them goes into the world's journal."""

    def __init__(self, world: SimulatedWorld, brokers: SimulatedBrokers, rng: random.Random, faults: NetworkFaults) -> None:
        self.world = world
        self.rng = rng
        self.faults = faults
        self.repeats = 0
        """How many requests arrived again because their response was lost."""
        self._unanswered: dict[int, SentFrame] = {}
        self._brokers = brokers

    def listen(self, loop: SimulatedLoop) -> None:
        for broker_id in range(1, 10):
            loop.accept[f"host{broker_id}"] = lambda pipe, broker_id=broker_id: self._accept(broker_id, pipe)  # type: ignore[misc]

    def strikes(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def _accept(self, broker_id: int, pipe: SimulatedPipe) -> BrokerEnd | None:
        broker = self.world.brokers.get(broker_id)
        return None if broker is None or self.strikes(self.faults.refused) else BrokerEnd(self, broker_id, broker.epoch, pipe)

    def not_answered(self, frame: SentFrame) -> None:
        """The broker has acted on this request, and the controller will not learn of it."""
        self._unanswered[frame.broker] = frame

    def act(self, frame: SentFrame) -> Any:
        """What the broker responds."""
        self.world.journal.append(frame)
        self.repeats += self._unanswered.pop(frame.broker, None) == frame
        response = self._brokers.respond(frame)
        if response is None:
            name = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}[frame.api_key]
            response = getattr(messages, f"{name}Response")(error_code=STALE_CONTROLLER_EPOCH)
        return response
