"""How long one client's absurd request keeps another client waiting.

    python -m klamm.benchmarks.stalls [--partitions 10000] [--entries 1000000] [--only WORD] [--klamm FILE] [--json FILE]

A cluster of three brokers in one process has the partitions. One connection sends one big request; another one, to the same broker,
sends small requests of bytes never seen before, one after the other. The longest wait for an answer to one of these is the stall;
`cpu ms` is the most CPU time that the cluster's process used during one such wait, which bears a busy machine better. `idle` is a
second in which nobody else asks: what the machine itself does. `--klamm` measures another checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from klamm.benchmarks.controlled_cluster import Connection, Session
from klamm.benchmarks.processes import Failed, Process, klamm, note
from klamm.protocol import messages

PER_TOPIC = 100
TIMEOUT_S = 300
PROBES_APART_S = 0.001


class Size(NamedTuple):
    """What the requests are made for: entries in an absurd request, and partitions of the cluster, half of them in topic `wide`."""

    entries: int
    partitions: int
    broker_id: int = 1
    broker_epoch: int = -1

    @property
    def topics(self) -> dict[str, int]:
        """Topics and how many partitions they have."""
        wide = max(1, self.partitions // 2)
        return {"wide": wide} | {f"narrow-{i:05d}": PER_TOPIC for i in range((self.partitions - wide) // PER_TOPIC)}


class Case(NamedTuple):
    """One request. `exists`: it names what is there, so that its size is that of the cluster."""

    name: str
    version: int
    make: Callable[[Size], Any]


def _created(names: int, **fields: Any) -> Any:
    request = messages.CreateTopicsRequest
    topics = [request.CreatableTopic(name=f"absurd-{i}", **fields) for i in range(names)]
    return request(topics=topics, timeout_ms=1, validate_only=True)


def _count(count: int) -> Case:
    return Case(f"CreateTopics, {count:,} partitions", 5, lambda size: _created(1, num_partitions=count, replication_factor=1))


def _assigned(partitions: int, replicas: int) -> Any:
    entry = messages.CreateTopicsRequest.CreatableReplicaAssignment
    assignments = [entry(partition_index=i, broker_ids=list(range(replicas))) for i in range(partitions)]
    return _created(1, num_partitions=-1, replication_factor=-1, assignments=assignments)


def _grown(size: Size) -> Any:
    topic = messages.CreatePartitionsRequest.CreatePartitionsTopic(name="wide", count=size.entries, assignments=None)
    return messages.CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=True)


def _grown_topics(size: Size) -> Any:
    row = messages.CreatePartitionsRequest.CreatePartitionsTopic
    topics = [row(name=f"absurd-{i}", count=2, assignments=None) for i in range(size.entries // 10)]
    return messages.CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=True)


def _metadata(names: list[str] | None) -> Any:
    row = messages.MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [row(name=name) for name in names]
    return messages.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _described(kind: int, names: list[str], documented: bool = False) -> Any:
    row = messages.DescribeConfigsRequest.DescribeConfigsResource
    resources = [row(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    return messages.DescribeConfigsRequest(resources=resources, include_synonyms=documented, include_documentation=documented)


def _altered(kind: int, names: list[str], configs: int) -> Any:
    request = messages.AlterConfigsRequest
    rows = [request.AlterableConfig(name=f"config.{i}", value="1") for i in range(configs)]
    resources = [request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows) for name in names]
    return request(resources=resources, validate_only=True)


def _incremented(kind: int, names: list[str], configs: int) -> Any:
    request = messages.IncrementalAlterConfigsRequest
    rows = [request.AlterableConfig(name=f"config.{i}", config_operation=0, value="1") for i in range(configs)]
    resources = [request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows) for name in names]
    return request(resources=resources, validate_only=True)


def _deleted(size: Size) -> Any:
    return messages.DeleteTopicsRequest(topic_names=[f"absurd-{i}" for i in range(size.entries)], timeout_ms=1)


def _elected(topics: dict[str, int] | None) -> Any:
    row = messages.ElectLeadersRequest.TopicPartitions
    partitions = None if topics is None else [row(topic=name, partitions=list(range(n))) for name, n in topics.items()]
    return messages.ElectLeadersRequest(election_type=0, topic_partitions=partitions, timeout_ms=1000)


def _reassignments(size: Size) -> Any:
    row = messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    return messages.ListPartitionReassignmentsRequest(topics=[row(name="absurd", partition_indexes=list(range(size.entries)))])


def _moved(topics: dict[str, int]) -> Any:
    request = messages.ReassignPartitionsRequest
    rows = [
        request.Topic(name=name, partitions=[request.Partition(partition_id=i, brokers=[3, 2, 1]) for i in range(n)])
        for name, n in topics.items()
    ]
    return request(topics=rows, timeout=60_000, validate_only=False, throttle=1_000_000, remove_throttle=True)


def _rates(size: Size) -> Any:
    request = messages.AlterInterbrokerThrottledRatesRequest
    rows = [request.BrokerRate(broker_id=1000 + i, leader_rate=1, follower_rate=1) for i in range(size.entries)]
    return request(brokers=rows, remove_throttle=True, timeout=60_000, validate_only=False)


def _throttled(topics: dict[str, int]) -> Any:
    request = messages.AlterInterbrokerThrottledReplicasRequest
    rows = [
        request.Topic(name=name, partitions=[request.Partition(partition_id=i, leaders=None, followers=None) for i in range(n)])
        for name, n in topics.items()
    ]
    return request(topics=rows, remove_throttle=True, timeout=60_000, validate_only=False)


def _reassigned(topics: dict[str, int], replicas: tuple[int, ...]) -> Any:
    request = messages.AlterPartitionReassignmentsRequest
    row = request.ReassignablePartition
    named = [
        request.ReassignableTopic(name=name, partitions=[row(partition_index=i, replicas=replicas) for i in range(count)])
        for name, count in topics.items()
    ]
    return request(timeout_ms=1000, topics=named)


def _produced(topic: str, partitions: int) -> Any:
    request = messages.ProduceRequest
    rows = [request.PartitionProduceData(index=i, records=b"") for i in range(partitions)]
    return request(acks=1, topic_data=[request.TopicProduceData(name=topic, partition_data=rows)])


def _leading(size: Size) -> Any:
    request = messages.LeaderAndIsrRequest
    here = (size.broker_id,)
    topics = [
        request.LeaderAndIsrTopicState(
            topic_name=f"told-{name}",
            topic_id=name.encode().ljust(16, b"."),
            partition_states=[
                request.LeaderAndIsrPartitionState(
                    partition_index=i, controller_epoch=1, leader=here[0], leader_epoch=1, isr=here, partition_epoch=1, replicas=here
                )
                for i in range(partitions)
            ],
        )
        for name, partitions in size.topics.items()
    ]
    return request(controller_id=1, controller_epoch=1, broker_epoch=size.broker_epoch, type=1, topic_states=topics, live_leaders=[])


def _told(size: Size) -> Any:
    request = messages.UpdateMetadataRequest
    topics = [
        request.UpdateMetadataTopicState(
            topic_name=f"told-{name}",
            topic_id=name.encode().ljust(16, b"."),
            partition_states=[
                request.UpdateMetadataPartitionState(
                    partition_index=i, controller_epoch=1, leader=1, leader_epoch=1, isr=(1,), zk_version=1, replicas=(1,)
                )
                for i in range(partitions)
            ],
        )
        for name, partitions in size.topics.items()
    ]
    endpoint = request.UpdateMetadataEndpoint(port=1, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
    brokers = [request.UpdateMetadataBroker(id=b, endpoints=[endpoint], rack=None) for b in (1, 2, 3)]
    return request(controller_id=1, controller_epoch=1, broker_epoch=size.broker_epoch, topic_states=topics, live_brokers=brokers)


def _stopped(size: Size) -> Any:
    request = messages.StopReplicaRequest
    topics = [
        request.StopReplicaTopicState(
            topic_name=f"told-{name}",
            partition_states=[
                request.StopReplicaPartitionState(partition_index=i, leader_epoch=2, delete_partition=True) for i in range(partitions)
            ],
        )
        for name, partitions in size.topics.items()
    ]
    return request(controller_id=1, controller_epoch=1, broker_epoch=size.broker_epoch, topic_states=topics)


def _isr(size: Size) -> Any:
    request = messages.AlterPartitionRequest
    row = request.PartitionData
    topics = [
        request.TopicData(
            topic_name=name,
            partitions=[
                row(partition_index=i, leader_epoch=0, new_isr=(1, 2), leader_recovery_state=0, partition_epoch=0) for i in range(n)
            ],
        )
        for name, n in size.topics.items()
    ]
    return request(broker_id=size.broker_id, broker_epoch=size.broker_epoch, topics=topics)


def _absent(size: Size, share: int = 1) -> list[str]:
    return [f"absurd-{i}" for i in range(size.entries // share)]


def _coordinators(size: Size) -> Any:
    return messages.FindCoordinatorRequest(key_type=0, coordinator_keys=_absent(size))


def _joined(size: Size) -> Any:
    request = messages.JoinGroupRequest
    protocols = [request.JoinGroupRequestProtocol(name="range", metadata=b"m" * size.entries)]
    return request(
        group_id="absurd", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="", protocol_type="consumer",
        protocols=protocols,
    )


def _many_protocols(size: Size) -> Any:
    request = messages.JoinGroupRequest
    protocols = [request.JoinGroupRequestProtocol(name=name, metadata=b"") for name in _absent(size, 10)]
    return request(
        group_id="protocols", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="", protocol_type="consumer",
        protocols=protocols,
    )


def _synced(size: Size) -> Any:
    row = messages.SyncGroupRequest.SyncGroupRequestAssignment
    assignments = [row(member_id=name, assignment=b"") for name in _absent(size)]
    return messages.SyncGroupRequest(group_id="absurd", generation_id=1, member_id="m", assignments=assignments)


def _left(size: Size) -> Any:
    row = messages.LeaveGroupRequest.MemberIdentity
    return messages.LeaveGroupRequest(group_id="absurd", members=[row(member_id=name, group_instance_id=None) for name in _absent(size)])


def _committed(topic: str, partitions: int) -> Any:
    request = messages.OffsetCommitRequest
    rows = [request.OffsetCommitRequestPartition(partition_index=i, committed_offset=1, committed_metadata="") for i in range(partitions)]
    return request(group_id="absurd", topics=[request.OffsetCommitRequestTopic(name=topic, partitions=rows)])


def _fetched(groups: list[str], partitions: int) -> Any:
    request = messages.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(name="wide", partition_indexes=list(range(partitions)))]
    return request(groups=[request.OffsetFetchRequestGroup(group_id=each, topics=topics) for each in groups])


def _offsets_deleted(size: Size) -> Any:
    request = messages.OffsetDeleteRequest
    rows = [request.OffsetDeleteRequestPartition(partition_index=i) for i in range(size.entries)]
    return request(group_id="absurd", topics=[request.OffsetDeleteRequestTopic(name="wide", partitions=rows)])


def _added(size: Size) -> Any:
    row = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [row(name="absurd", partitions=list(range(size.entries)))]
    return messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="absurd", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics
    )


def _committed_in_transaction(size: Size) -> Any:
    request = messages.TxnOffsetCommitRequest
    rows = [request.TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=1) for i in range(size.entries)]
    topics = [request.TxnOffsetCommitRequestTopic(name="absurd", partitions=rows)]
    return request(transactional_id="absurd", group_id="absurd", producer_id=1, producer_epoch=0, topics=topics)


def _marked(size: Size) -> Any:
    request = messages.WriteTxnMarkersRequest
    topics = [request.WritableTxnMarkerTopic(name="absurd", partition_indexes=tuple(range(size.entries)))]
    marker = request.WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
    return request(markers=[marker])


def _producers(size: Size) -> Any:
    row = messages.DescribeProducersRequest.TopicRequest
    return messages.DescribeProducersRequest(topics=[row(name="absurd", partition_indexes=list(range(size.entries)))])


COORDINATED = (
    Case("FindCoordinator, many groups", 4, _coordinators),
    Case("JoinGroup, a megabyte of metadata", 3, _joined),
    Case("JoinGroup, many protocols", 3, _many_protocols),
    Case("SyncGroup, many unknown members", 3, _synced),
    Case("LeaveGroup, many unknown members", 4, _left),
    Case("OffsetCommit, unknown partitions", 8, lambda s: _committed("absurd", s.entries)),
    Case("OffsetCommit, each partition of a topic", 8, lambda s: _committed("wide", s.topics["wide"])),
    Case("OffsetFetch, many groups", 8, lambda s: _fetched(_absent(s, 10), 1)),
    Case("OffsetFetch, unknown partitions", 8, lambda s: _fetched(["absurd"], s.entries)),
    Case("OffsetDelete, unknown partitions", 0, _offsets_deleted),
    Case("DescribeGroups, unknown groups", 5, lambda s: messages.DescribeGroupsRequest(groups=_absent(s))),
    Case("DeleteGroups, unknown groups", 2, lambda s: messages.DeleteGroupsRequest(groups_names=_absent(s))),
    Case("AddPartitionsToTxn, unknown partitions", 3, _added),
    Case("TxnOffsetCommit, unknown partitions", 3, _committed_in_transaction),
    Case("WriteTxnMarkers, unknown partitions", 1, _marked),
    Case("DescribeProducers, unknown partitions", 0, _producers),
    Case("DescribeTransactions, unknown ids", 0, lambda s: messages.DescribeTransactionsRequest(transactional_ids=_absent(s))),
)

CASES = (
    *COORDINATED,
    _count(46_341),
    _count(100_000),
    _count(1_000_000),
    Case("CreateTopics, many topics", 5, lambda s: _created(s.entries // 10, num_partitions=1, replication_factor=1)),
    Case("CreateTopics, many assignments", 5, lambda s: _assigned(s.entries // 10, 3)),
    Case("CreateTopics, many replicas", 5, lambda s: _assigned(1, s.entries)),
    Case("CreatePartitions, to a count", 2, _grown),
    Case("CreatePartitions, many topics", 2, _grown_topics),
    Case("DescribeConfigs, one broker 5,000 times", 4, lambda s: _described(4, [str(s.broker_id)] * 5_000)),
    Case("DescribeConfigs, the same with documentation", 4, lambda s: _described(4, [str(s.broker_id)] * 5_000, True)),
    Case("DescribeConfigs, unknown topics", 4, lambda s: _described(2, _absent(s))),
    Case("DescribeConfigs, all topics", 4, lambda s: _described(2, list(s.topics))),
    Case("AlterConfigs, unknown topics", 2, lambda s: _altered(2, _absent(s, 10), 1)),
    Case("AlterConfigs, many configs", 2, lambda s: _altered(2, ["wide"], s.entries // 10)),
    Case("IncrementalAlterConfigs, unknown topics", 1, lambda s: _incremented(2, _absent(s, 10), 1)),
    Case("IncrementalAlterConfigs, many configs", 1, lambda s: _incremented(2, ["wide"], s.entries // 10)),
    Case("Metadata, all topics", 9, lambda s: _metadata(None)),
    Case("Metadata, each topic", 9, lambda s: _metadata(list(s.topics))),
    Case("Metadata, unknown topics", 9, lambda s: _metadata(_absent(s))),
    Case("DeleteTopics, unknown topics", 5, _deleted),
    Case("ElectLeaders, every partition", 2, lambda s: _elected(None)),
    Case("ElectLeaders, each partition", 2, lambda s: _elected(s.topics)),
    Case("ElectLeaders, unknown partitions", 2, lambda s: _elected({"absurd": s.entries})),
    Case("ElectLeaders, unknown topics", 2, lambda s: _elected(dict.fromkeys(_absent(s, 5), 1))),
    Case("ListPartitionReassignments, unknown", 0, _reassignments),
    Case("ReassignPartitions, each partition", 0, lambda s: _moved(s.topics)),
    Case("ReassignPartitions, unknown partitions", 0, lambda s: _moved({"absurd": s.entries})),
    Case("AlterInterbrokerThrottledRates, unknown brokers", 0, _rates),
    Case("AlterInterbrokerThrottledReplicas, each partition", 1, lambda s: _throttled(s.topics)),
    Case("AlterInterbrokerThrottledReplicas, unknown partitions", 1, lambda s: _throttled({"absurd": s.entries})),
    Case("AlterPartitionReassignments, each partition", 0, lambda s: _reassigned(s.topics, (1, 2, 3))),
    Case("AlterPartitionReassignments, unknown partitions", 0, lambda s: _reassigned({"absurd": s.entries}, (1, 2))),
    Case("Produce, each partition of a topic", 9, lambda s: _produced("wide", s.topics["wide"])),
    Case("Produce, unknown partitions", 9, lambda s: _produced("absurd", s.entries)),
    Case("AlterPartition, each partition", 1, _isr),
    Case("LeaderAndIsr, as many partitions", 7, _leading),
    Case("UpdateMetadata, as many partitions", 8, _told),
    Case("StopReplica, as many partitions", 4, _stopped),
)


class Probe:
    """A client that always waits for one small answer: its longest wait in seconds, and the most CPU seconds the server used in one."""

    def __init__(self, port: int, server: Process) -> None:
        self._port = port
        self._server = server
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest = self.longest_cpu = 0.0
        self.failure: Exception | None = None

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        if self.failure is not None:
            raise Failed("the probe lost its broker") from self.failure

    def stall(self) -> dict[str, float]:
        """In milliseconds: the longest wait, and the most CPU time in one."""
        return {"stall_ms": self.longest * 1000, "stall_cpu_ms": self.longest_cpu * 1000}

    def _run(self) -> None:
        body = messages.encode(messages.ApiVersionsRequest(client_software_name="probe", client_software_version="1"), 3)
        number = 0
        try:
            with Connection(self._port, TIMEOUT_S) as connection:
                while not self._stopped.wait(PROBES_APART_S):
                    number += 1
                    frame = messages.encode_request(18, 3, number, f"{self._thread.ident}-{number}", body)
                    began, cpu = time.monotonic(), self._server.running_s()
                    connection.send(frame[4:])
                    connection.receive()
                    self.longest = max(self.longest, time.monotonic() - began)
                    self.longest_cpu = max(self.longest_cpu, self._server.running_s() - cpu)
        except (OSError, Failed) as failure:
            self.failure = failure


def measure(process: Process, port: int, case: Case, size: Size) -> dict[str, Any]:
    """Send one request while the other client probes."""
    request = case.make(size)
    name = type(request).__name__.removesuffix("Request")
    key = next(api.key for api in messages.APIS.values() if api.name == name)
    frame = messages.encode_request(key, case.version, 1, "stalls", messages.encode(request, case.version))
    del request
    size_out = 0
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection, Probe(port, process) as probe:
        began = time.monotonic()
        connection.sendall(frame)
        head = connection.recv(4, socket.MSG_WAITALL)
        left = size_out = struct.unpack(">i", head)[0] if len(head) == 4 else -1
        while left > 0:
            left -= len(connection.recv(min(left, 1 << 20))) or left
        took = time.monotonic() - began
    return {"case": case.name, "bytes_in": len(frame), "bytes_out": size_out, "seconds": took, **probe.stall()}


def run(command: str | None, size: Size, cases: list[Case], folder: pathlib.Path) -> list[dict[str, Any]]:
    """Start a cluster and send it every request."""
    arguments = klamm("serve", "--port", "0", "--json", "--config", "auto.leader.rebalance.enable=false")
    for name, partitions in size.topics.items():
        arguments += ["--topic", f"{name}:{partitions}:3"]
    process = Process([command or arguments[0], *arguments[1:]], folder / "serve.log")
    try:
        ready = process.answer(120)
        controller = next(broker for broker in ready["brokers"] if broker["id"] == ready["controller_id"])
        session = Session(ready["zookeeper"], "")
        try:
            epoch = session.client.exists(f"/brokers/ids/{controller['id']}").czxid
        finally:
            session.close()
        size = size._replace(broker_id=controller["id"], broker_epoch=epoch)
        with Probe(controller["port"], process) as probe:
            time.sleep(1)
        results: list[dict[str, Any]] = [{"case": "idle", "bytes_in": 0, "bytes_out": 0, "seconds": 1.0, **probe.stall()}]
        for case in cases:
            note(case.name)
            results.append(measure(process, controller["port"], case, size) | {"rss_mb": process.rss_mb(descendants=False)})
    except OSError as error:
        raise Failed(f"{error}: {process.tail()}") from error
    finally:
        process.stop()
    return results


def table(results: list[dict[str, Any]]) -> list[str]:
    """Lines to print. Bytes out are -1 where the connection was closed instead."""
    lines = [f"{'request':46s} {'bytes in':>12s} {'bytes out':>12s} {'seconds':>8s} {'stall ms':>9s} {'cpu ms':>8s} {'MB':>6s}"]
    for r in results:
        sizes = f"{r['bytes_in']:12,d} {r['bytes_out']:12,d} {r['seconds']:8.2f}"
        lines.append(f"{r['case']:46s} {sizes} {r['stall_ms']:9.1f} {r['stall_cpu_ms']:8.1f} {r.get('rss_mb', 0):6.0f}")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000, help="partitions of the cluster")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of an absurd request; some have a tenth of it")
    parser.add_argument("--only", default="", help="only requests whose name has this word")
    parser.add_argument("--klamm", help="the klamm to measure, instead of the one that belongs to this interpreter")
    parser.add_argument("--json", help="write the results here")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.only in case.name]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        results = run(options.klamm, Size(options.entries, options.partitions), cases, folder)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
