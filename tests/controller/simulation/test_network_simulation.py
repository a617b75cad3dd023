"""The simulation with the real channels of the controller, over a network that loses, repeats and delays, on a clock of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from klamm.controller.propagation.batch import Channels
from klamm.server.net.channels import Channels as NetChannels
from klamm.tests.controller.simulated import Crashed, Faults
from klamm.tests.controller.simulated_brokers import SentFrame, SimulatedBrokers
from klamm.tests.controller.simulation.simulated_network import BrokerNetwork, NetworkFaults, SimulatedLoop
from klamm.tests.controller.simulation.simulated_story import SimulatedStory
from klamm.tests.harness.seeds import seeds

RESPONSE_S = 1.0
"""So long a channel waits for a response before it tries again."""


class NetworkStory(SimulatedStory):
    """A seeded run whose processes talk to the brokers over the network."""

    def __init__(self, seed: int, faults: Faults, network: NetworkFaults, loop: SimulatedLoop) -> None:
        super().__init__(seed, faults)
        self.network = BrokerNetwork(self.world, SimulatedBrokers(self.world, self.told), self.rng, network)
        self.network.listen(loop)

    def channels(self, broker_id: int) -> Channels:
        return NetChannels(broker_id, RESPONSE_S)

    def cut(self, channels: Channels) -> None:
        channels.close()

    async def turns(self, count: int) -> None:
        await asyncio.sleep(count / 50)
        await self.revive()

    async def quieten(self) -> None:
        """Until nothing has moved for longer than any retry takes."""
        quiet = turns = 0
        while quiet < 25:
            before = self._marks()
            await asyncio.sleep(0.1)
            await self.revive()
            quiet = quiet + 1 if before == self._marks() else 0
            turns += 1
            assert turns < 5_000, "it never settles"

    async def rest(self) -> None:
        self.network.faults.__init__()  # type: ignore[misc]
        await super().rest()

    def text(self) -> str:
        return f"{super().text()}\nnetwork {asdict(self.network.faults)!r}"


async def tell(seed: int, faults: Faults, network: NetworkFaults, steps: int = 40) -> NetworkStory:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    bad: list[Any] = []

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):
            bad.append(context)

    loop.set_exception_handler(unhandled)
    story = NetworkStory(seed, faults, network, loop)
    try:
        await story.tell(steps, controllers=2)
        story.check()
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n\nThe story, seed {seed}:\n{story.text()}") from problem
    finally:
        for process in story.processes:
            await process.end()
    assert not bad
    return story


@pytest.fixture(autouse=True)
def quiet_channels() -> Iterator[None]:
    """Channels over a bad network have much to complain of."""
    log = logging.getLogger("klamm.server.net.channels")
    level = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(level)


def run(seed: int, faults: Faults, network: NetworkFaults) -> NetworkStory:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(tell(seed, faults, network))


@pytest.mark.parametrize("seed", range(8))
def test_every_broker_learns_what_is_written_over_a_good_network(seed: int) -> None:
    story = run(seed, Faults(), NetworkFaults())
    assert story.network.repeats == 0 and any(isinstance(entry, SentFrame) for entry in story.world.journal)


@pytest.mark.parametrize("seed", seeds(25))
def test_every_broker_learns_what_is_written_however_often_the_network_fails(seed: int) -> None:
    story = run(seed, Faults(), NetworkFaults(lost_request=0.1, lost_response=0.1, silence=0.05, delay=0.3, refused=0.2))
    assert story.network.repeats > 0


@pytest.mark.parametrize("seed", seeds(25))
def test_every_broker_learns_what_is_written_when_network_and_controllers_fail(seed: int) -> None:
    faults = Faults(
        lost_version=0.05, crash_before_write=0.02, crash_after_write=0.02, lost_epoch=0.02, lost_session=0.01, lost_answer=0.03
    )
    run(seed, faults, NetworkFaults(lost_request=0.1, lost_response=0.1, silence=0.03, delay=0.3, refused=0.1))
