"""A broker that registers with the controller: its requests, its state, and what it does about every answer. The controller is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.controller.values import BrokerRegistration, BrokerState, StoreLost
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RegistrationRefused
from klamm.protocol.nouns import Endpoint
from klamm.protocol.records.metadata_records import MetadataRecord, encode_records
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.request_registration.client import RegistrationClient, RegistrationOptions
from klamm.server.request_registration.controller_finder import ControllerFinder
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker
from klamm.zk.find_controller import ElectedController
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import ConnectionLost

OWN = 5
SECRET = b"nobody knows"
ENDPOINTS: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "here", 9092, 0), Endpoint("SECURE", "there", 9093, 1))
OPTIONS = RegistrationOptions("r1", 2000, 9000, 60_000, 30_000, 18_000)
OFFLINE, FENCED, ONLINE, STOPPING = BrokerState
IN_ZOOKEEPER = BrokerRegistration(OWN, 1, ONLINE, ENDPOINTS)


def registered(epoch: int, fenced: bool = True, broker_id: int = OWN) -> MetadataRecord:
    return messages.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)


def unfenced(epoch: int, broker_id: int = OWN) -> MetadataRecord:
    return messages.UnfenceBrokerRecord(id=broker_id, epoch=epoch)


def fenced(epoch: int, broker_id: int = OWN) -> MetadataRecord:
    return messages.FenceBrokerRecord(id=broker_id, epoch=epoch)


class World:
    """One broker and two brokers that may be the controller; `controller` is what `/controller` says. Time stands still."""

    def __init__(self) -> None:
        self.scripts = [ScriptedBroker(), ScriptedBroker()]
        self.controller: int | None = 0
        self.elected = -1
        self.ids = [0, 1]
        """Broker ids of the two."""
        self.own = ENDPOINTS
        self.clock = DrivenClock()
        self.identity = BrokerIdentity(OWN, "c")
        self.serving: list[bool] = []
        self.listener = "PLAINTEXT"
        """The listener of the controllers."""
        finder = ControllerFinder(self.identity, "PLAINTEXT", self._read, lambda: self.own, self.clock, lambda: None, lambda: self.elected)
        self.endpoints = ENDPOINTS
        self.stored: BrokerRegistration | Exception | None = None
        """What ZooKeeper has of the broker, or how a look at it fails."""
        self.is_stored_held = False
        """Whether ZooKeeper does not answer."""
        self.looks: list[float] = []
        self.client = RegistrationClient(
            self.identity, OPTIONS, lambda: self.endpoints, finder, self._stored, self.serving.append, None, self.clock, secret=SECRET
        )
        self.handled = [0, 0]
        self.known: tuple[ApiKey, ...] = (ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH)
        """What the scripted brokers offer."""
        self.epoch = 0
        self.log: list[MetadataRecord] = []
        self.ce = 7

    async def _read(self) -> ElectedController | None:
        if self.controller is None:
            return None
        return ElectedController(self.ids[self.controller], (Endpoint(self.listener, "127.0.0.1", self.scripts[self.controller].port, 0),))

    def be_controller(self) -> None:
        """The first of the two is this broker itself."""
        self.ids[0], self.own = OWN, (Endpoint("PLAINTEXT", "127.0.0.1", self.scripts[0].port, 0),)

    async def _stored(self) -> BrokerRegistration | None:
        self.looks.append(self.clock.monotonic())
        if self.is_stored_held:
            await asyncio.get_running_loop().create_future()
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    @property
    def state(self) -> BrokerState:
        return self.client.own.state

    async def cut_off(self) -> None:
        """Online, and from now on without the controller."""
        await self.online()
        await self.fetch()
        self.controller = None
        self.scripts[0].writers[0].close()

    async def pass_seconds(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await self.clock.advance(0.1)
            await asyncio.sleep(0)

    async def next(self, api: ApiKey, script: int = 0) -> Any:
        """The next request to this broker, which must be of this API. Failed tries are repeated: time passes meanwhile."""
        while True:
            requests, index = self.scripts[script].requests, self.handled[script]
            for _ in range(1000):
                if len(requests) > index:
                    break
                await self.clock.advance(0.005)
                await asyncio.sleep(0.001)
            assert len(requests) > index, "no request"
            self.handled[script] += 1
            _, header, body = requests[index]
            if header.api_key != ApiKey.API_VERSIONS:
                assert header.api_key == api
                return body
            self.offer(script)

    def offer(self, script: int = 0) -> None:
        """Answer the request that came last, which asks for the versions of all APIs."""
        known = messages.ApiVersionsResponse.ApiVersion
        self.answer(script, api_keys=[known(key, 0, 0) for key in self.known])

    def answer(self, script: int = 0, **fields: Any) -> None:
        """Answer the request that `next` returned last."""
        self.scripts[script].answer(self.handled[script] - 1, **fields)

    async def accept(self, script: int = 0) -> Any:
        """The next request registers: accept it, with the next epoch."""
        body = await self.next(ApiKey.REGISTER_BROKER, script)
        self.epoch += 1
        self.log.append(registered(self.epoch))
        self.answer(script, broker_epoch=self.epoch, state=FENCED)
        return body

    async def fetch(self, script: int = 0) -> Any:
        return await self.next(ApiKey.METADATA_FETCH, script)

    def serve(self, fetch: Any, state: int = FENCED, script: int = 0, upto: int | None = None, **fields: Any) -> None:
        """Answer a fetch with the records of `log` from its offset to `upto`."""
        offset = max(fetch.fetch_offset, 0)
        records = self.log[offset:upto]
        batches = encode_records(records, offset, self.ce, 0) if records else b""
        known: dict[str, Any] = {"state": state, "controller_epoch": self.ce, "log_start_offset": 0, "high_watermark": len(self.log)}
        self.answer(script, **(known | {"records": batches} | fields))

    async def online(self) -> None:
        """Registered, and unfenced by the log."""
        await self.accept()
        self.log.append(unfenced(self.epoch))
        self.serve(await self.fetch(), ONLINE)
        await eventually(lambda: self.state is ONLINE, "online")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    one = World()
    for script in one.scripts:
        await script.start()
    yield one
    await one.client.close()
    for script in one.scripts:
        await script.stop()


@pytest.fixture
async def started(world: World) -> AsyncIterator[World]:
    """A broker that has begun."""
    starting = asyncio.ensure_future(world.client.start())
    yield world
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)


async def settled(world: World, script: int = 0) -> Any:
    """The next fetch: what the answer before it says has been done."""
    return await world.fetch(script)


@pytest.mark.requirement("RREG-12")
async def test_broker_registers_its_endpoints_and_rack_and_has_begun_when_it_is_registered(world: World) -> None:
    starting = asyncio.ensure_future(world.client.start())
    body = await world.next(ApiKey.REGISTER_BROKER)
    rows = [(e.listener, e.host, e.port, e.security_protocol) for e in body.endpoints]
    assert (body.broker_id, body.rack_id, rows, body.secret) == (OWN, "r1", list(ENDPOINTS), SECRET)
    assert (world.state, world.identity.broker_epoch, starting.done()) == (OFFLINE, -1, False)
    world.answer(broker_epoch=4, state=FENCED)
    await starting
    assert (world.state, world.identity.broker_epoch, world.serving) == (FENCED, 4, [])


@pytest.mark.requirement("RREG-21")
async def test_first_fetch_knows_no_controller_epoch_and_carries_id_epoch_and_interval(started: World) -> None:
    await started.accept()
    fetch = await started.fetch()
    assert (fetch.broker_id, fetch.broker_epoch, fetch.controller_epoch, fetch.fetch_offset) == (OWN, 1, -1, 0)
    assert (fetch.max_wait_ms, fetch.want_shut_down, fetch.max_bytes, fetch.secret) == (2000, False, 1 << 20, SECRET)


@pytest.mark.requirement("RREG-21")
@pytest.mark.requirement("RREG-9")
@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
async def test_unknown_epoch_makes_the_broker_register_again_and_go_on_where_it_was_in_the_log(started: World, code: ErrorCode) -> None:
    await started.online()
    await started.fetch()
    started.answer(error_code=code, state=OFFLINE, controller_epoch=7, log_start_offset=0, high_watermark=2)
    await started.accept()
    assert started.serving == [True, False]
    fetch = await started.fetch()
    assert (fetch.broker_epoch, fetch.controller_epoch, fetch.fetch_offset) == (2, 7, 2)
    assert started.scripts[0].connections == 1


@pytest.mark.requirement("RREG-7")
async def test_broker_is_online_when_it_applies_the_record_that_unfences_it(started: World) -> None:
    await started.accept()
    fetch = await started.fetch()
    started.serve(fetch, ONLINE)
    fetch = await settled(started)
    assert (started.state, fetch.fetch_offset) == (FENCED, 1), "the state in the answer is not enough"
    started.log += [registered(1, broker_id=6), unfenced(1, broker_id=6)]
    started.serve(fetch, ONLINE)
    fetch = await settled(started)
    assert started.state is FENCED, "another broker is unfenced"
    started.log += [unfenced(1), registered(2, broker_id=6)]
    started.serve(fetch, ONLINE, upto=4)
    fetch = await settled(started)
    assert (started.state, fetch.fetch_offset, fetch.controller_epoch) == (ONLINE, 4, 7)
    assert started.serving == [True]


@pytest.mark.requirement("RREG-7")
async def test_record_that_unfences_an_earlier_registration_counts_for_nothing(started: World) -> None:
    await started.accept()
    started.log += [unfenced(1), registered(2)]
    await started.fetch()
    started.answer(error_code=ErrorCode.STALE_BROKER_EPOCH)
    body = await started.next(ApiKey.REGISTER_BROKER)
    assert body.broker_id == OWN
    started.answer(broker_epoch=2, state=FENCED)
    started.serve(await started.fetch(), FENCED)
    await settled(started)
    assert (started.state, started.serving) == (FENCED, [])


@pytest.mark.requirement("RREG-6")
async def test_record_that_unfences_does_not_count_while_the_controller_says_fenced_and_the_log_goes_on(started: World) -> None:
    await started.accept()
    started.serve(await started.fetch(), FENCED)
    fetch = await started.fetch()
    started.log += [unfenced(1), registered(2, broker_id=6), fenced(1)]
    started.serve(fetch, FENCED, upto=3)
    fetch = await settled(started)
    assert (started.state, fetch.fetch_offset) == (FENCED, 3), "the record that fences it again is still to come"
    started.serve(fetch, FENCED)
    fetch = await settled(started)
    started.log.append(unfenced(1))
    started.serve(fetch, ONLINE)
    await settled(started)
    assert (started.state, started.serving[-1]) == (ONLINE, True)


@pytest.mark.requirement("RREG-6")
async def test_broker_is_fenced_when_it_applies_the_record_that_fences_it(started: World) -> None:
    await started.online()
    fetch = await started.fetch()
    started.log += [registered(1, broker_id=6), fenced(1, broker_id=6)]
    started.serve(fetch, ONLINE)
    fetch = await settled(started)
    assert started.state is ONLINE
    started.log += [fenced(1)]
    started.serve(fetch, FENCED)
    fetch = await settled(started)
    assert started.serving == [True, False]
    started.log += [unfenced(1)]
    started.serve(fetch, ONLINE)
    await settled(started)
    assert started.serving == [True, False, True]


@pytest.mark.requirement("RREG-9")
async def test_broker_that_the_log_takes_offline_is_fenced_and_registers_again_when_the_controller_says_so(started: World) -> None:
    await started.online()
    started.log += [messages.UnregisterBrokerRecord(broker_id=OWN, broker_epoch=1)]
    started.serve(await started.fetch(), OFFLINE)
    await started.fetch()
    assert (started.state, started.serving) == (OFFLINE, [True, False])
    started.answer(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    await started.accept()
    assert (await started.fetch()).broker_epoch == 2


@pytest.mark.requirement("RREG-14")
async def test_broker_whose_id_appears_in_zookeeper_is_fenced(started: World) -> None:
    await started.online()
    started.log += [registered(9999, fenced=False)]
    started.serve(await started.fetch(), FENCED)
    await settled(started)
    assert started.serving == [True, False]


@pytest.mark.requirement("RREG-9")
async def test_broker_looks_for_the_controller_when_it_asked_another(started: World) -> None:
    await started.next(ApiKey.REGISTER_BROKER)
    started.controller = 1
    started.answer(error_code=ErrorCode.NOT_CONTROLLER, broker_epoch=-1)
    await started.accept(script=1)
    await started.fetch(script=1)
    started.controller = 0
    started.answer(1, error_code=ErrorCode.NOT_CONTROLLER)
    assert (await started.fetch()).broker_epoch == 1


@pytest.mark.requirement("RREG-9", "RREG-20")
async def test_broker_leaves_a_controller_that_answers_still_but_is_none_any_more(started: World) -> None:
    """It has lost ZooKeeper, so it does not know yet."""
    await started.online()
    started.elected = 0
    started.serve(await started.fetch(), ONLINE)
    fetch = await started.fetch()
    started.controller = started.elected = 1
    started.serve(fetch, ONLINE)
    assert (await started.fetch(script=1)).broker_epoch == 1


@pytest.mark.requirement("RREG-9")
@pytest.mark.parametrize("connection", ["is lost", "is silent"])
async def test_broker_looks_for_the_controller_when_its_connection_is_of_no_use(started: World, connection: str) -> None:
    await started.online()
    await started.fetch()
    started.controller = 1
    if connection == "is lost":
        started.scripts[0].writers[0].close()
    fetch = await started.fetch(script=1)
    assert (fetch.broker_epoch, fetch.controller_epoch, fetch.fetch_offset) == (1, 7, 2)
    assert started.state is ONLINE


async def test_broker_waits_for_a_controller(world: World) -> None:
    world.controller = None
    starting = asyncio.ensure_future(world.client.start())
    await world.clock.advance(30, lambda: asyncio.sleep(0.001))
    assert world.scripts[0].requests == []
    world.controller = 1
    await world.accept(script=1)
    await starting


@pytest.mark.requirement("RREG-15")
async def test_a_controller_that_does_not_know_the_requests_is_sent_none_until_another_one_does(started: World) -> None:
    """As Kafka's does not: it would close the connection, and log an error."""
    started.known = (ApiKey.FETCH,)
    script = started.scripts[0]
    while len(script.requests) < 5:
        await started.clock.advance(0.5, lambda: asyncio.sleep(0.001))
        await asyncio.sleep(0.001)
        if len(script.requests) > started.handled[0]:
            started.handled[0] += 1
            started.offer()
    assert {header.api_key for _, header, _ in script.requests} == {ApiKey.API_VERSIONS}
    assert started.state is OFFLINE
    started.known = (ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH)
    await started.accept()
    assert (await started.fetch()).broker_epoch == 1


