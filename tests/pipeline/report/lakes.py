"""A lake whose tables are written without Spark: a run in which three brokers lead, one goes, partitions move and clients err."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from klamm.journal import reading
from klamm.journal.columns import Direction
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import batch_name
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.table_parts import put
from klamm.pipeline.lake.tables import (
    API_ERRORS,
    API_MATRIX,
    BRONZE,
    GROUP_GENERATIONS,
    LATENCY,
    LEADER_TIMELINE,
    QUARANTINE,
    REASSIGN_SPANS,
    RULE_STATS,
    VERDICTS,
    Table,
)
from klamm.pipeline.report.reading import StoredTables
from klamm.pipeline.report.source import ReportSource
from klamm.pipeline.simulation.tables import SIM_LEADERS, SIM_SUMMARY
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import START_NS, TinyJournal

RUN = "20261122T120000Z-0001"
SECOND = 1_000_000_000
HOSTILE = "</script><script>document.title='hostile'</script><b>&\"'"


def write(lake: Path, table: Table, rows: list[dict[str, Any]], run: str = RUN, batch: str = "0") -> None:
    """Write rows of a table as one batch; columns that a row lacks are null, or 0 and "" where they may not be."""
    plain = {"string": "", "bool": False}
    arrays, fields = [], []
    for column in table.columns:
        kind = arrow_type(column.type)
        default = None if column.nullable else run if column.name == "run_id" else plain.get(column.type, 0)
        arrays.append(pa.array([row.get(column.name, default) for row in rows], kind))
        fields.append(pa.field(column.name, kind))
    delta_log.append(lake, [table], [put(lake, table, run, batch, pa.Table.from_arrays(arrays, schema=pa.schema(fields)))])


def stored(lake: Path, run: str = RUN) -> ReportSource:
    """The tables that the lake has, whatever its journals have."""
    return ReportSource(lake, StoredTables(lake, run), [run], "by hand", [])


def write_bronze(lake: Path, run: str = RUN) -> None:
    """Write what the lake's journals hold to bronze."""
    for segment in reading.segments(lake):
        if segment.run == run:
            table = next(one for one in BRONZE if one.name == segment.table)
            found = [row for batch in reading.open_segment(segment.path) for row in batch.to_pylist()]
            rows = [row | {"segment": segment.path.name} for row in found]
            write(lake, table, rows, run, batch_name(segment))
            if table.name == "events":
                write(lake, table._replace(layer="silver"), rows, run, batch_name(segment))


def journal(lake: Path) -> dict[str, int]:
    """The journal of controller 1: it is elected, a client creates a topic, broker 3 goes. Returns the seqs of some rows."""
    seqs: dict[str, int] = {}
    with TinyJournal(lake, RUN, 1) as broker:
        broker.step_ns = 20_000_000
        begun = broker.event("controller_event", input={"number": 1, "name": "Startup", "text": "Startup", "cause": {}}, controller_epoch=1)
        broker.event("controller_elected", broker=1, controller_epoch=1, cause=begun)
        broker.connection(7, peer="127.0.0.1:5000", client_id="orders", client_sw="librdkafka/2.16", kind="accepted", listener="PLAINTEXT")
        metadata = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=HOSTILE)])
        request = broker.request(7, ApiKey.METADATA, 12, metadata)
        seqs["request"] = request
        seqs["response"] = broker.response(7, request, messages.MetadataResponse(controller_id=1))
        for number in range(120):
            again = broker.request(7, ApiKey.METADATA, 12, messages.MetadataRequest())
            broker.response(7, again, messages.MetadataResponse(controller_id=number))
        gone = broker.event("controller_event", input={"number": 2, "name": "BrokerChange", "text": "BrokerChange", "cause": {}})
        broker.event("broker_down", broker=3, controller_epoch=1, cause=gone)
        broker.event("decision", input={"rule": {"name": "ElectLeader"}, "partitions": [["t", 0]]}, output={"write": {}}, cause=gone)
        for partition in range(4):
            path = f"/brokers/topics/t/partitions/{partition}/state"
            broker.event("zk_write", input={"op": "set", "path": path, "version": 0}, topic="t", partition=partition, cause=gone)
        batch = broker.event("batch", output={"requests": [[4, 7, [2]], [6, 8, [1, 2]]]}, cause=gone)
        for conn, receiver in ((20, 1), (21, 2)):
            broker.connection(conn, kind="channel", peer=f"127.0.0.1:909{receiver}", peer_id=receiver, client_id="1")
            sent = broker.request(conn, ApiKey.UPDATE_METADATA, 8, messages.UpdateMetadataRequest(), dir=Direction.REQUEST_OUT, cause=batch)
            broker.response(conn, sent, messages.UpdateMetadataResponse())
        seqs["gone"] = gone
        seqs["garbage"] = broker.raw(9, 0, b"\0\0\0\x09garbage!!")
    return seqs


