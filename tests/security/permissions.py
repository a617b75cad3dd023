"""The table (API, version, permissions) → response: made with a broker of either kind, and kept as text in `permissions.recorded`.

    python -m klamm.tests.security.permissions      # makes it again with a real Kafka

The client is `User:ANONYMOUS` at 127.0.0.2, which gets one set of permissions after the other. Broker and test are at 127.0.0.1, whose
ACLs allow everything; they are in ZooKeeper before the broker starts. Each request is sent in its lowest and its highest version.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from klamm.protocol import json_form, messages
from klamm.protocol.errors import ErrorCode, LocalProtocolError
from klamm.protocol.security.acls import ALL, ALLOW, LITERAL, PREFIXED, RESOURCE_TYPES
from klamm.server.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from klamm.tests.frames.socket_frames import response_of
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, wait_for
from klamm.tests.harness.tree import Tree
from klamm.tests.security.permission_requests import REQUESTS, Asked
from klamm.tests.stories.both.answers import request as message_of

FILE = Path(__file__).with_name("permissions.recorded")
AT, FROM = "127.0.0.1", "127.0.0.2"
SETTINGS: Mapping[str, str] = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "group_initial_rebalance_delay_ms": "0",
    "log_retention_ms": "-1",
    "kip183_legacy_v0": "false",
}
_T, _G, _C, _X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_NAMES = {_T: "t", _G: "g", _C: CLUSTER_NAME, _X: "x"}
_SINGLE: dict[ResourceType, str] = {
    _T: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    _G: "READ DELETE DESCRIBE",
    _C: "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS IDEMPOTENT_WRITE ALTER ALTER_CONFIGS DESCRIBE",
    _X: "DESCRIBE WRITE",
}
_JOINED = (
    "GROUP READ, TOPIC READ", "GROUP DESCRIBE, TOPIC DESCRIBE", "GROUP DELETE, TOPIC READ", "TRANSACTIONAL_ID WRITE, GROUP READ",
    "TRANSACTIONAL_ID WRITE, TOPIC WRITE", "TRANSACTIONAL_ID WRITE, GROUP READ, TOPIC READ", "TOPIC CREATE, TOPIC DESCRIBE_CONFIGS",
    "CLUSTER CREATE, TOPIC DESCRIBE", "CLUSTER ALL, TOPIC ALL, GROUP ALL, TRANSACTIONAL_ID ALL",
)
PERMISSIONS = ("none", *(f"{kind.name} {name}" for kind, names in _SINGLE.items() for name in names.split()), *_JOINED)
"""The sets of permissions, as text: a resource type and an operation each."""

_MASKED = {
    "clusterId": "<cluster>", "port": "<port>", "topicId": "<id>", "brokerEpoch": "<epoch>", "producerId": "<producer>",
    "producerEpoch": "<producer epoch>", "logDir": "<folder>", "totalBytes": "<bytes>", "usableBytes": "<bytes>", "throttleTimeMs": 0,
    "host": "<host>", "records": "<records>", "minVersion": "<version>", "maxVersion": "<version>",
}
_NOT_AUTHORIZED = re.compile(r"^Request .* is not authorized\.$", re.DOTALL)
"""Apache Kafka shows its object of the request."""
_ID = re.compile(r"<id (\w+)>")
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_ABSENT_ID = "AAAAAAAAAAAAAAAAAAAAZw"


class Asker:
    """Sends requests from one address to a broker, on a connection that is opened again after the broker closes it."""

    def __init__(self, address: str, port: int) -> None:
        self._address, self._port = address, port
        self._connection: socket.socket | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, message: Any, version: int) -> Any:
        """The response; None if the broker closes the connection."""
        if self._connection is None:
            self._connection = socket.create_connection((AT, self._port), timeout=30, source_address=(self._address, 0))
        try:
            return response_of(self._connection, message, version)
        except ConnectionError:
            self.close()
            return None


class Table:
    """Fills the table with one broker."""

    def __init__(self, broker: OwnedBroker, tree: Tree) -> None:
        self._tree = tree
        self._admin, self._client = Asker(AT, broker.port), Asker(FROM, broker.port)
        self._outcomes: dict[tuple[str, int], dict[str, list[str]]] = {}

    def close(self) -> None:
        self._admin.close()
        self._client.close()

    def fill(self) -> str:
        """The table as text."""
        for name in ("t", "u"):
            self.create(name)
        for key, kind in (("g", 0), ("x", 1)):
            wait_for(lambda key=key, kind=kind: self._finds(key, kind), f"the coordinator of {key}")  # type: ignore[misc]
        for permissions in PERMISSIONS:
            if self._tree.topic_id("td") is None:
                self.create("td")
            self._grant(permissions)
            for asked in REQUESTS:
                for version in _versions(asked):
                    of = self._outcomes.setdefault((f"{asked.api} {asked.about}".rstrip(), version), {})
                    of.setdefault(self.outcome(asked, version), []).append(permissions)
        return "".join(_shown(name, version, outcomes) for (name, version), outcomes in self._outcomes.items())

    def create(self, name: str) -> None:
        def exists() -> bool:
            answer = self._admin.ask(requests.metadata([name]), 5)
            return bool(answer.topics[0].error_code == 0)

        (answer,) = self._admin.ask(requests.create_topic(name, [[0]]), 5).topics
        assert answer.error_code == 0, answer
        wait_for(exists, f"{name} exists")

    def _finds(self, key: str, kind: int) -> bool:
        found = self._admin.ask(messages.FindCoordinatorRequest(key=key, key_type=kind), 2)
        if found.error_code != 0:
            return False
        if kind == 0:
            return bool(self._admin.ask(messages.HeartbeatRequest(group_id=key, generation_id=0, member_id="m"), 0).error_code == 25)
        asked = messages.InitProducerIdRequest(transactional_id="warm", transaction_timeout_ms=1000)
        return bool(self._admin.ask(asked, 0).error_code == 0)

    def _grant(self, permissions: str) -> None:
        """Give the client these permissions and no other."""
        kind = messages.DeleteAclsRequest
        everything = kind.DeleteAclsFilter(1, None, 1, None, FROM, 1, 1)
        (answer,) = self._admin.ask(kind(filters=[everything]), 1).filter_results
        assert answer.error_code == 0, answer
        creations = [
            messages.CreateAclsRequest.AclCreation(
                resource_type, _NAMES[resource_type], LITERAL if resource_type == _C else PREFIXED, "User:ANONYMOUS", FROM, operation, ALLOW
            )
            for resource_type, operation in _parsed(permissions)
        ]
        results = self._admin.ask(messages.CreateAclsRequest(creations=creations), 1).results
        assert [each.error_code for each in results] == [0] * len(creations), results

    def outcome(self, asked: Asked, version: int) -> str:
        text = _ID.sub(lambda match: self._id_of(match[1]), json.dumps(asked.body))
        answer = self._client.ask(message_of(asked.api, version, json.loads(text)), version)
        return "connection closed" if answer is None else _line(_masked(json_form.to_json(answer, version)))

    def _id_of(self, topic: str) -> str:
        topic_id = self._tree.topic_id(topic)
        return _ABSENT_ID if topic_id is None else _text_of(topic_id)


def _text_of(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _parsed(permissions: str) -> Iterator[tuple[ResourceType, int]]:
    for each in permissions.split(", ") if permissions != "none" else ():
        kind, _, operation = each.partition(" ")
        yield ResourceType[kind], ALL if operation == "ALL" else Operation[operation]


def _versions(asked: Asked) -> tuple[int, ...]:
    """The lowest and the highest version that can say it."""
    api = messages.APIS[KEYS[asked.api]]
    able = [version for version in range(api.min_version, api.max_version + 1) if _can_say(asked, version)]
    return tuple(dict.fromkeys((able[0], able[-1])))


def _can_say(asked: Asked, version: int) -> bool:
    if asked.about in ("ids", "both", "verification"):
        return version == messages.APIS[KEYS[asked.api]].max_version
    text = _ID.sub(_ABSENT_ID, json.dumps(asked.body))
    try:
        messages.encode(message_of(asked.api, version, json.loads(text)), version)
    except LocalProtocolError:
        return False
    return True


def _masked(value: Any) -> Any:
    if isinstance(value, list):
        items = [_masked(each) for each in value]
        return sorted(items, key=_line) if items and isinstance(items[0], dict) else items
    if not isinstance(value, dict):
        return value
    return {name: _field(name, each) for name, each in value.items() if name != "throttleTimeMs"}


def _field(name: str, value: Any) -> Any:
    if name.lower().endswith("errorcode"):
        return ErrorCode(value).name
    if name in _MASKED and value not in (None, -1, _NO_ID, ""):
        return _MASKED[name]
    if name == "errorMessage" and value is not None:
        return _NOT_AUTHORIZED.sub("Request <request> is not authorized.", value)
    return _masked(value)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _shown(name: str, version: int, outcomes: Mapping[str, list[str]]) -> str:
    """One request: the response without permissions, then those with some that differ."""
    lines = [f"== {name} v{version}", ""]
    for outcome, permissions in outcomes.items():
        lines += [f"{'otherwise' if 'none' in permissions else ' | '.join(permissions)}:", f"    {outcome}"]
    return "\n".join(lines) + "\n\n"


def allow_everything(tree: Tree) -> None:
    """Write the ACLs of the broker and of the test, before a broker starts."""
    entry = {"principal": "User:ANONYMOUS", "permissionType": "Allow", "operation": "All", "host": AT}
    data = json.dumps({"version": 1, "acls": [entry]})
    for resource_type, kind in RESOURCE_TYPES.items():
        tree.put(f"/kafka-acl/{kind}/{CLUSTER_NAME if resource_type == _C else '*'}", data)


def made_with(broker: OwnedBroker, tree: Tree) -> str:
    """Start a broker, and make the table with it."""
    allow_everything(tree)
    broker.start()
    table = Table(broker, tree)
    try:
        return table.fill()
    finally:
        table.close()
        broker.kill()


def main() -> None:
    """Write the file again, with a real Kafka."""
    from klamm.tests.reference.jars import jars
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    server = EmbeddedZooKeeper()
    tree = Tree(server.start(), "/permissions")
    try:
        with tempfile.TemporaryDirectory() as folder:
            broker = KafkaBroker(jars(), tree, Path(folder), 0, **SETTINGS)
            FILE.write_text(made_with(broker, tree), encoding="utf-8")
    finally:
        tree.close()
        server.stop()


if __name__ == "__main__":
    main()