@pytest.mark.requirement("RREG-9")
@pytest.mark.parametrize(
    ("code", "start"), [(ErrorCode.FENCED_LEADER_EPOCH, 0), (ErrorCode.FENCED_LEADER_EPOCH, 30), (ErrorCode.OFFSET_OUT_OF_RANGE, 30)]
)
async def test_another_log_is_read_from_its_start_and_the_broker_stays_online(started: World, code: ErrorCode, start: int) -> None:
    await started.online()
    await started.fetch()
    started.answer(error_code=code, state=ONLINE, controller_epoch=8, log_start_offset=start, high_watermark=start + 1)
    fetch = await started.fetch()
    assert (fetch.controller_epoch, fetch.fetch_offset, fetch.broker_epoch) == (8, start, 1)
    batch = encode_records([registered(1, fenced=False)], start, 8, 0)
    known = {"controller_epoch": 8, "log_start_offset": start, "high_watermark": start + 1}
    started.answer(state=ONLINE, records=batch, **known)
    assert (await started.fetch()).fetch_offset == start + 1
    assert (set(started.client.view.brokers), started.serving) == ({OWN}, [True])


@pytest.mark.parametrize("records", [b"nonsense", encode_records([unfenced(1)], 5, 7, 0), encode_records([unfenced(1)], 2, 6, 0)])
async def test_records_that_make_no_sense_are_read_again_from_the_start_of_the_log(started: World, records: bytes) -> None:
    await started.online()
    started.serve(await started.fetch(), ONLINE, records=records, log_start_offset=1)
    fetch = await started.fetch()
    assert (fetch.controller_epoch, fetch.fetch_offset) == (7, 1)
    assert started.state is ONLINE


