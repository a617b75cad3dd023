"""Sends frames that say what only this broker knows, and shows its responses exactly: records, producers, topics by name.

Responses are awaited until what a request changed can be seen: the markers of a transaction, configs, the deletion of topics.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import id_text
from klamm.tests.frames.drawing import Changed
from klamm.tests.frames.sending import Sender, decoded, make_ready, shown
from klamm.tests.frames.usual.values import GENERATION, MEMBER, topic_mark
from klamm.tests.harness.batches import texts_of
from klamm.tests.harness.kafka import OwnedBroker
from klamm.tests.harness.kafka import request as ask
from klamm.tests.harness.requests import LOGGER

_MASKED = {
    "clusterId": "<cluster>", "port": "<port>", "brokerEpoch": "<epoch>", "logDir": "<folder>", "totalBytes": "<bytes>",
    "usableBytes": "<bytes>", "host": "<host>", "sessionId": "<session>", "size": "<size>", "producerIdStart": "<start>",
    "logAppendTimeMs": "<time>", "documentation": "<text>", "maxTimestamp": "<time>", "lastTimestamp": "<time>",
    "transactionStartTimeMs": "<time>", "startTimestamp": "<time>",
}
_LATELY_MS = 1_700_000_000_000
"""A later timestamp is one that a broker gave."""
_OWN_CONFIG = "kip183"
_TRANSIENT = '"CONCURRENT_TRANSACTIONS"'
"""In the response while a transaction ends."""
_MEMBER_ID = re.compile(r"[^\"]*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")
_RETRY_S, _RETRIES = 0.02, 25
_SETTLE_S = 0.1
"""Until changed configs have reached the partitions."""
_CONFIG_CHANGES = ("AlterConfigs", "IncrementalAlterConfigs")


class KnowingSender(Sender):
    """Writes what its broker said in place of the marks of `usual/values.py`."""

    def __init__(self, broker: OwnedBroker, answer_s: float) -> None:
        super().__init__(broker, answer_s)
        self._member, self._generation = MEMBER, GENERATION

    def outcome(self, changed: Changed) -> str:
        frame, ids = self._with_what_is_known(changed.frame)
        payload, text = b"", ""
        for _ in range(_RETRIES):
            answer = self.answer(frame)
            if isinstance(answer, str):
                return answer
            payload = answer
            known = ids | (self._ids() if b"<id of" in changed.frame or changed.api == "Metadata" else {})
            names = {id_text(topic_id): f"<id of {name}>" for topic_id, name in known.items()}
            text = shown(changed, payload, partial(_masked, names=names))
            if _TRANSIENT not in text:
                break
            time.sleep(_RETRY_S)
        self._look_after(changed, payload)
        return _MEMBER_ID.sub("<member>", text)

    def _look_after(self, changed: Changed, payload: bytes) -> None:
        """Remember the member that a response to JoinGroup names; wait until what was changed can be seen."""
        response = decoded(changed, payload)
        if changed.api == "JoinGroup" and response is not None:
            self._joined(response.message)
        if changed.api in _CONFIG_CHANGES:
            time.sleep(_SETTLE_S)
        if changed.api == "DeleteTopics":
            self._wait_for_deletion()
        if changed.api in ("EndTxn", "InitProducerId"):
            self._wait_for_markers()

    def _wait_for_deletion(self) -> None:
        """Until deleted topics are gone, or some time if they cannot go because a broker is missing."""
        for _ in range(_RETRIES):
            if not self.broker.tree.client.get_children("/admin/delete_topics"):
                return
            time.sleep(_RETRY_S)

    def _wait_for_markers(self) -> None:
        """Until no transaction is about to end."""
        preparing = messages.ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"])
        for _ in range(_RETRIES):
            if not ask(self.broker.port, preparing, 0).transaction_states:
                return
            time.sleep(_RETRY_S)

    def _with_what_is_known(self, frame: bytes) -> tuple[bytes, dict[bytes, str]]:
        """The frame with what this broker said in place of marks, and the ids of topics that were used."""
        frame = frame.replace(MEMBER.encode(), self._member.encode())
        frame = frame.replace(struct.pack(">i", GENERATION), struct.pack(">i", self._generation))
        if b"<id of" not in frame:
            return frame, {}
        ids = self._ids()
        for topic_id, topic in ids.items():
            frame = frame.replace(topic_mark(topic), topic_id)
        return frame, ids

    def _ids(self) -> dict[bytes, str]:
        topics = ask(self.broker.port, messages.MetadataRequest(topics=None), 12).topics
        return {topic.topic_id: topic.name for topic in topics if any(topic.topic_id)}  # none with an old inter-broker protocol

    def _joined(self, message: messages.JoinGroupResponse) -> None:
        if len(message.member_id) == len(MEMBER):
            self._member = message.member_id
        if message.generation_id >= 0:
            self._generation = message.generation_id


def _masked(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        items = [_masked(each, names) for each in value if not (isinstance(each, dict) and _is_own(each))]
        return sorted(items, key=json.dumps) if items and isinstance(items[0], dict) else items
    if not isinstance(value, dict):
        return value
    left_out = ("throttleTimeMs", "configs") if value.get("resourceType") == LOGGER else ("throttleTimeMs",)
    return {name: _field(name, each, names) for name, each in value.items() if name not in left_out}


def _is_own(row: dict[str, Any]) -> bool:
    """Whether a row is a config that only Klamm has."""
    return str(row.get("name")).startswith(_OWN_CONFIG)


def _field(name: str, value: Any, names: Mapping[str, str]) -> Any:
    if name.lower().endswith("errorcode"):
        return ErrorCode(value).name
    if name in _MASKED and value not in (None, -1, "", 0):
        return _MASKED[name]
    if name == "timestamp" and value > _LATELY_MS:
        return "<time>"
    if name == "errorMessage":
        return None if value is None else "text" if value else "empty"
    if name == "topicId":
        return names.get(value, "<id>")
    if name == "records" and value:
        return " ".join(texts_of(base64.b64decode(value)))
    return _masked(value, names)


def made_knowing(broker: OwnedBroker, answer_s: float = 60) -> KnowingSender:
    """Start a broker as `make_ready` does; what sends to it."""
    make_ready(broker)
    return KnowingSender(broker, answer_s)
