"""Scenarios of the crash matrix about brokers that register with the controller: each write of a registration, of a change of state, and of
a fail-over.

Broker 1 registers itself, brokers 2 and 3 with the controller. A broker whose request gets no answer sends it again, to whoever is the
controller then.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.controller.values import BrokerState
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.metadata_log.logged_simulation import LoggedSimulation
from klamm.tests.controller.simulation.crash_matrix import CrashRun, Fault, Scenario, Step, gone, led, two_topics


class RegisteredRun(LoggedSimulation, CrashRun):
    """A run with brokers that register by request, and a metadata log."""

    def __init__(self, fault: Fault | None = None, at: int = 0, again_after: int = 0) -> None:
        super().__init__(fault, at, again_after)
        self.repeats_exactly = False


Act = Callable[[RegisteredRun], None]


def step(*acts: Act) -> Step:
    """Do these things, and let the cluster settle after each."""

    async def run_all(run: CrashRun) -> None:
        assert isinstance(run, RegisteredRun)
        for act in acts:
            act(run)
            await run.settle()

    return run_all


def enlist(*broker_ids: int) -> Act:
    def act(run: RegisteredRun) -> None:
        for broker_id in broker_ids:
            run.start_request_broker(broker_id)

    return act


async def registered(run: CrashRun) -> None:
    """Brokers 2 and 3 are online, and lead."""
    await step(enlist(2, 3))(run)
    await two_topics(run)
    await run.settle()
    assert run.leaders("b") == [2, 2, 3]


async def one_is_fenced(run: CrashRun) -> None:
    """Broker 2 has registered, and does not fetch."""
    await registered(run)
    assert isinstance(run, RegisteredRun)
    run.enlisted[2].silent = True
    await run.pass_seconds(18)
    assert states(run)[2] is BrokerState.FENCED and run.leaders("b") == [1, -1, 3]


async def only_one_in_sync(run: CrashRun) -> None:
    """Broker 2 alone is in sync in the partition `b-0`, which has another replica."""
    await registered(run)
    key = TopicPartition("b", 0)
    run.world.write(key, run.world.states[key]._replace(isr=(2,)))
    run.world.notify_isr_change([key])
    await run.settle()


async def one_is_both(run: CrashRun) -> None:
    """Broker 2 has registered with the controller, and then itself."""
    await registered(run)
    await step(lambda run: run.world.start_broker(2))(run)


def states(run: CrashRun) -> dict[int, BrokerState]:
    return {broker_id: registration.state for broker_id, registration in run.world.registrations.items()}


def are(*wanted: tuple[int, BrokerState], leaders: tuple[int, ...] | None = None) -> Callable[[CrashRun], bool]:
    """These brokers are in these states, and topic `b` has these leaders."""

    def look(run: CrashRun) -> bool:
        found = states(run)
        return all(found[b] is state for b, state in wanted) and (leaders is None or run.leaders("b") == list(leaders))

    return look


async def bounce(run: CrashRun) -> None:
    """The process of broker 2 ends, and starts again."""
    assert isinstance(run, RegisteredRun)
    run.crash_request_broker(2)
    await step(enlist(2))(run)


async def fall_silent(run: CrashRun) -> None:
    """Broker 2 is not heard any more, for as long as it takes the controller of that time to fence it."""
    assert isinstance(run, RegisteredRun)
    run.enlisted[2].silent = True
    await run.pass_seconds(24)


async def stop_and_fall_silent(run: CrashRun) -> None:
    """Broker 2 wants to shut down, cannot, as it alone is in sync somewhere, and is not heard any more.

    To a controller that finds it so it is no broker that may lead; so it may go then.
    """
    assert isinstance(run, RegisteredRun)
    run.enlisted[2].stop()
    await run.settle()
    if run.fault is None:
        assert states(run)[2] is BrokerState.STOPPING and run.leaders("b")[0] == 2
    if 2 in run.enlisted:
        await fall_silent(run)


async def fail_over(run: CrashRun) -> None:
    """The controller changes while one broker is online, one fenced, one offline."""
    run.world.drop_controller()
    await run.settle()


async def all_states(run: CrashRun) -> None:
    await one_is_fenced(run)
    await step(enlist(4))(run)
    assert isinstance(run, RegisteredRun)
    run.enlisted[4].stop()
    await run.settle()
    assert states(run)[4] is BrokerState.OFFLINE


def _speak(run: RegisteredRun) -> None:
    run.enlisted[2].silent = False


def _stop(broker_id: int) -> Act:
    return lambda run: run.enlisted[broker_id].stop()


_FENCED, _ONLINE, _OFFLINE, _STOPPING = BrokerState.FENCED, BrokerState.ONLINE, BrokerState.OFFLINE, BrokerState.STOPPING

REGISTRATIONS = (
    Scenario("first registrations", step(enlist(2, 3)), are((2, _ONLINE), (3, _ONLINE)), brokers=(1,)),
    Scenario("registration after an end", bounce, are((2, _ONLINE), leaders=(1, 2, 3)), registered, (1,)),
    Scenario("unfencing", step(_speak), are((2, _ONLINE), leaders=(1, 2, 3)), one_is_fenced, (1,)),
    Scenario("fencing", fall_silent, are((2, _FENCED), (3, _ONLINE), leaders=(1, -1, 3)), registered, (1,)),
    Scenario("shutdown by request", step(_stop(3)), are((3, _OFFLINE), leaders=(2, 2, 2)), registered, (1,)),
    Scenario("shutdown that is not completed", stop_and_fall_silent, are((2, _OFFLINE), leaders=(-1, -1, 3)), only_one_in_sync, (1,)),
    Scenario("fail-over to brokers in all states", fail_over, are((2, _FENCED), (3, _ONLINE), (4, _OFFLINE)), all_states, (1,)),
    Scenario(
        "a broker registers itself under the same id",
        step(lambda run: run.world.start_broker(2)),
        are((2, _FENCED)),
        registered,
        (1,),
    ),
    Scenario(
        "the one that registered itself goes",
        step(lambda run: run.world.stop_broker(2)),
        are((2, _ONLINE), leaders=(1, 2, 3)),
        one_is_both,
        (1,),
    ),
    Scenario("deletion with brokers of both kinds", step(lambda run: run.world.delete_topic("b")), gone("b"), registered, (1,)),
    Scenario("creation with brokers of both kinds", two_topics, led("b", 2, 2, 3), step(enlist(2, 3)), (1,)),
)