@pytest.mark.requirement("RREG-22")
async def test_broker_without_an_answer_that_counts_fences_itself_and_returns_when_the_log_has_not_fenced_it(started: World) -> None:
    await started.online()
    fetch = await started.fetch()
    started.controller = None
    started.scripts[0].writers[0].close()
    await started.clock.advance(8.9, lambda: asyncio.sleep(0.001))
    assert started.serving == [True]
    await started.clock.advance(0.2)
    assert started.serving == [True, False]
    started.controller = 1
    started.log += [registered(1, broker_id=6)]
    fetch = await started.fetch(script=1)
    started.serve(fetch, ONLINE, script=1, records=b"")
    fetch = await settled(started, 1)
    assert started.state is FENCED, "it has not reached the end of the log"
    started.serve(fetch, FENCED, script=1)
    fetch = await settled(started, 1)
    assert started.state is FENCED, "the controller holds another state"
    started.serve(fetch, ONLINE, script=1)
    await settled(started, 1)
    assert started.serving == [True, False, True]


@pytest.mark.requirement("RREG-24")
async def test_broker_whose_controller_is_dead_serves_as_long_as_zookeeper_says_that_it_is_online_and_not_silent(started: World) -> None:
    started.stored = IN_ZOOKEEPER
    await started.cut_off()
    await started.pass_seconds(300)
    assert started.serving == [True]
    started.controller = 1
    await started.fetch(script=1)
    assert len(started.looks) < 1000, "it looks now and then only"
    started.stored = IN_ZOOKEEPER._replace(is_silent=True)
    await started.pass_seconds(started.client.own.notice_s + 0.2)
    assert started.serving == [True, False], "a controller is there and does not hear it"


