"""Makes the archive of loaded classes (`machine/class_archive.py`).

A JVM processes and judges a small lake, and writes the classes that it has loaded when it exits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.pipeline.spark.java import class_archive, java_for_spark
from klamm.pipeline.spark.jvm import let_jvm_exit, missing_privates
from klamm.pipeline.spark.session import NoSpark, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_S = 900
"""How long the JVM may take to write the archive."""


def warm(work: Callable[[SparkSession], None], variables: MutableMapping[str, str]) -> Path:
    """Make the archive with the classes that `work` needs; it gets a session. `variables` is `os.environ`, as for `open_session`.

    Raises NoJava, NoSpark and what `work` raises.
    """
    missing = missing_privates()
    if missing:
        raise NoSpark(f"this PySpark has no {missing}, so the JVM cannot be told to write an archive; Spark works without one")
    java = java_for_spark()
    archive = class_archive(java)
    try:
        if not archive.build(lambda flags: _train(work, flags, variables), again=True):
            raise NoSpark(f"{java.launcher} wrote no class archive")
    except BlockingIOError as problem:
        raise NoSpark(f"another process makes {archive.file} at the moment") from problem
    archive.remove_unused(0)  # it takes the place of those of older PySparks and Javas
    return archive.file


def _train(work: Callable[[SparkSession], None], flags: list[str], variables: MutableMapping[str, str]) -> None:
    """Start a JVM with these flags, call `work`, and wait until the JVM has exited."""
    from pyspark import SparkContext

    session = open_session("local[2]", options=(*flags, "-Xlog:disable"), variables=variables)
    work(session)
    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    let_jvm_exit(EXIT_S)  # it writes the archive then
    SparkContext._gateway = SparkContext._jvm = None


def sample_work(session: SparkSession) -> None:
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
