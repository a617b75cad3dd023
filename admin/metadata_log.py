"""The controller's metadata log, read by somebody who is no broker (controller 25.1, key 101, which only Klamm has).

A fetch names the controller epoch of the log that it reads, and an offset. Broker id and epoch are -1: the controller then counts the fetch
as no heartbeat. A fetch that names another controller epoch, or an offset that the log does not have, returns no records, but where the
log begins and ends, so that the reader can begin again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.admin.arguments import INT32_MAX, check_int, check_timeout
from klamm.admin.errors import AdminError, BadResponse, error_of
from klamm.admin.io_thread import Call
from klamm.admin.scope import Scope
from klamm.admin.session import Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

INT64_MAX = 2**63 - 1
OBSERVER = -1
"""Broker id and broker epoch of a reader that is no broker."""

_BEGIN_AGAIN = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE}
"""Errors after which a reader begins again at `log_start_offset`."""


class MetadataLogPart(NamedTuple):
    """What one fetch has shown of the log.

    `batches` are whole record batches, which begin at or before the offset of the fetch, and b"" when there is nothing new. `error` is
    FENCED_LEADER_EPOCH (the log is that of another controller epoch, namely `controller_epoch`), OFFSET_OUT_OF_RANGE, or None.
    """

    controller_epoch: int
    log_start_offset: int
    high_watermark: int
    batches: bytes
    error: AdminError | None = None


def read_metadata_log(controller_epoch: int, offset: int, max_wait_ms: int, max_bytes: int, timeout_ms: int) -> Call[MetadataLogPart]:
    """See `AdminClient.read_metadata_log`."""
    epoch = check_int(controller_epoch, "controller_epoch", -1, INT32_MAX)
    start = check_int(offset, "offset", 0, INT64_MAX)
    wait = check_int(max_wait_ms, "max_wait_ms", 0, INT32_MAX)
    size = check_int(max_bytes, "max_bytes", 0, INT32_MAX)
    timeout = check_timeout(timeout_ms)

    def make(_version: int) -> messages.MetadataFetchRequest:
        return messages.MetadataFetchRequest(
            broker_id=OBSERVER, broker_epoch=OBSERVER, controller_epoch=epoch, fetch_offset=start, max_wait_ms=wait, max_bytes=size
        )

    async def run(session: Session, scope: Scope) -> MetadataLogPart:
        response, _ = await session.to_controller(scope, ApiKey.METADATA_FETCH, make, _refused)
        return _read(response)

    return Call(timeout + wait, run)


def _refused(response: Any) -> bool:
    return bool(response.error_code == ErrorCode.NOT_CONTROLLER)


def _read(response: Any) -> MetadataLogPart:
    error = error_of(response.error_code)
    if error is not None and error.code not in _BEGIN_AGAIN:
        raise error
    if error is None and response.records is None:
        raise BadResponse("the controller sent no records and no error")
    batches = b"" if response.records is None else bytes(response.records)
    return MetadataLogPart(response.controller_epoch, response.log_start_offset, response.high_watermark, batches, error)