@pytest.mark.requirement("RREG-24")
async def test_broker_that_hears_the_controller_does_not_look_into_zookeeper(started: World) -> None:
    await started.online()
    for _ in range(20):
        fetch = await started.fetch()
        await started.clock.advance(2)
        started.serve(fetch, ONLINE)
    assert started.looks == [] and started.serving == [True]


@pytest.mark.requirement("RREG-24")
@pytest.mark.parametrize(
    "stored",
    [
        IN_ZOOKEEPER._replace(is_silent=True), IN_ZOOKEEPER._replace(state=FENCED), IN_ZOOKEEPER._replace(state=OFFLINE),
        IN_ZOOKEEPER._replace(epoch=2), None, StoreLost("over"), Unreadable("nonsense"), ConnectionLost(), RuntimeError("a fault"),
    ],
    ids=str,
)
async def test_broker_without_its_controller_fences_itself_when_zookeeper_does_not_say_that_it_is_online(
    started: World, stored: BrokerRegistration | Exception | None
) -> None:
    started.stored = stored
    await started.cut_off()
    await started.pass_seconds(8.9)
    assert started.serving == [True]
    await started.pass_seconds(0.2)
    assert started.serving == [True, False]
    assert len(started.looks) >= 3, "it was not the first look alone that counted"
    started.stored = IN_ZOOKEEPER
    await started.pass_seconds(10)
    assert started.state is FENCED, "only the controller unfences it"


