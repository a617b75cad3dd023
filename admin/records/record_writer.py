"""Writes records to a topic, in order, and says which were not written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kafka import KafkaProducer
from kafka.errors import KafkaError

from klamm.admin.calls.arguments import INT32_MAX
from klamm.admin.calls.errors import AdminError, error_of, response_error
from klamm.admin.calls.settings import Security
from klamm.admin.records.codecs import use_own_codecs
from klamm.admin.records.record_errors import as_admin_errors

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_UNFINISHED = 10_000
"""Records that may wait for their acknowledgement before `write` blocks."""

_CLOSE_S = 1.0
"""How long the end waits for records after a failure."""


def _with_number(number: int, text: str | None) -> str:
    return f"record {number}: {text}" if text else f"record {number}"


class RecordWriter:
    """Writes to one topic with acks=all. `written` counts the records that were acknowledged. Every method may raise AdminError."""

    def __init__(self, bootstrap_server: str, topic: str, client_id: str, compression: str, timeout_ms: int, security: Security) -> None:
        """`timeout_ms` limits the wait for the metadata of the topic, and the delivery of a record."""
        self.written = 0
        self._topic = topic
        self._timeout_s = timeout_ms / 1000
        self._waiting: deque[Any] = deque()
        use_own_codecs()
        with as_admin_errors():
            self._producer = KafkaProducer(
                bootstrap_servers=bootstrap_server, client_id=client_id, acks="all", linger_ms=5, max_block_ms=timeout_ms,
                max_request_size=INT32_MAX,
                delivery_timeout_ms=timeout_ms, request_timeout_ms=max(1, timeout_ms - 10),
                compression_type=None if compression == "none" else compression, **security,
            )

    def write(self, value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes]], partition: int | None) -> None:
        """Write a record; without a partition its key chooses one. An error can be that of an earlier record."""
        with as_admin_errors():
            self._waiting.append(self._producer.send(self._topic, value, key, list(headers), partition))
        if len(self._waiting) > _UNFINISHED:
            self._settle()

    def finish(self) -> None:
        """Wait until all records are acknowledged. Raises the error of the first one that is not."""
        with as_admin_errors():
            self._producer.flush(self._timeout_s)
        while self._waiting:
            self._settle()

    def _settle(self) -> None:
        try:
            with as_admin_errors():
                self._waiting[0].get(self._timeout_s)
        except AdminError as error:
            raise self._of_record(error) from error
        self._waiting.popleft()
        self.written += 1

    def _of_record(self, error: AdminError) -> AdminError:
        """The error with the number of the record that caused it, from 1.

        If a record of a batch is invalid, the others of the batch fail too, without a code. The one with a code is named.
        """
        if not error.code:
            for number, future in enumerate(self._waiting, self.written + 1):
                code = getattr(future.exception, "errno", 0)
                if future.failed() and isinstance(code, int) and code > 0:
                    reason = str(future.exception.args[0]) if future.exception.args else None
                    caused = error_of(code, _with_number(number, reason))
                    assert caused is not None
                    return caused
            return error
        return response_error(error.code, _with_number(self.written + 1, error.message))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._producer.close(timeout=self._timeout_s if error is None else _CLOSE_S)
        except KafkaError:  # records that were not acknowledged; `finish` says so
            self._producer._closed = True  # otherwise its destructor waits for them again, and prints the error
