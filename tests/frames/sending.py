"""Sends frames to a broker that was made ready for them, and writes its responses as text, without what differs from run to run."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from klamm.protocol import json_form, messages
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.tests.frames.drawing import CORRELATION_ID, Changed
from klamm.tests.frames.socket_frames import read_frame, write_frame
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import OwnedBroker, wait_for
from klamm.tests.harness.kafka import request as ask

NO_ANSWER = "no answer"
SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "group_initial_rebalance_delay_ms": "0",
    "log_retention_ms": "-1",
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "kip183_legacy_v0": "false",
}
_MASKED = {
    "clusterId": "<cluster>", "port": "<port>", "topicId": "<id>", "brokerEpoch": "<epoch>", "producerId": "<producer>",
    "logDir": "<folder>", "totalBytes": "<bytes>", "usableBytes": "<bytes>", "host": "<host>", "memberId": "<member>", "leader": "<leader>",
    "sessionId": "<session>", "size": "<size>", "producerIdStart": "<start>", "producerEpoch": "<epoch>", "records": "<records>",
    "logAppendTimeMs": "<time>", "documentation": "<text>", "maxTimestamp": "<time>", "lastTimestamp": "<time>",
}
Mask = Callable[[Any], Any]


class Sender:
    """Sends frames to one broker on a connection that is opened again when it is closed. `answer_s` is how long it waits for a response.

    `connected` opens the connection, of a user for example; `masked` leaves out of a response what differs from run to run.
    """

    def __init__(
        self, broker: OwnedBroker, answer_s: float, connected: Callable[[], socket.socket] | None = None, masked: Mask | None = None
    ) -> None:
        self.broker, self._answer_s = broker, answer_s
        self._connected = connected or (lambda: socket.create_connection(("127.0.0.1", broker.port)))
        self._masked = masked or without_what_differs
        self._connection: socket.socket | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def outcome(self, changed: Changed) -> str:
        """`closed`, `no answer`, or the answer as text."""
        answer = self.answer(changed.frame)
        return answer if isinstance(answer, str) else shown(changed, answer, self._masked)

    def answer(self, frame: bytes) -> bytes | str:
        """The payload of the answer to a frame, or `closed` or `no answer`."""
        if self._connection is None:
            self._connection = self._connected()
        self._connection.settimeout(self._answer_s)
        try:
            write_frame(self._connection, frame)
            return read_frame(self._connection)
        except TimeoutError:
            self.close()
            return NO_ANSWER
        except OSError:
            self.close()
            return "closed"


class Decoded(NamedTuple):
    """A response that could be read: `end` is where the message ends in the payload."""

    message: Any
    version: int
    correlation_id: int
    end: int


def decoded(changed: Changed, payload: bytes) -> Decoded | None:
    """The response to a frame; None if there is no such response."""
    key, version = struct.unpack(">hh", changed.frame[:4])
    api = messages.APIS.get(key)
    if api is None:
        return None
    if key == KEYS["ApiVersions"] and not api.min_version <= version <= api.max_version:
        version = 0
    try:
        correlation_id, offset = messages.decode_response_header(key, version, payload)
        message, end = messages.decode(f"{api.name}Response", version, payload, offset)
    except (RemoteProtocolError, struct.error):
        return None
    return Decoded(message, version, correlation_id, end)


def shown(changed: Changed, payload: bytes, masked: Mask) -> str:
    """A response as text."""
    response = decoded(changed, payload)
    if response is None:
        return f"answer {payload.hex()}"
    rest = "" if response.end == len(payload) else f" and {len(payload) - response.end} bytes"
    at = "" if response.correlation_id == CORRELATION_ID else f"to {response.correlation_id:x} "
    value = masked(json_form.to_json(response.message, response.version))
    return f"{at}{json.dumps(value, separators=(',', ':'), ensure_ascii=False)}{rest}"


def without_what_differs(value: Any) -> Any:
    """A value of JSON with what differs from run to run masked, and lists of objects sorted."""
    if isinstance(value, list):
        items = [without_what_differs(each) for each in value]
        return sorted(items, key=json.dumps) if items and isinstance(items[0], dict) else items
    if not isinstance(value, dict):
        return value
    return {name: _field(name, each) for name, each in value.items() if name != "throttleTimeMs"}


def _field(name: str, value: Any) -> Any:
    if name.lower().endswith("errorcode"):
        return ErrorCode(value).name
    if name in _MASKED and value not in (None, -1, "", 0):
        return _MASKED[name]
    if name == "errorMessage":
        return None if value is None else "text" if value else "empty"
    return without_what_differs(value)


def made_ready(broker: OwnedBroker, answer_s: float = 60) -> Sender:
    """Start a broker as `make_ready` does; what sends to it."""
    make_ready(broker)
    return Sender(broker, answer_s)


def make_ready(broker: OwnedBroker) -> None:
    """Start a broker with the topics of the requests and with both coordinators."""
    broker.start()
    for name in ("t", "u", "td"):
        (answer,) = ask(broker.port, requests.create_topic(name, [[0]]), 5).topics
        assert answer.error_code == 0, answer
    wait_for(lambda: _coordinates(broker.port), "both coordinators")


def _coordinates(port: int) -> bool:
    for key, kind in (("g", 0), ("x", 1)):
        if ask(port, messages.FindCoordinatorRequest(key=key, key_type=kind), 2).error_code:
            return False
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
    initiate = messages.InitProducerIdRequest(transactional_id="warm", transaction_timeout_ms=1000)
    unknown: bool = ask(port, heartbeat, 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    return unknown and ask(port, initiate, 0).error_code == 0