@pytest.mark.requirement("RREG-24")
async def test_what_zookeeper_says_counts_from_the_moment_of_the_question_and_for_a_third_of_the_session(started: World) -> None:
    started.stored = IN_ZOOKEEPER
    await started.cut_off()
    await started.pass_seconds(30)
    assert started.serving == [True]
    started.is_stored_held = True
    while started.serving == [True]:
        await started.clock.advance(0.01)
        await asyncio.sleep(0)
    end, third_s = started.clock.monotonic(), OPTIONS.session_timeout_ms / 3000
    asked = max(at for at in started.looks if end - at >= third_s)
    assert end - asked == pytest.approx(third_s, abs=0.05)
    assert started.looks[-1] > asked, "another question had no answer"


@pytest.mark.requirement("RREG-13", "RREG-22")
async def test_broker_that_is_the_controller_itself_serves_no_longer_than_its_zookeeper_session_lasts_for_certain(world: World) -> None:
    """The next controller fences it at once; it is elected when the session is over."""
    world.be_controller()
    world.stored = IN_ZOOKEEPER
    starting = asyncio.ensure_future(world.client.start())
    await world.online()
    await starting
    for _ in range(20):
        fetch = await world.fetch()
        world.serve(fetch, ONLINE)
        await world.clock.advance(2)
    assert world.serving == [True]
    world.is_stored_held = True
    began, answered = world.clock.monotonic(), world.looks[-1]
    while world.serving == [True]:
        world.serve(await world.fetch(), ONLINE)
        await world.clock.advance(1)
        assert world.clock.monotonic() - began < 60
    assert 14 < world.clock.monotonic() - answered < 22, "the session time-out is 18 s"


