"""Rule W-07: would a response that does not decode be decodable with the other version of its header? SQL alone cannot tell.

A response header of version 1 is one byte longer than version 0. A response that decodes has the right header. The few others are tried
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from klamm.pipeline.rules.record import Rows, Tried, judged_schema
from klamm.pipeline.rules.traffic import JOURNALED
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

_FLEXIBLE = ", ".join(f"{api.key}, {api.flexible_from}" for api in messages.APIS.values() if api.flexible_from is not None)
_CONCERNED = (
    "(dir = 1 OR dir = 3 AND peer_id IS NOT NULL AND journaled_id IS NULL) "
    f"AND (api_key = {ApiKey.API_VERSIONS} OR api_version >= try_element_at(map({_FLEXIBLE}), CAST(api_key AS INT)))"
)

DECODED = Rows(
    "traffic", f"{_CONCERNED} AND reason IS NULL AND bytes_left IS NOT NULL", "CAST(NULL AS STRING)", "array(seq)", (JOURNALED,)
)
"""The responses of flexible APIs and of ApiVersions that brokers sent and that decode: they have the right header."""


def _tried_again(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """With the detail, where the response decodes behind a header of the other version."""
    import pyarrow as pa

    schema = judged_schema()
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            detail = header_of_other_version(row["api_key"], row["api_version"], row["frame"])
            evidence = [seq for seq in (row["cause_seq"], row["seq"]) if seq is not None]
            rows.append({key: row[key] for key in ("run_id", "node_id", "conn_id", "seq")} | {"detail": detail, "evidence": evidence})
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def header_of_other_version(api_key: int, version: int, frame: bytes) -> str | None:
    """What is wrong with the header of a response that does not decode; None where something else is."""
    api = messages.APIS.get(api_key)
    if api is None or not api.min_version <= version <= api.last_version:
        return None
    has_tags = api_key != ApiKey.API_VERSIONS and api.flexible_from is not None and version >= api.flexible_from
    start = 8 if has_tags else 9
    try:
        _, end = messages.decode(f"{api.name}Response", version, frame, start)
    except RemoteProtocolError:
        return None
    if end != len(frame):
        return None
    return f"<api {api_key}> version {version} has a response header of version {0 if has_tags else 1}"


TRIED_AGAIN = Tried(
    f"""
    SELECT run_id, node_id, conn_id, seq, cause_seq, api_key, api_version, frame
    FROM quarantine {JOURNALED.sql}
    WHERE {_CONCERNED} AND flags & 10 = 0 AND reason IN ('trailing', 'truncated', 'malformed')""",
    _tried_again,
)
"""Those that do not decode."""
