"""Every phase of a cluster is held and stepped over HTTP alone, fails where it can, and is the end of a broker.

The clients and the changes of one scenario pass all phases; it is repeated until all holds were reached. In the end everything works, after
an operator did what is needed: start brokers that were killed, and move the controller after an event failed. What the event left
undone is done by the next controller, when it has loaded the cluster (controller 5 to 7), as with Apache Kafka, whose controller logs
the exception and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from klamm.admin import AdminError, AsyncAdminClient
from klamm.server.local.arguments import SeedTopic
from klamm.server.phases import PHASES, can_fail
from klamm.tests.control import every_phase
from klamm.tests.control.api import Api, served
from klamm.tests.control.every_phase import Holds
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually_asked

CONFIG = {
    "kip179.enable": "true", "registerbroker.enable": "true", "auto.leader.rebalance.enable": "false", "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
CLIENT = {"socket.timeout.ms": 3000, "log_level": 0, "api.version.request.timeout.ms": 2000}
MEMBER = {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "isolation.level": "read_uncommitted"}
TURN_S = 30.0
TURNS = 10
LOOK_S = 0.02


class Scenario:
    """What passes the phases. Each part may fail while its phases are steered."""

    def __init__(self, api: Api, tree: Tree) -> None:
        self.api, self.tree = api, tree
        self._turn = 0

    async def turn(self) -> None:
        """Do everything once."""
        self._turn += 1
        parts = self.topics, self.office, self.brokers, self.moves, self.transactions, self.recovery, self.groups, self.registration
        for part in parts:
            try:
                async with asyncio.timeout(TURN_S):
                    await start_all(self.api)
                    await part()
            except (TimeoutError, AssertionError, AdminError, KafkaException, OSError):
                continue

    async def topics(self) -> None:
        """A topic is created, grows, has its preferred leaders elected, and is deleted."""
        name = f"made-{self._turn}"
        await self.api.call("POST", "/topics", {"name": name, "partitions": 1, "replication_factor": 2})
        await self.api.call("POST", f"/topics/{name}/partitions", {"partitions": 2})
        await asyncio.to_thread(self.tree.put, "/admin/preferred_replica_election", {
            "version": 1, "partitions": [{"topic": "t", "partition": 0}],
        })
        await self.api.call("DELETE", f"/topics/{name}")

    async def office(self) -> None:
        """The session of the controller ends."""
        await self.api.call("POST", "/zookeeper/expire", {"broker": (await self.api.get("/controller"))["id"]})

    async def brokers(self) -> None:
        """A broker is killed, another one shut down, and both come back."""
        for verb in ("kill", "stop"):
            office = (await self.api.get("/controller"))["id"]
            other = office % 3 + 1
            await self.api.call("POST", f"/brokers/{other}/{verb}", {})
            await self.api.call("POST", f"/brokers/{other}/start")

    async def moves(self) -> None:
        """Partitions move under a throttle. Before that, requests set throttles that later ones replace."""
        rows = (await self.api.get("/topics/t"))["partitions"]
        async with AsyncAdminClient(",".join(f"{host}:{port}" for _, host, port in self.api.served.addresses)) as admin:
            for broker, topic in ((2, "u"), (1, "t")):
                (await admin.alter_interbroker_throttled_rates({broker: (50_000_000, 50_000_000)})).all()
                (await admin.alter_interbroker_throttled_replicas({(topic, 0): ((1,), (2,))})).all()
            for index, row in enumerate(rows):
                spare = ({1, 2, 3} - set(row["replicas"])).pop()
                with suppress(AdminError):  # it is being moved since the last turn
                    (await admin.reassign_partitions({("t", index): (row["replicas"][1], spare)}, throttle=50_000_000 + index)).all()

            async def is_over() -> bool:
                return not await admin.list_partition_reassignments()

            await eventually_asked(is_over, "the moves are over", TURN_S)

    async def groups(self) -> None:
        """A member joins a group, commits and leaves."""
        await asyncio.to_thread(self._consume)

    def _consume(self) -> None:
        consumer = Consumer(self._client() | MEMBER | {"group.id": f"g{self._turn}"})
        try:
            consumer.subscribe(["t"])
            if consumer.consume(1, 15):
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    async def transactions(self) -> None:
        """A transaction has two partitions and is committed, one is fenced by another producer, and one times out."""
        await asyncio.to_thread(self._transact)

    def _transact(self) -> None:
        name = f"x{self._turn}"
        producer = Producer(self._client() | {"transactional.id": name, "transaction.timeout.ms": 5000})
        producer.init_transactions(15)
        for is_left in (False, True):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("t", b"x", partition=partition)
                producer.flush(10)
            if not is_left:
                producer.commit_transaction(15)
        other = Producer(self._client() | {"transactional.id": name, "transaction.timeout.ms": 5000})
        other.init_transactions(15)
        other.begin_transaction()
        other.produce("t", b"y", partition=0)
        other.flush(10)

    async def recovery(self) -> None:
        """A follower is elected uncleanly that has an open transaction in its log, and ends it."""
        await asyncio.to_thread(self._leave_open)
        row = await self._unclean()
        (follower,) = set(row["replicas"]) - {row["leader"]}
        await self.api.call("POST", f"/brokers/{follower}/kill", {"expire": True})

        async def is_alone() -> bool:
            return (await self._unclean())["isr"] == [row["leader"]]

        await eventually_asked(is_alone, f"broker {follower} has left the ISR", TURN_S)
        await self.api.call("POST", f"/brokers/{row['leader']}/kill", {"expire": True})
        await self.api.call("POST", f"/brokers/{follower}/start")

        async def serves() -> bool:
            return (await self._unclean())["leader"] == follower and not (await self.api.get("/recovering"))["recovering"]

        await eventually_asked(serves, f"broker {follower} leads", TURN_S)

    async def _unclean(self) -> dict[str, Any]:
        row: dict[str, Any] = (await self.api.get("/topics/unclean"))["partitions"][0]
        return row

    def _leave_open(self) -> None:
        producer = Producer(self._client() | {"transactional.id": f"open{self._turn}"})
        producer.init_transactions(15)
        producer.begin_transaction()
        producer.produce("unclean", b"z")
        producer.flush(10)

    async def registration(self) -> None:
        """A broker comes that registers with the controller; the transaction that was left times out meanwhile."""
        await self.api.call("POST", "/brokers", {"config": {"klamm.broker.registration": "controller"}})
        await self.api.call("POST", "/clock/advance", {"ms": 12_000})

    def _client(self) -> dict[str, Any]:
        return CLIENT | {"bootstrap.servers": ",".join(f"{host}:{port}" for _, host, port in self.api.served.addresses)}


@pytest.fixture
async def api(zookeeper: str, chroot: str) -> AsyncIterator[Api]:
    unclean = SeedTopic("unclean", 1, 2, (("unclean.leader.election.enable", "true"),))
    async with served(zookeeper, chroot, 3, CONFIG, [SeedTopic("t", 2, 2), SeedTopic("u", 1, 2), unclean]) as api:
        yield api


@pytest.fixture
def scenario(api: Api, zookeeper: str, chroot: str) -> Iterator[Scenario]:
    tree = Tree(zookeeper, chroot)
    yield Scenario(api, tree)
    tree.close()


async def until_all(scenario: Scenario, bodies: Holds, helper: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Repeat the scenario until all holds were reached. `helper` gets each hold again and again, as it is meanwhile."""
    api = scenario.api
    names = {(await api.post("/holds", body))["id"]: name for name, body in bodies.items()}

    async def help_() -> None:
        while True:
            for hold in (await api.get("/holds"))["holds"]:
                await helper(hold)
            await asyncio.sleep(LOOK_S)

    async def missed() -> set[str]:
        return {names[hold["id"]] for hold in (await api.get("/holds"))["holds"] if not hold["hits"] or hold["state"] == "reached"}

    helping = asyncio.ensure_future(help_())
    for _ in range(TURNS):
        await asyncio.wait([helping, turn := asyncio.ensure_future(scenario.turn())], return_when=asyncio.FIRST_COMPLETED)
        if helping.done():
            turn.cancel()
            await helping
        if not await missed():
            break
    left = await missed()
    helping.cancel()
    await asyncio.wait([helping])
    await api.delete("/holds")
    assert left == set()