@pytest.mark.requirement("RREG-13")
async def test_broker_that_was_the_controller_is_fenced_when_its_zookeeper_session_is_over_whatever_its_old_term_answers(
    world: World,
) -> None:
    world.be_controller()
    world.stored = IN_ZOOKEEPER
    starting = asyncio.ensure_future(world.client.start())
    await world.online()
    await starting
    fetch = await world.fetch()
    world.client.session_expired()
    assert world.serving == [True, False]
    world.controller = 1
    world.serve(fetch, ONLINE)
    await world.fetch(script=1)
    assert world.serving == [True, False]


@pytest.mark.requirement("RREG-20")
async def test_broker_that_is_not_the_controller_serves_on_when_its_zookeeper_session_is_over(started: World) -> None:
    await started.online()
    started.client.session_expired()
    started.serve(await started.fetch(), ONLINE)
    await started.fetch()
    assert started.serving == [True]


@pytest.mark.requirement("RREG-22")
async def test_broker_that_fenced_itself_and_was_fenced_by_the_log_returns_only_when_the_log_unfences_it(started: World) -> None:
    await started.online()
    await started.fetch()
    started.controller = None
    started.scripts[0].writers[0].close()
    await started.clock.advance(9.1, lambda: asyncio.sleep(0.001))
    assert started.serving == [True, False]
    started.controller = 1
    started.log += [fenced(1)]
    started.serve(await started.fetch(script=1), ONLINE, script=1)
    fetch = await settled(started, 1)
    assert started.state is FENCED
    started.log += [unfenced(1)]
    started.serve(fetch, ONLINE, script=1)
    await settled(started, 1)
    assert started.serving == [True, False, True]


@pytest.mark.requirement("RREG-22")
@pytest.mark.parametrize("counts", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE])
async def test_answers_that_count_as_heartbeats_keep_a_broker_online(started: World, counts: ErrorCode) -> None:
    await started.online()
    for _ in range(8):
        fetch = await started.fetch()
        await started.clock.advance(2)
        if counts is ErrorCode.NONE:
            started.serve(fetch, ONLINE)
        else:
            started.answer(error_code=counts, state=ONLINE, controller_epoch=7, log_start_offset=2, high_watermark=2)
    await started.fetch()
    assert started.serving == [True]


