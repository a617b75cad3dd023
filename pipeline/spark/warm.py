"""Makes the archive of loaded classes (`pipeline/spark/class_archive.py`).

It is made by a JVM that brings the tables of a small lake up to date, judges it, and writes at its exit what it had loaded.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klamm.machine.folder_lock import lock_file
from klamm.pipeline.spark.class_archive import AOT_SINCE, archive_path, older_archives
from klamm.pipeline.spark.java import Java, find_java
from klamm.pipeline.spark.jvm import let_jvm_exit
from klamm.pipeline.spark.session import NoSpark, open_session

EXIT_S = 900
"""How long the JVM may take to write the archive."""


def warm(work: Callable[[Any], None]) -> Path:
    """Make the archive with the classes that `work` needs; it gets a session. Raises NoJava, NoSpark and what `work` raises."""
    java = find_java()
    path = archive_path(java)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_file(path.with_suffix(".lock"), 0)
    if lock is None:
        raise NoSpark(f"another process makes {path} at the moment")
    try:
        return _make(java, path, work)
    finally:
        os.close(lock)


def _make(java: Java, path: Path, work: Callable[[Any], None]) -> Path:
    from pyspark import SparkContext

    temporary = path.with_name(f"making-{path.name}")  # one for all, under the lock: it is large, and a killed process leaves only one
    temporary.unlink(missing_ok=True)
    option = f"-XX:{'AOTCacheOutput' if java.major >= AOT_SINCE else 'ArchiveClassesAtExit'}={temporary}"
    session = open_session("local[2]", options=(option, "-Xlog:disable"))
    work(session)
    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    let_jvm_exit(EXIT_S)  # it writes the archive then
    SparkContext._gateway = SparkContext._jvm = None
    if not temporary.exists():
        raise NoSpark(f"{java.launcher} wrote no class archive")
    temporary.replace(path)
    for old in older_archives(path):
        old.unlink(missing_ok=True)
    return path


def sample_work(session: Any) -> None:
    """What `klamm pipeline run` does, on a lake of a few frames and events."""
    from klamm.pipeline.run import run

    with tempfile.TemporaryDirectory(prefix="klamm-warm-") as folder:
        write_sample(Path(folder))
        run(Path(folder), lambda: session, _Silent())


def write_sample(lake: Path) -> None:
    """A small journal from which each table gets a row: metadata, a partition's state, a phase of a reassignment."""
    import pyarrow as pa

    from klamm.journal.segments import OpenSegment, disk_schema, node_folder, segment_metadata, table_schema
    from klamm.protocol import messages
    from klamm.protocol.apis import ApiKey

    request = messages.encode_request(ApiKey.METADATA, 12, 1, "warm", messages.encode(messages.MetadataRequest(), 12))
    response = messages.encode_response(ApiKey.METADATA, 12, 1, messages.encode(messages.MetadataResponse(cluster_id="warm"), 12))
    update = messages.UpdateMetadataRequest
    state = update.UpdateMetadataPartitionState(partition_index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1,))
    told = update(topic_states=[update.UpdateMetadataTopicState(topic_name="warm", partition_states=[state])])
    telling = messages.encode_request(ApiKey.UPDATE_METADATA, 8, 2, "1", messages.encode(told, 8))
    to_broker = {"conn_id": 2, "kind": "channel", "peer": "127.0.0.1:2", "flags": 0, "correlation_id": 2, "api_key": 6, "api_version": 8}
    where = {"run_id": "warm", "node_id": 1, "process": 1, "ts_ns": 0, "mono_ns": 0}
    header = {"conn_id": 1, "kind": "accepted", "peer": "127.0.0.1:1", "client_id": "warm", "correlation_id": 1, "flags": 0}
    header |= {"api_key": int(ApiKey.METADATA), "api_version": 12}
    rows = {
        "frames": [
            {**where, **header, "seq": 1, "dir": 0, "frame": request},
            {**where, **header, "seq": 2, "dir": 1, "frame": response, "cause_seq": 1, "latency_ns": 1},
            {**where, **to_broker, "seq": 3, "dir": 2, "frame": telling},
            {**where, **header, "seq": 4, "dir": 0, "frame": b"no frame"},
        ],
        "events": [
            {**where, "seq": 5, "kind": "advertised", "output": '{"apis":[[3,0,12]]}'},
            {**where, "seq": 6, "kind": "throttle_set", "topic": "warm"},
            {**where, "seq": 7, "kind": "reassign_phase", "topic": "warm", "partition": 0, "output": '{"phase":"U","step":1}'},
            {**where, "seq": 8, "kind": "broker_stopped"},
        ],
    }
    folder = node_folder(lake, "warm", 1)
    folder.mkdir(parents=True)
    for table, first_seq in (("frames", 1), ("events", 5)):
        disk = disk_schema(table, segment_metadata("warm", 1, 1, 0, "0"))
        plain = pa.RecordBatch.from_pylist(rows[table], schema=table_schema(table))
        columns = [
            plain.column(field.name).dictionary_encode() if pa.types.is_dictionary(field.type) else plain.column(field.name)
            for field in disk
        ]
        segment = OpenSegment(folder, table, first_seq, disk)
        segment.write(pa.RecordBatch.from_arrays(columns, schema=disk))
        segment.seal()


class _Silent:
    def begin(self, what: str, total: int | None) -> None:
        pass

    def step(self, steps: int) -> None:
        pass
