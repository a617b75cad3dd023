"""Reads the controller's metadata log as an observer (controller 25.1, key 101, which only Klamm has).

A fetch has the controller epoch of the log and an offset. Broker id and broker epoch are -1, so the controller does not count the fetch as
a heartbeat. If the epoch or the offset does not match the log, the response has no records, only where the log begins and ends, so that the
reader can begin again.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.admin.calls.arguments import INT32_MAX, check_int, check_timeout
from klamm.admin.calls.errors import AdminError, BadResponse, error_of
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

INT64_MAX = 2**63 - 1
OBSERVER = -1
"""Broker id and broker epoch of a reader that is not a broker."""

_BEGIN_AGAIN = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE}
"""Errors after which a reader begins again at `log_start_offset`."""


class MetadataLogPart(NamedTuple):
    """The result of one fetch.

    `batches` are complete record batches; b"" if there is nothing new. The first batch may begin before the offset of the fetch. `error` is
    FENCED_LEADER_EPOCH (the log has another controller epoch, `controller_epoch`), OFFSET_OUT_OF_RANGE, or None.
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


def _refused(response: messages.MetadataFetchResponse) -> bool:
    return bool(response.error_code == ErrorCode.NOT_CONTROLLER)


def _read(response: messages.MetadataFetchResponse) -> MetadataLogPart:
    error = error_of(response.error_code)
    if error is not None and error.code not in _BEGIN_AGAIN:
        raise error
    if error is None and response.records is None:
        raise BadResponse("the controller sent no records and no error")
    batches = b"" if response.records is None else bytes(response.records)
    return MetadataLogPart(response.controller_epoch, response.log_start_offset, response.high_watermark, batches, error)
