"""Reads the metadata log of the active controller, from an offset to its end, or follows it as it grows.

The first fetch has controller epoch 0, which no controller has. The response has the epoch of the log, and where it begins and ends.
Without `follow` the reader stops at this end. With `follow` it waits for new records. If there is no controller, it keeps looking for one,
and then reads the log of the new controller from its beginning. Both are reported to the user, one line each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from klamm.admin import AsyncAdminClient, MetadataLogPart, Unsupported
from klamm.cli.tools.client import CONNECT_MS, outcome
from klamm.cli.tools.failures import NotReachable, ToolFailed
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.records.metadata_records import decode_batches

NO_REGISTRATION = 0
"""A controller epoch that no controller has: the first one is 1."""
MAX_WAIT_MS = 2_000
MAX_BYTES = 1 << 20
PAUSE_S = 0.05
"""Pause after a fetch without records. The controller may return it early."""
RETRY_S = 1.0
"""Pause between two attempts to reach a controller."""


class Sink(Protocol):
    """Receives the record batches."""

    def write(self, batches: bytes, first: int, end: int) -> None:
        """Take complete record batches. Only records with offsets from `first` up to, but not including, `end` are wanted."""

    def begin_again(self, reason: str) -> None:
        """Called if the next batch does not continue the last one. Raises ToolFailed if the sink cannot continue."""


class Reader:
    """Reads the log of one cluster. `warn` gets lines for the user."""

    def __init__(self, client: AsyncAdminClient, sink: Sink, warn: Callable[[str], None]) -> None:
        self._client = client
        self._sink = sink
        self._warn = warn

    async def read(self, from_offset: int | None, follow: bool) -> None:
        """Pass all records, starting at `from_offset` (None: the first one), to the sink. Raises ToolFailed and NotReachable."""
        part = await self._fetch(NO_REGISTRATION, 0, 0, CONNECT_MS)
        epoch, end = part.controller_epoch, part.high_watermark
        offset = part.log_start_offset if from_offset is None else from_offset
        if not part.log_start_offset <= offset <= end:
            raise ToolFailed(f"--from-offset {offset}: the log has the offsets {part.log_start_offset} to {end - 1}")
        lost = False
        while follow or offset < end:
            try:
                part = await self._fetch(epoch, offset, MAX_WAIT_MS if follow else 0)
            except NotReachable as problem:
                if not follow:
                    raise
                if not lost:
                    self._warn(f"the controller is not reachable: {problem}; trying again")
                lost = True
                await asyncio.sleep(RETRY_S)
                continue
            lost = False
            if part.error is not None:
                if not follow and part.controller_epoch != epoch:
                    raise ToolFailed(f"the controller has changed (epoch {epoch}, now {part.controller_epoch}) while its log was read")
                self._begin_again(epoch, offset, part)
                epoch, offset, end = part.controller_epoch, part.log_start_offset, part.high_watermark
                continue
            if part.batches:
                after = _end_of(part.batches)
                self._sink.write(part.batches, offset, after if follow else end)
                offset = max(offset, after)
            elif follow:
                await asyncio.sleep(PAUSE_S)
            else:
                raise ToolFailed(f"the controller sent no record from offset {offset} on, although its log ends at {end}")

    def _begin_again(self, epoch: int, offset: int, part: MetadataLogPart) -> None:
        """Report that the records do not continue at `offset` of the log of `epoch`."""
        start = part.log_start_offset
        if part.controller_epoch != epoch:
            reason = f"the controller has changed (epoch {epoch}, now {part.controller_epoch}): its log begins at offset {start}"
        else:
            reason = f"the controller has dropped the records from offset {offset} on: its log begins again at offset {start}"
        self._sink.begin_again(reason)
        self._warn(reason)

    async def _fetch(self, epoch: int, offset: int, max_wait_ms: int, timeout_ms: int | None = None) -> MetadataLogPart:
        call = self._client.read_metadata_log(epoch, offset, max_wait_ms=max_wait_ms, max_bytes=MAX_BYTES, timeout_ms=timeout_ms)
        try:
            return await outcome(call)
        except ToolFailed as problem:
            cause = problem.__cause__
            if isinstance(cause, Unsupported):
                text = "the controller has no metadata log: registerbroker.enable is not true, or the controller is not Klamm's"
                raise ToolFailed(f"{text} ({cause.message})") from cause
            if getattr(cause, "code", None) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise ToolFailed("CLUSTER_AUTHORIZATION_FAILED: reading the log needs CLUSTER_ACTION on the cluster") from cause
            raise


def _end_of(batches: bytes) -> int:
    """The offset after the last record. Raises ToolFailed if the bytes are not complete batches."""
    try:
        return decode_batches(batches)[-1][0].next_offset
    except RemoteProtocolError as problem:
        raise ToolFailed(f"the controller sent bytes that are not record batches: {problem}") from problem