async def start_all(api: Api) -> None:
    """Start the brokers that do not run. Another one may start them meanwhile."""
    for broker in (await api.get("/brokers"))["brokers"]:
        if broker["state"] in ("killed", "stopped"):
            await api.call("POST", f"/brokers/{broker['id']}/start")


async def works(api: Api) -> None:
    """The cluster is whole, and a topic can be created."""
    await start_all(api)
    assert (await api.post("/topics", {"name": "last", "partitions": 1, "replication_factor": 3}))["partitions"][0]["leader"] > 0

    async def is_whole() -> bool:
        topics = [await api.get(f"/topics/{topic['name']}") for topic in (await api.get("/topics"))["topics"]]
        return all(sorted(row["isr"]) == sorted(row["replicas"]) and row["leader"] > 0 for topic in topics for row in topic["partitions"])

    await eventually_asked(is_whole, "all replicas are in sync", TURN_S)


@pytest.mark.slow
async def test_every_phase_is_held_and_stepped(api: Api, scenario: Scenario) -> None:
    stepped: set[str] = set()

    async def step(hold: dict[str, Any]) -> None:
        if hold["state"] == "reached":
            status, _ = await api.call("POST", f"/holds/{hold['id']}/step")
            stepped.update({hold["phase"]} if status == 200 else ())

    await until_all(scenario, every_phase.held(), step)
    assert stepped == set(PHASES)
    await works(api)


@pytest.mark.slow
async def test_every_phase_that_can_fail_fails(api: Api, scenario: Scenario) -> None:
    failed: set[int] = set()

    async def move_the_controller(hold: dict[str, Any]) -> None:
        if hold["hits"] and hold["id"] not in failed and every_phase.is_of_an_event(hold["phase"]):
            status, _ = await api.call("POST", "/controller/move", {})
            failed.update({hold["id"]} if status == 200 else ())

    await until_all(scenario, every_phase.failed(), move_the_controller)
    await works(api)


@pytest.mark.slow
async def test_every_phase_is_the_end_of_a_broker(api: Api, scenario: Scenario) -> None:
    crashed: set[int] = set()

    async def start_again(hold: dict[str, Any]) -> None:
        if hold["hits"] and hold["id"] not in crashed:
            crashed.add(hold["id"])
            await start_all(api)

    await until_all(scenario, every_phase.crashed(), start_again)
    await works(api)
    assert len(crashed) == len(every_phase.crashed())


def test_every_phase_is_counted() -> None:
    """The page of phases has these numbers."""
    rows = every_phase.numbers()
    assert sum(held for _, held, _, _ in rows) == sum(crashed for *_, crashed in rows) == len(PHASES) == 55
    assert sum(failed for _, _, failed, _ in rows) == sum(map(can_fail, PHASES.values())) == 31