def tables(lake: Path, seqs: dict[str, int]) -> None:
    """Tables of gold and silver beside it, with more partitions, clients and errors than a picture may have."""
    chance = random.Random(7)
    end = START_NS + 6 * SECOND
    timeline, spans = [], []
    for partition in range(64):
        leader, at, epoch = 1 + partition % 3, START_NS, 0
        for _ in range(1 + partition % 5):
            until = at + chance.randrange(SECOND // 2, 2 * SECOND)
            row = {"topic": "orders" if partition < 32 else HOSTILE, "partition": partition, "leader": leader, "leader_epoch": epoch}
            timeline.append(row | {"controller_epoch": 1, "node_id": 1, "from_ts_ns": at, "to_ts_ns": until if until < end else None})
            leader, at, epoch = chance.choice([1, 2, 3, -1]), until, epoch + 1
            if until >= end:
                break
        timeline[-1]["to_ts_ns"] = None
    for partition in range(6):
        at = START_NS + partition * SECOND // 4
        for phase in ("U", "A1", "A2", "B1", "B2", "B3", "B4", "B5", "B6"):
            until = at + chance.randrange(SECOND // 20, SECOND // 2)
            row = {"topic": "orders", "partition": partition, "phase": phase, "step": 5, "node_id": 1, "throttle": phase in ("A1", "A2")}
            spans.append(row | {"from_ts_ns": at, "to_ts_ns": until})
            at = until
    write(lake, LEADER_TIMELINE, timeline)
    write(lake, REASSIGN_SPANS, spans)
    write(lake, GROUP_GENERATIONS, [
        {"node_id": 1, "process": 1, "group_id": group, "generation": generation, "leader": HOSTILE, "members": generation, "synced": 1,
         "partitions": 3, "from_ts_ns": START_NS + generation * SECOND, "joined_ts_ns": START_NS + generation * SECOND + SECOND // 10,
         "stable_ts_ns": START_NS + generation * SECOND + SECOND // 5 if generation < 3 else None}
        for group in ("payments", HOSTILE) for generation in (1, 2, 3)
    ])
    apis = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.CREATE_TOPICS)
    write(lake, API_ERRORS, [
        {"ts_ns": START_NS + chance.randrange(5 * SECOND), "dir": 1, "api_key": chance.choice(apis), "path": "errorCode",
         "kind": "accepted", "error_code": chance.choice([3, 5, 6, 41]), "count": chance.randrange(1, 20)}
        for _ in range(300)
    ])
    write(lake, LATENCY, [
        {"node_id": 1, "dir": 1, "api_key": int(key), "api": key.name, "count": 100, "p50_ns": 80_000 * n, "p99_ns": 900_000 * n,
         "p999_ns": 4_000_000 * n, "max_ns": 30_000_000 * n}
        for n, key in enumerate(apis, 1)
    ])
    write(lake, API_MATRIX, [
        {"node_id": 1, "client_sw": client, "client_id": "c", "api_key": int(key), "api": key.name, "api_version": version,
         "requests": chance.randrange(1, 5000), "errors": chance.randrange(9), "outside": int(version == 99), "quarantined": int(n == 3)}
        for n, client in enumerate(["librdkafka/2.16", "apache-kafka-java/3.9.1", "kafka-python/3.0", HOSTILE, "kgo/1.17"])
        for key in apis for version in (7, 12, 99) if chance.random() < 0.7
    ])
    write(lake, QUARANTINE, [{"kind": "accepted", "reason": reason, "frame": b""} for reason in ["truncated"] * 3 + ["unknown_key"]])
    write(lake, RULE_STATS, [
        {"rule": "W-01", "checked": 1000, "violated": 0}, {"rule": "W-03", "checked": 500, "violated": 7},
        {"rule": "X-03", "checked": 9, "violated": 1}, {"rule": "C-16", "checked": 0, "violated": 0},
    ])
    steps = [{"step": step, "action": action, "partitions": 900, "hours": 0.5} for step, action in enumerate(["", "kill 3"])]
    write(lake, SIM_SUMMARY, steps, "sim-1")
    led = [(0, 1, 300), (0, 2, 300), (0, 3, 300), (1, 1, 480), (1, 2, 420), (1, 3, 0)]
    write(lake, SIM_LEADERS, [{"step": step, "broker": broker, "leaders": leaders} for step, broker, leaders in led], "sim-1")
    evidence = [seqs["request"], seqs["response"], seqs["garbage"], seqs["gone"]]
    rows = [{"node_id": 1, "seq": seq} for seq in evidence]
    verdict = {"rule": "W-03", "severity": "error", "node_id": 1, "conn_id": 7, "seq": evidence[0], "detail": f"no answer to {HOSTILE}"}
    write(lake, VERDICTS, [verdict | {"evidence": rows}] * 7 + [verdict | {"rule": "X-03", "severity": "warn", "evidence": []}])
