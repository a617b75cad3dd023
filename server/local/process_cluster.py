"""A cluster with one process for each broker. It starts an embedded ZooKeeper unless one is given.

For a client it is the same as `LocalCluster`. But each broker has its own event loop, can use its own core and can be killed. The owner
starts a child process for each broker and writes one line of JSON to its standard input: the properties of the broker, and whether it is
steered. The child responds with one line of JSON on its standard output when it serves. When its standard input ends, because the owner
closed it or died, it stops; so no broker outlives its owner. Each child has its own terminal session, so that Ctrl-C only reaches the
owner.

A child that is steered (`SteeredProcessCluster`) writes other lines too, before and after that line. They are given to `_heard`.

If a child ends by itself, that is logged, and the others continue. The cluster has failed when the last one has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from klamm.machine.faults import contained
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.server.lifecycle.disks import are_on_disk
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.listeners.listeners import outgoing_security
from klamm.server.local.configured_brokers import ConfiguredBrokers, Shape
from klamm.server.local.seed_topics import create_topics, version_for
from klamm.server.net.outgoing_connections import request_once

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

log = logging.getLogger(__name__)

METADATA_VERSION = 12
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 1.5
LOOK_S = 0.01
MAX_LINE_BYTES = 1 << 20


class BrokerProcess:
    """The process of one broker. Host, port and cluster id are set by `ready`."""

    def __init__(self, broker_id: int, process: asyncio.subprocess.Process) -> None:
        self.broker_id = broker_id
        self.host = ""
        self.port = 0
        self.metrics_port: int | None = None
        self.cluster_id = ""
        self.is_ready = False
        self.is_ending = False
        """Whether somebody ends it: its end is not reported."""
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    async def ready(self, heard: Heard) -> None:
        """Wait until the broker serves; other lines are given to `heard`. Raises StartFailed with the reason from the child."""
        report: dict[str, Any] = {}
        while "host" not in report:
            report = await self._line() or {"error": f"broker {self.broker_id} ended {await self._end()}"}
            if "error" in report:
                raise StartFailed(report["error"])
            heard(self, report)
        self.is_ready = True
        self.host, self.port, self.cluster_id = report["host"], report["port"], report["cluster_id"]
        self.metrics_port = report["metrics_port"]

    async def ended(self, heard: Heard | None = None) -> str:
        """Wait for the end of the process; returns how it ended, such as "with exit code 1". Lines until then are given to `heard`."""
        while heard is not None and (report := await self._line()):
            with contained(log, f"a line of broker {self.broker_id}"):
                heard(self, report)
        await self._process.wait()
        return await self._end()

    async def _line(self) -> dict[str, Any]:
        """The next report of the child; empty when there are no more. Other lines are ignored: a child must never wait for its reader."""
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
                report: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
            except ValueError as error:  # not JSON, or more than MAX_LINE_BYTES
                log.warning("broker %d wrote a line that is not a report: %s", self.broker_id, error)
            else:
                return report

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    async def stop(self) -> None:
        """Let the broker stop, and wait for its end."""
        self.is_ending = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def kill(self) -> None:
        """End the process at once."""
        self.is_ending = True
        if self.runs:
            self._process.kill()
        await self._process.wait()

    async def _end(self) -> str:
        code = await self._process.wait()
        return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"


Heard = Callable[[BrokerProcess, dict[str, Any]], None]
"""Called with each line of a child."""


class ProcessCluster(ConfiguredBrokers):
    """Brokers 1 to `brokers`, each in its own process."""

    def __init__(self, command: Sequence[str], brokers: int = 3, **shape: Unpack[Shape]) -> None:
        """`command` runs a broker as described above.

        Logs in memory end with their process; brokers are not started again
        ([ADR 12](../../docs/adr/0012-logs-in-memory-outlive-their-broker.md)).
        """
        super().__init__(brokers, **shape)
        self._command = command
        self._metadata_version = METADATA_VERSION
        self._security: OutgoingSecurity | None = None
        self.processes: list[BrokerProcess] = []
        self.controller_id = -1
        """Id of the broker that was the controller when the cluster became ready; -1 before."""
        self._watches: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def keeps_logs(self) -> bool:
        """Whether a broker that starts again finds its logs."""
        return are_on_disk(self.config_of(1))

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every broker that runs and serves, sorted by id."""
        return [(p.broker_id, p.host, p.port) for p in self.processes if p.runs and p.is_ready]

    @property
    def metrics_ports(self) -> dict[int, int]:
        """The port of the metrics of each broker that runs, by broker id; none without `metrics_port`."""
        return {p.broker_id: p.metrics_port for p in self.processes if p.runs and p.metrics_port is not None}

    @property
    def pids(self) -> dict[int, int]:
        """Broker id → process id."""
        return {p.broker_id: p.pid for p in self.processes}

    async def start(self) -> None:
        """Start and wait until the cluster is ready. Raises StartFailed, EmbeddedZooKeeperError or ConfigError; then call `stop`."""
        config = await self._reach_zookeeper()
        self._security = outgoing_security(config)
        self._metadata_version = version_for(config, ApiKey.METADATA, METADATA_VERSION)
        ids = range(1, self._count + 1)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.gather(*map(self._spawn, ids))
                await asyncio.gather(*(process.ready(self._heard) for process in self.processes))
                self._kept_ports = {process.broker_id: (process.port, process.metrics_port) for process in self.processes}
                self.cluster_id = self.processes[0].cluster_id
                await self._until_shown([])
                await create_topics(self._topics, self._controller, START_TIMEOUT_S, config)
                await self._until_shown([topic.name for topic in self._topics])
        except TimeoutError:
            raise StartFailed(f"the cluster was not ready within {START_TIMEOUT_S:g} s") from None
        self._watches = [asyncio.create_task(self._watch(process)) for process in self.processes]

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker again whose process has ended, on its former ports. Returns when it serves. Raises StartFailed."""
        await self._start_process(broker_id)

    async def _start_process(self, broker_id: int) -> None:
        process = await self._spawn(broker_id)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await process.ready(self._heard)
        except TimeoutError:
            await process.kill()
            self._ended(process)
            raise StartFailed(f"broker {broker_id} was not ready within {START_TIMEOUT_S:g} s") from None
        except StartFailed:
            await process.kill()
            self._ended(process)
            raise
        self._watches.append(asyncio.create_task(self._watch(process)))

    async def add_broker(self, config: Mapping[str, str] | None = None) -> int:
        """Start one more broker, with the next id and these properties besides those of all. Returns its id when it serves.

        Raises ValueError for properties that a broker refuses, StartFailed.
        """
        number = self._add_next(config)
        try:
            await self._start_process(number)
        except BaseException:  # then the cluster is as before, and the next one has this id
            self._remove_last()
            self.processes = [each for each in self.processes if each.broker_id != number]
            raise
        process = self.processes[-1]
        self._kept_ports[number] = process.port, process.metrics_port
        return number

    async def lose_log(self, broker_id: int) -> None:
        """Remove the logs of a broker that does not run, as if its disk was replaced. Raises OSError."""
        from klamm.broker.log.files.removal import remove_logs

        config = self.config_of(broker_id)
        for directory in config.log_dirs if are_on_disk(config) else ():
            await asyncio.to_thread(remove_logs, directory)

    async def stop(self) -> None:
        """Stop the brokers, the controller last, then the embedded ZooKeeper. May also be called after a failed start.

        The other brokers stop at the same time, because one time limit holds for all of them.
        """
        self._stopping = True
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                controller = None if self.controller_id < 0 else await self._controller()
                await asyncio.gather(*(process.stop() for process in self.processes if (process.host, process.port) != controller))
                await asyncio.gather(*(process.stop() for process in self.processes))
        except TimeoutError:
            log.warning("controlled shutdown took longer than %g s; the brokers are killed", STOP_TIMEOUT_S)
        await asyncio.gather(*(process.kill() for process in self.processes))
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self._stop_zookeeper()

    async def failure(self) -> None:
        """Wait until the cluster has failed, then raise the reason: every broker has ended, or the embedded ZooKeeper has."""
        zookeeper = asyncio.ensure_future(super().failure())
        brokers = asyncio.ensure_future(self._all_ended())
        try:
            done, _ = await asyncio.wait({zookeeper, brokers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            zookeeper.cancel()
            brokers.cancel()

    async def _all_ended(self) -> None:
        while not self._watches:  # noqa: ASYNC110 the start has no event of its own
            await asyncio.sleep(LOOK_S)
        await asyncio.gather(*map(asyncio.shield, self._watches))
        raise StartFailed("every broker has ended")

    async def _watch(self, process: BrokerProcess) -> None:
        how = await process.ended(self._heard)
        self._ended(process)
        if not self._stopping and not process.is_ending:
            lost = "" if are_on_disk(self.config_of(process.broker_id)) else "; its logs were in memory and are lost"
            log.warning("broker %d (process %d) ended %s; the others continue%s", process.broker_id, process.pid, how, lost)

    def _heard(self, process: BrokerProcess, report: dict[str, Any]) -> None:
        """A child wrote a line."""

    def _ended(self, process: BrokerProcess) -> None:
        """A process has ended that was ready."""

    def _control_of(self, broker_id: int) -> dict[str, Any] | None:
        """How the broker is steered; None for a broker that is not."""
        return None

    async def _spawn(self, broker_id: int) -> BrokerProcess:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
        started = BrokerProcess(broker_id, process)
        others = [each for each in self.processes if each.broker_id != broker_id]
        self.processes = sorted([*others, started], key=lambda each: each.broker_id)
        assert process.stdin is not None
        first_line = {"properties": self._properties(broker_id), "control": self._control_of(broker_id)}
        process.stdin.write(json.dumps(first_line).encode() + b"\n")
        try:
            await process.stdin.drain()
        except ConnectionError:
            log.debug("broker %d ended before it read its properties", broker_id)
        return started

    async def _controller(self) -> tuple[str, int] | None:
        """(host, port) of the controller, None if there is none at the moment."""
        for process in [process for process in self.processes if process.runs]:
            metadata = await self._metadata(process, [])
            if metadata is not None:
                for broker in metadata.brokers:
                    if broker.node_id == metadata.controller_id:
                        return broker.host, broker.port
        return None

    async def _until_shown(self, topics: Sequence[str]) -> None:
        """Wait until every broker shows the same controller, all brokers, and a leader for every partition of these topics."""
        while True:
            responses = await asyncio.gather(*(self._metadata(process, topics) for process in self.processes))
            complete = [metadata for metadata in responses if metadata is not None and self._shows_all(metadata)]
            controllers = {metadata.controller_id for metadata in complete}
            if len(complete) == len(responses) and len(controllers) == 1:
                self.controller_id = controllers.pop()
                return
            ended = [process for process in self.processes if not process.runs]
            if ended:
                raise StartFailed(f"broker {ended[0].broker_id} ended {await ended[0].ended()}")
            await asyncio.sleep(LOOK_S)

    def _shows_all(self, metadata: messages.MetadataResponse) -> bool:
        ids = {broker.node_id for broker in metadata.brokers}
        rows: Iterable[Any] = (row for topic in metadata.topics for row in topic.partitions)
        return (
            metadata.controller_id >= 0
            and ids >= {process.broker_id for process in self.processes}
            and all(topic.error_code == 0 for topic in metadata.topics)
            and all(row.leader_id >= 0 for row in rows)
        )

    async def _metadata(self, process: BrokerProcess, topics: Sequence[str]) -> messages.MetadataResponse | None:
        """The Metadata response of a broker for these topics; None if it does not respond."""
        rows = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = messages.MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        try:
            response: messages.MetadataResponse = await request_once(
                process.host, process.port, ApiKey.METADATA, self._metadata_version, "klamm", request, START_TIMEOUT_S,
                security=self._security,
            )
        except (OSError, RemoteProtocolError):
            return None
        return response
