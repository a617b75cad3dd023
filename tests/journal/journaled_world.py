"""A journal writer with a clock that the test drives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from klamm.journal import reading
from klamm.journal.connection import ConnectionJournal
from klamm.journal.writer import JournalWriter
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind

METADATA = messages.encode(messages.MetadataRequest(topics=None), 12)


def asked(corr: int = 1, client: str | None = "cli") -> bytes:
    return messages.encode_request(ApiKey.METADATA, 12, corr, client, METADATA)


def rows(lake: Path, table: str = "frames") -> list[dict[str, Any]]:
    found = [row for s in reading.segments(lake) if s.table == table for batch in reading.open_segment(s.path) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["seq"])


class JournaledWorld(NamedTuple):
    lake: Path
    writer: JournalWriter

    def connection(
        self, kind: ConnectionKind = ConnectionKind.ACCEPTED, name: str = "a", peer_id: int | None = None, has_sasl: bool = False
    ) -> ConnectionJournal:
        listener = "PLAINTEXT" if kind is ConnectionKind.ACCEPTED else None
        return self.writer.connection(ConnectionInfo(1, name, kind, "10.0.0.1:5", listener, peer_id, has_sasl))

    def frames(self) -> list[dict[str, Any]]:
        self.writer.close()
        return rows(self.lake)
