"""What a case for clients works with: a cluster that it steers, the client's command, and the frames that the client sent.

The cluster runs in this process. It is made whole again before each case, and each case has a topic and a group of its own. A case with
other brokers or configs gets another cluster, which stays until the end of the run. Instead of it there may be another server behind a
proxy (`other_server.py`), which cannot be steered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NoReturn

from klamm.conform.case import Absent, Broken, Case, Exchange, Unreachable
from klamm.conform.clients import other_server
from klamm.conform.clients.judge import SentBatch, sent_batches, values_of
from klamm.conform.clients.program import NOT_SUPPORTED, Program, Told
from klamm.conform.connection import CLIENT_ID
from klamm.conform.lab import Lab, batch
from klamm.protocol.addresses import Address
from klamm.protocol.records.batch import Codec, each_header
from klamm.testing import AsyncCluster, Cluster, Refused
from klamm.testing.fault import Fault
from klamm.testing.request import Request
from klamm.zk.embedded.java import EmbeddedZooKeeperError
from klamm.zk.embedded.server import EmbeddedZooKeeper

LOOK_S = 0.01
END = "end"
"""The value of the record after which a consumer of the suite ends."""
Shape = dict[str, Any]
CONFIG = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
NAME = "conform"
"""The client id that the client is to have; some add to it."""
CLIENT_CONFIG = {"request.timeout.ms": "3000", "client.id": NAME}
CONSUMER_CONFIG = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
}
PRODUCER_CONFIG = {"acks": "all", "enable.idempotence": "true", "linger.ms": "0"}
OWN_CONFIG = {
    "produce": PRODUCER_CONFIG,
    "transaction": PRODUCER_CONFIG,
    "consume": CONSUMER_CONFIG,
    "group": CONSUMER_CONFIG,
}


class ClientLab:
    """One client under test. `cluster` and `topic` are those of the case that runs."""

    cluster: AsyncCluster
    party = "client"

    def __init__(self, command: str, zookeeper: str | None = None, server: Address | None = None) -> None:
        """`command` is one of the shell. `zookeeper` is host:port, with a path that nobody else uses; without it one is started. `server`
        takes the place of the cluster of the suite.
        """
        self._command = command
        self._zookeeper_address = zookeeper
        self._server = server
        self.case_id = ""
        self.topic = self.group = self.output = ""
        self._exchanges: list[Exchange] = []
        self._programs: list[Program] = []
        self._clusters: dict[str, AsyncCluster] = {}
        self._labs: dict[str, Lab] = {}
        self._stack = AsyncExitStack()
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._count = 0

    # the run

    @property
    def where(self) -> str:
        """The command."""
        return self._command

    async def start(self) -> None:
        """Start the cluster that most cases use. Raises Unreachable."""
        try:
            await self._prepare({})
        except BaseException as error:
            await self.clean_up(0)
            if isinstance(error, OSError | EmbeddedZooKeeperError):
                raise Unreachable(f"the cluster of the suite cannot be started: {error}") from None
            raise

    def begin(self, case_id: str, exchanges: list[Exchange]) -> None:
        """A case begins."""
        self.case_id, self._exchanges = case_id, exchanges
        self.output = ""

    def end(self) -> None:
        """A case has ended: kill its clients, and keep their frames."""
        for program in self._programs:
            program.kill()
        self.output = "\n".join(each.output for each in self._programs if each.output)
        if self._programs:
            self._exchanges += map(_exchange, self.requests())
        self._programs.clear()
        for lab in self._labs.values():
            lab.end()
        if self._server is None:
            self._labs.clear()

    async def clean_up(self, limit_s: float) -> str:
        """Stop the clusters. Nothing is left behind in those of the run."""
        left = [await lab.clean_up(limit_s) for lab in self._labs.values()]
        await self._stack.aclose()
        if self._zookeeper is not None:
            await asyncio.to_thread(self._zookeeper.stop)
        return ", ".join(filter(None, left))

    async def prepare(self, case: Case) -> None:
        """Have a cluster as the case needs it. Raises Absent: what goes wrong here is not the client's."""
        try:
            await self._prepare(case.shape)
        except Absent:
            raise
        except Exception as error:
            raise Absent(f"the cluster of the suite cannot be started: {error}") from error

    async def _prepare(self, shape: Shape) -> None:
        """Have a cluster of this shape that is whole, and names that nobody used."""
        key = repr(sorted(shape.items()))
        self._count += 1
        try:
            if key in self._clusters and self._server is None:
                await self._clusters[key].restore()
        except Refused:
            del self._clusters[key]  # it cannot be made whole
        if key not in self._clusters:
            self._clusters[key] = await self._started(shape)
        self.cluster = self._clusters[key].again()
        self.topic, self.group = self.cluster.topic_name(f"conform-{self._count}"), f"conform-group-{self._count}"

    async def _started(self, shape: Shape) -> AsyncCluster:
        if self._server is not None:
            if shape:
                raise Absent("the case needs a cluster of its own, which is one of the suite")
            other: Any = await self._stack.enter_async_context(other_server.OtherServer(self._server))
            return other  # it has those methods of a cluster that need no steering
        if self._zookeeper_address is None:
            self._zookeeper = EmbeddedZooKeeper()
            self._zookeeper_address = await asyncio.to_thread(self._zookeeper.start)
        arguments = {"brokers": 3, **shape, "config": CONFIG | shape.get("config", {})}
        zookeeper = f"{self._zookeeper_address}/{self._count}"
        return await self._stack.enter_async_context(Cluster(zookeeper=zookeeper, **arguments))

    # the client

    async def begin_client(self, task: str, config: dict[str, str] | None = None, **variables: object) -> Program:
        """Start the client with a task and these variables. `config` are configs of the Java client, besides those of the task."""
        configs = CLIENT_CONFIG | OWN_CONFIG.get(task, {}) | (config or {})
        environment = {
            "BOOTSTRAP": self.cluster.bootstrap_servers,
            "TESTCASE": task,
            "CASE": self.case_id,
            "TOPIC": self.topic,
            "GROUP": self.group,
            "PARTITION": "0",
            "OFFSET": "0",
            "RECORDS": "20",
            "SIZE": "0",
            "PAUSE_MS": "0",
            "TRANSACTIONS": "1",
            "END": "commit",
            **{name: str(value) for name, value in variables.items()},
            "CONFIG": "\n".join(f"{name}={configs[name]}" for name in configs),
        }
        program = await Program.start(self._command, environment)
        self._programs.append(program)
        return program

    async def finish(self, program: Program, may_fail: bool = False) -> Program:
        """Wait for its end. Raises Absent if it does not support the task; Broken if it failed, unless it may."""
        code = await program.wait()
        if code == NOT_SUPPORTED:
            raise Absent("the client does not support this (exit code 127)")
        if code != 0 and not may_fail:
            raise Broken(f"the client ended with exit code {code}")
        return program

    async def client(self, task: str, config: dict[str, str] | None = None, may_fail: bool = False, **variables: object) -> Program:
        """Run the client to its end."""
        return await self.finish(await self.begin_client(task, config, **variables), may_fail)

    async def until(self, holds: Callable[[], object], program: Program | None = None) -> None:
        """Wait until this holds; the time of the case ends it. Raises Absent or Broken if the program ends before."""
        while not holds():
            if program is not None and not program.is_running:
                await self.finish(program)
                if not holds():
                    raise Broken("the client ended too early")
            await asyncio.sleep(LOOK_S)

    async def met(self, fault: Fault, program: Program) -> None:
        """Wait until a request has met the fault."""
        await self.until(lambda: fault.hits, program)

    def passed_ms(self) -> int:
        """Since the case began."""
        return self.cluster.here().at_ms - self.cluster.begun.at_ms

    async def pause(self, ms: int, program: Program) -> None:
        """Let the client do what it does for this time; less if it ends."""
        begun = self.passed_ms()
        await self.until(lambda: self.passed_ms() >= begun + ms or not program.is_running)

    async def consumed(self, program: Program, count: int) -> None:
        """Wait until it has told of this number of records."""
        await self.until(lambda: len(program.told) >= count, program)

    # its frames

    def requests(self, *apis: str) -> list[Request]:
        """The requests of these APIs that the client has sent in this case, oldest first."""
        return [each for each in self.cluster.requests() if each.client_id != CLIENT_ID and (not apis or each.api in apis)]

    def sent(self) -> list[SentBatch]:
        """The batches that the client has sent, oldest first."""
        return sent_batches(self.requests("Produce"))

    async def asked(self, api: str, count: int = 1, program: Program | None = None) -> None:
        """Wait until the client has sent this number of requests of an API."""
        await self.until(lambda: len(self.requests(api)) >= count, program)

    # what the suite does itself

    async def create(self, partitions: int | None = None, **more: Any) -> None:
        """Create the topic of the case."""
        if self._server is None:
            await self.cluster.create_topic(self.topic, partitions, **more)
        else:
            self.topic = await other_server.create(await self.lab(), partitions, more)

    async def fill(self, count: int, *values: str, codec: Codec = Codec.NONE, **topic: Any) -> None:
        """Create the topic of the case, with a batch of the numbers below `count`, and then these values."""
        await self.create(**topic)
        await self.write_numbers(0, count, codec=codec)
        if values:
            await self.write(*values)

    async def reader(self, count: int, config: dict[str, str] | None = None, **topic: Any) -> Program:
        """A consumer without a group that has read the numbers below `count` of the topic of the case, which is created."""
        await self.fill(count, **topic)
        program = await self.begin_client("consume", config)
        await self.consumed(program, count)
        return program

    async def end_reader(self, program: Program, count: int = 0, end: int = 0) -> None:
        """Write these numbers and the end, and wait for the end of the consumer."""
        if end > count:
            await self.write_numbers(count, end)
        await self.write(END)
        await self.finish(program)

    def fault(self, **arguments: Any) -> Fault:
        """A fault for requests of the client."""
        if arguments.get("api") == "Fetch" and "topic" in arguments:
            arguments["partition"] = 0  # an incremental Fetch does not name its partitions
        return self.cluster.fault(**{"client_id": f"{NAME}*", **arguments})

    async def lab(self) -> Lab:
        """The suite's own client, which connects to the cluster as it is now."""
        key = self.cluster.bootstrap_servers
        if key not in self._labs:
            self._labs[key] = Lab(*(self._server or self.cluster.addresses[0][1:]))
            await self._labs[key].start()
        return self._labs[key]

    async def write(self, *values: str, partition: int = 0, at_most: int = 99, **options: Any) -> None:
        """Append a batch to the topic of the case, in a version of Produce that is not higher than this."""
        await (await self.lab()).produce(self.topic, batch(*values, **options), partition=partition, at_most=at_most)

    async def write_numbers(self, first: int, end: int, partition: int = 0, **options: Any) -> None:
        """Append a batch with these numbers."""
        await self.write(*map(str, range(first, end)), partition=partition, **options)

    async def log(self, partition: int = 0) -> list[Told]:
        """All records of a partition as its leader has them, without control records."""
        lab, offset, rows = await self.lab(), 0, list[Told]()
        while True:
            records = (await lab.fetch(self.topic, offset, partition)).records
            if not records:
                return rows
            for position, header in each_header(records):
                offset = header.next_offset
                if not header.is_control:
                    rows += [Told(partition, at, value) for at, value in values_of(records, header, position)]

    async def expect_log(self, count: int, partition: int = 0) -> None:
        """Raise Broken if the partition does not have the numbers below `count`, each once and in order."""
        expect_numbers([each.value for each in await self.log(partition)], count, "the log")


@contextmanager
def silent_brokers() -> Iterator[None]:
    """Brokers of this process log nothing of what the suite does to them."""
    logger = logging.getLogger("klamm")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def expect_numbers(values: list[str], count: int, what: str) -> None:
    """Raise Broken if these are not the numbers below `count`, each once and in order."""
    wanted = [str(number) for number in range(count)]
    if values == wanted:
        return
    if missing := sorted(set(wanted) - set(values), key=int):
        _fail(f"{what} lacks {len(missing)} of {count} records, the first is {missing[0]}")
    if len(set(values)) != len(values):
        twice = next(value for at, value in enumerate(values) if value in values[:at])
        _fail(f"{what} has {len(values) - len(set(values))} records more than once, the first is {twice}")
    at = next(at for at, value in enumerate(values) if at >= count or value != wanted[at])
    _fail(f"{what} has the record {values[at]!r} at place {at}")


def _fail(text: str) -> NoReturn:
    raise Broken(text)


def _exchange(request: Request) -> Exchange:
    frame, response = request.payloads
    return Exchange(request.api, request.version, len(frame).to_bytes(4, "big") + frame, response)
