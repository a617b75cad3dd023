"""Rule W-07: would a response that does not decode be decodable with the other version of its header? SQL alone cannot tell.

A response header of version 1 is one byte longer than version 0. A response that decodes has the right header. The few others are tried
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

API_VERSIONS = 18
_SCHEMA = "run_id string, node_id int, conn_id bigint, seq bigint, detail string, evidence array<bigint>"


def judged_response_headers(spark: SparkSession) -> DataFrame:
    """The responses of flexible APIs and of ApiVersions that brokers sent and whose bytes are known."""
    flexible = ", ".join(f"{api.key}, {api.flexible_from}" for api in messages.APIS.values() if api.flexible_from is not None)
    concerned = f"dir = 1 AND (api_key = {API_VERSIONS} OR api_version >= try_element_at(map({flexible}), CAST(api_key AS INT)))"
    right = spark.sql(
        f"""SELECT run_id, node_id, conn_id, seq, CAST(NULL AS STRING) AS detail, array(seq) AS evidence
        FROM traffic WHERE {concerned} AND reason IS NULL AND left IS NOT NULL"""
    )
    wrong = spark.sql(
        f"""SELECT run_id, node_id, conn_id, seq, cause_seq, api_key, api_version, frame
        FROM quarantine WHERE {concerned} AND flags & 10 = 0 AND reason IN ('trailing', 'truncated', 'malformed')"""
    )
    return right.unionAll(wrong.mapInArrow(_tried_again, _SCHEMA))


def _tried_again(batches: Iterable[Any]) -> Iterator[Any]:
    """With the detail, where the response decodes behind a header of the other version."""
    import pyarrow as pa

    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            detail = header_of_other_version(row["api_key"], row["api_version"], row["frame"])
            evidence = [seq for seq in (row["cause_seq"], row["seq"]) if seq is not None]
            rows.append({key: row[key] for key in ("run_id", "node_id", "conn_id", "seq")} | {"detail": detail, "evidence": evidence})
        fields = [("run_id", pa.string()), ("node_id", pa.int32()), ("conn_id", pa.int64()), ("seq", pa.int64()), ("detail", pa.string())]
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema([*fields, ("evidence", pa.list_(pa.int64()))]))


def header_of_other_version(api_key: int, version: int, frame: bytes) -> str | None:
    """What is wrong with the header of a response that does not decode; None where something else is."""
    api = messages.APIS.get(api_key)
    if api is None or not api.min_version <= version <= api.max_version:
        return None
    has_tags = api_key != API_VERSIONS and api.flexible_from is not None and version >= api.flexible_from
    start = 8 if has_tags else 9
    try:
        _, end = messages.decode(f"{api.name}Response", version, frame, start)
    except RemoteProtocolError:
        return None
    if end != len(frame):
        return None
    return f"API {api_key} version {version} has a response header of version {0 if has_tags else 1}"