@pytest.mark.requirement("RREG-22")
async def test_answers_that_count_for_nothing_do_not_keep_a_broker_online(started: World) -> None:
    await started.online()
    began = started.clock.monotonic()
    while started.clock.monotonic() - began < 10:
        await started.fetch()
        await started.clock.advance(1)
        started.answer(error_code=ErrorCode.NOT_CONTROLLER)
    assert started.serving == [True, False]


@pytest.mark.requirement("RREG-10")
async def test_broker_that_stops_fetches_with_want_shut_down_until_it_may_go(started: World) -> None:
    await started.online()
    await started.fetch()
    leaving = asyncio.ensure_future(started.client.leave(15, patient=True))
    for _ in range(3):
        fetch = await started.fetch()
        assert (fetch.want_shut_down, fetch.broker_epoch) == (True, 1)
        started.log += [messages.BrokerRegistrationChangeRecord(broker_id=OWN, broker_epoch=1, in_controlled_shutdown=1)]
        started.serve(fetch, STOPPING)
    fetch = await started.fetch()
    assert (started.state, started.serving) == (STOPPING, [True]), "clients are served while leaders are moved away"
    started.serve(fetch, OFFLINE, result_code=1)
    assert await leaving is True
    assert (started.state, started.serving) == (OFFLINE, [True, False])
    await started.clock.advance(10)
    assert len(started.scripts[0].requests) == started.handled[0]


@pytest.mark.requirement("RREG-10")
async def test_fenced_broker_that_stops_may_go_at_once(started: World) -> None:
    await started.accept()
    await started.fetch()
    leaving = asyncio.ensure_future(started.client.leave(15, patient=True))
    started.serve(await started.fetch(), OFFLINE, result_code=1)
    assert await leaving is True
    assert started.serving == []


@pytest.mark.requirement("RREG-9")
@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
async def test_broker_that_stops_takes_an_unknown_epoch_as_leave_to_go(started: World, code: ErrorCode) -> None:
    await started.online()
    await started.fetch()
    leaving = asyncio.ensure_future(started.client.leave(15, patient=True))
    await started.fetch()
    started.answer(error_code=code)
    assert await leaving is True
    await started.clock.advance(10)
    assert len(started.scripts[0].requests) == started.handled[0], "it does not register again"


@pytest.mark.requirement("RREG-10")
@pytest.mark.parametrize("controller", ["does not let it go", "is silent", "is away"])
async def test_broker_that_stops_gives_up_by_itself(started: World, controller: str) -> None:
    await started.online()
    await started.fetch()
    leaving = asyncio.ensure_future(started.client.leave(3, patient=True))
    if controller == "is away":
        started.controller = None
    elif controller == "does not let it go":
        for _ in range(5):
            started.serve(await started.fetch(), STOPPING)
    began = started.clock.monotonic()
    while not leaving.done():
        await started.clock.advance(0.1, lambda: asyncio.sleep(0.001))
        await asyncio.sleep(0.001)
    assert await leaving is False
    assert 2 <= started.clock.monotonic() - began <= 6, "3 s, and what the clock advanced while sockets were closed"


@pytest.mark.requirement("RREG-10")
async def test_impatient_broker_does_not_wait_for_leaders_that_cannot_be_moved(started: World) -> None:
    await started.online()
    await started.fetch()
    leaving = asyncio.ensure_future(started.client.leave(15, patient=False))
    started.serve(await started.fetch(), STOPPING)
    assert await leaving is False


