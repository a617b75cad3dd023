"""Consumer groups: rebalances and commits of klamm and of Apache Kafka, three brokers each, in one run.

    python -m klamm.benchmarks.groups --kafka-jars DIR [--members 100 1000] [--seconds 5] [--rounds 5] [--other KLAMM] [--json FILE]

`rebalance of N members`: each member has a connection of its own to the coordinator; all send JoinGroup with a new subscription, read the
response, send SyncGroup, and read that; the figure is milliseconds from the first request to the last response. `commits`: OffsetCommit of
one partition, to groups that have no members, on 16 connections with one or 16 requests in flight on each; the figure is commits a second.
`cpu` is that of the brokers, in milliseconds for each rebalance and in microseconds for each commit. Offsets have three replicas. The
clusters run side by side and take turns, and the order turns every round. `--other` names a second klamm command, which takes the place of
Apache Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from typing import Any

from klamm.benchmarks import data_clusters
from klamm.benchmarks.controlled_cluster import Connection
from klamm.benchmarks.data_clusters import DataCluster, ask
from klamm.benchmarks.processes import Failed, note
from klamm.protocol import messages
from klamm.protocol.apis import APIS

BROKERS = 3
CONNECTIONS = 16
IN_FLIGHT = (1, 16)
TIMEOUT_S = 60.0
GATHER_S = 2.0
"""By then all members of a new group have sent JoinGroup."""
SETTINGS = ("--config", "offsets.topic.num.partitions=4", "--config", "group.initial.rebalance.delay.ms=0")
_KEYS = {api.name: api.key for api in APIS.values()}


def encoded(request: Any, version: int) -> bytes:
    """A request as the payload of a frame."""
    name = type(request).__name__.removesuffix("Request")
    return messages.encode_request(_KEYS[name], version, 1, "load", messages.encode(request, version))[4:]


def decoded(name: str, version: int, payload: bytes) -> Any:
    """The response in the payload of a frame."""
    _, offset = messages.decode_response_header(_KEYS[name], version, payload)
    return messages.decode(f"{name}Response", version, payload, offset)[0]


def coordinator_port(cluster: DataCluster, group_id: str) -> int:
    """The port of a group's coordinator, once there is one."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        found = ask(cluster.addresses[0], messages.FindCoordinatorRequest(key=group_id), 2)
        if found.error_code == 0:
            return int(found.port)
        time.sleep(0.05)
    raise Failed(f"{cluster.name}: group {group_id} has no coordinator")


class Members:
    """The members of one group, all on the coordinator."""

    def __init__(self, stack: contextlib.ExitStack, cluster: DataCluster, count: int) -> None:
        self.group_id = f"members-{count}"
        port = coordinator_port(cluster, self.group_id)
        self._connections = [stack.enter_context(Connection(port, TIMEOUT_S)) for _ in range(count)]
        self._ids = [""] * count
        self._rounds = 0
        self._gather()

    def _gather(self) -> None:
        """The first member is alone at first; it joins again when the others have come."""
        first = self._connections[0]
        end = time.monotonic() + TIMEOUT_S
        while not self._ids[0]:
            first.send(self._join(0))
            joined = decoded("JoinGroup", 3, first.receive())
            if joined.error_code == 0:
                self._ids[0] = joined.member_id
            elif time.monotonic() > end:
                raise Failed(f"group {self.group_id}: code {joined.error_code}")
        self.rebalance(GATHER_S)

    def _join(self, member: int) -> bytes:
        request = messages.JoinGroupRequest
        subscription = b"\0\0\0\0\0\1\0\1t" + self._rounds.to_bytes(8, "big")
        protocols = [request.JoinGroupRequestProtocol(name="range", metadata=subscription)]
        return encoded(
            request(
                group_id=self.group_id, session_timeout_ms=300_000, rebalance_timeout_ms=60_000, member_id=self._ids[member],
                protocol_type="consumer", protocols=protocols,
            ),
            3,
        )

    def rebalance(self, first_comes_after_s: float = 0) -> float:
        """One rebalance of all members; its seconds. The first member, which has joined before, comes last."""
        self._rounds += 1
        joins = [self._join(member) for member in range(len(self._ids))]
        begin = time.perf_counter()
        for connection, join in zip(self._connections[1:], joins[1:], strict=True):
            connection.send(join)
        time.sleep(first_comes_after_s)
        self._connections[0].send(joins[0])
        generation, leader = -1, ""
        for member, connection in enumerate(self._connections):
            joined = decoded("JoinGroup", 3, connection.receive())
            if joined.error_code:
                raise Failed(f"group {self.group_id}: code {joined.error_code}")
            self._ids[member], generation, leader = joined.member_id, joined.generation_id, joined.leader
        request = messages.SyncGroupRequest
        assignments = [request.SyncGroupRequestAssignment(member_id=each, assignment=b"x" * 20) for each in self._ids]
        for member_id, connection in zip(self._ids, self._connections, strict=True):
            brought = assignments if member_id == leader else []
            sync = request(group_id=self.group_id, generation_id=generation, member_id=member_id, assignments=brought)
            connection.send(encoded(sync, 2))
        for connection in self._connections:
            code = decoded("SyncGroup", 2, connection.receive()).error_code
            if code:
                raise Failed(f"group {self.group_id}: code {code}")
        return time.perf_counter() - begin