@pytest.mark.requirement("RREG-16")
async def test_broker_whose_endpoints_change_registers_them_at_once(started: World) -> None:
    await started.online()
    await started.fetch()
    started.endpoints = ENDPOINTS[:1]
    started.client.register_again()
    body = await started.accept()
    assert [e.listener for e in body.endpoints] == ["PLAINTEXT"]
    fetch = await started.fetch()
    assert (fetch.broker_epoch, fetch.fetch_offset) == (2, 2)
    assert started.serving == [True, False]


@pytest.mark.requirement("RREG-3")
@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_broker_that_is_refused_does_not_start(world: World, code: ErrorCode) -> None:
    starting = asyncio.ensure_future(world.client.start())
    await world.next(ApiKey.REGISTER_BROKER)
    world.answer(error_code=code, error_message="because", broker_epoch=-1)
    with pytest.raises(RegistrationRefused, match=rf"{code.name}, because"):
        await starting


async def test_refusal_without_a_text_says_its_code_alone(world: World) -> None:
    starting = asyncio.ensure_future(world.client.start())
    await world.next(ApiKey.REGISTER_BROKER)
    world.answer(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, broker_epoch=-1)
    with pytest.raises(RegistrationRefused, match=r"refuses to register broker 5: CLUSTER_AUTHORIZATION_FAILED$"):
        await starting


async def test_broker_whose_listener_the_controller_does_not_have_says_so_at_once_and_does_not_start(world: World) -> None:
    world.listener = "OTHER"
    with pytest.raises(RegistrationRefused) as refusal:
        await world.client.start()
    assert str(refusal.value) == "broker 5 cannot register: controller 0 has no endpoint for listener PLAINTEXT, only for OTHER"
    assert world.clock.monotonic() == 0, "it waited for nothing"


@pytest.mark.requirement("RREG-3")
async def test_broker_whose_id_is_in_use_tries_until_it_is_free(started: World) -> None:
    for _ in range(4):
        await started.next(ApiKey.REGISTER_BROKER)
        started.answer(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION, broker_epoch=-1, state=ONLINE)
    await started.accept()
    assert (await started.fetch()).broker_epoch == 1


@pytest.mark.requirement("RREG-3")
async def test_broker_whose_id_stays_in_use_does_not_start(world: World) -> None:
    starting = asyncio.ensure_future(world.client.start())
    while not starting.done():
        await world.clock.advance(0.5, lambda: asyncio.sleep(0.001))
        await asyncio.sleep(0.001)
        if len(world.scripts[0].requests) > world.handled[0]:
            world.handled[0] += 1
            if world.scripts[0].requests[-1][1].api_key == ApiKey.API_VERSIONS:
                world.offer()
            else:
                world.answer(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION, error_message="in use", broker_epoch=-1)
    with pytest.raises(RegistrationRefused, match=r"could not register with the controller within 60 s: .*DUPLICATE_BROKER_REGISTRATION"):
        await starting


@pytest.mark.parametrize("lease", ["is long", "is short"])
async def test_fetch_waits_no_longer_than_the_lease_allows(started: World, lease: str) -> None:
    await started.online()
    fetch = await started.fetch()
    assert fetch.max_wait_ms == 2000
    if lease == "is short":
        await started.clock.advance(2)
        started.controller = None
        started.scripts[0].writers[0].close()
        await started.clock.advance(5, lambda: asyncio.sleep(0.001))
        started.controller = 1
        assert 0 < (await started.fetch(script=1)).max_wait_ms <= 1000


@pytest.mark.requirement("RREG-24")
async def test_the_lease_of_a_broker_that_becomes_the_controller_goes_on(started: World) -> None:
    world = started
    await world.online()
    await world.fetch()
    world.ids[1], world.own = OWN, (Endpoint("PLAINTEXT", "127.0.0.1", world.scripts[1].port, 0),)
    world.controller = 1
    world.answer(error_code=ErrorCode.NOT_CONTROLLER)
    world.serve(await world.fetch(1), ONLINE, 1)
    await world.fetch(1)
    assert world.client.own.remaining_s > OPTIONS.session_timeout_ms / 1000 / 2