def commits(cluster: DataCluster, in_flight: int, seconds: float) -> tuple[int, float]:
    """(commits, seconds that they took)."""
    request = messages.OffsetCommitRequest
    with contextlib.ExitStack() as stack:
        connections, payloads = [], []
        for number in range(CONNECTIONS):
            group_id = f"commits-{number}"
            connections.append(stack.enter_context(Connection(coordinator_port(cluster, group_id), TIMEOUT_S)))
            part = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
            topic = request.OffsetCommitRequestTopic(name="t", partitions=[part])
            payloads.append(encoded(request(group_id=group_id, topics=[topic]), 8))
        begin, count = time.perf_counter(), 0
        for connection, payload in zip(connections, payloads, strict=True):
            for _ in range(in_flight):
                connection.send(payload)
        checked = False
        while time.perf_counter() - begin < seconds:
            for connection, payload in zip(connections, payloads, strict=True):
                for _ in range(in_flight):
                    response = connection.receive()
                    if not checked:
                        code = decoded("OffsetCommit", 8, response).topics[0].partitions[0].error_code
                        if code:
                            raise Failed(f"{cluster.name}: a commit got code {code}")
                    connection.send(payload)
                    count += 1
            checked = True
        took = time.perf_counter() - begin
        for connection in connections:
            for _ in range(in_flight):
                connection.receive()
        return count, took


def measure(
    stack: contextlib.ExitStack, clusters: list[DataCluster], members: list[int], seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """All cases on all clusters, in turn."""
    for cluster in clusters:
        data_clusters.create_topic(cluster.addresses, "t", 1, BROKERS, {})
    groups = {(cluster.name, count): Members(stack, cluster, count) for cluster in clusters for count in members}
    results: list[dict[str, Any]] = []
    for number in range(rounds + 1):
        for cluster in clusters if number % 2 == 0 else clusters[::-1]:
            rows = []
            for count in members:
                before = cluster.cpu_s()
                took = groups[cluster.name, count].rebalance()
                cpu_ms = (cluster.cpu_s() - before) * 1000
                rows.append({"case": f"rebalance of {count} members", "figure": took * 1000, "cpu": cpu_ms})
            for in_flight in IN_FLIGHT:
                before = cluster.cpu_s()
                done, took = commits(cluster, in_flight, seconds)
                cpu_us = (cluster.cpu_s() - before) / done * 1e6
                rows.append({"case": f"commits, {in_flight} in flight", "figure": done / took, "cpu": cpu_us})
            if number:  # the first round warms up
                results += [{"target": cluster.name, "round": number, **row} for row in rows]
                note(f"{cluster.name}: {rows}")
    return results


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """Lines to print: medians, and the ratio of the first target to the second."""
    columns = "".join(f" {name:>10s} {'cpu':>8s}" for name in targets)
    lines = [f"{'case':28s}{columns} {'ratio':>6s}"]
    for case in dict.fromkeys(result["case"] for result in results):
        line, figures = f"{case:28s}", []
        for name in targets:
            runs = [result for result in results if (result["target"], result["case"]) == (name, case)]
            figures.append(statistics.median(run["figure"] for run in runs))
            line += f" {figures[-1]:10.1f} {statistics.median(run['cpu'] for run in runs):8.1f}"
        lines.append(f"{line} {figures[0] / figures[1]:6.2f}")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1000], help="sizes of the groups that rebalance")
    parser.add_argument("--seconds", type=float, default=5, help="length of a run of commits")
    parser.add_argument("--rounds", type=int, default=5)

    def run(stack: contextlib.ExitStack, clusters: list[DataCluster], options: argparse.Namespace) -> data_clusters.Results:
        return measure(stack, clusters, options.members, options.seconds, options.rounds)

    data_clusters.compare(parser, arguments, BROKERS, SETTINGS, run, table)


if __name__ == "__main__":
    main()
