"""Plays rounds to one broker: the super user and the users are clients of its listeners, and znodes are written beside it."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.security.acls import capitals
from klamm.tests.frames.sending import SETTINGS, Sender, made_ready, without_what_differs
from klamm.tests.frames.socket_frames import response_of
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import OwnedBroker, request, wait_for
from klamm.tests.harness.ports import free_ports
from klamm.tests.permissions.drawing import TOPICS
from klamm.tests.permissions.steps import ADDRESSES, ADMIN, USERS, Put, Step

_ROOTS = ("/kafka-acl", "/kafka-acl-extended/prefixed")
_CHANGES = ("/kafka-acl-changes/acl_changes_", "/kafka-acl-extended-changes/acl_changes_")
_NOBODY = "User:nobody"
_TOKEN = ("tokenId", "hmac", "issueTimestamp", "expiryTimestamp", "maxTimestamp", "issueTimestampMs", "expiryTimestampMs", "maxTimestampMs")
_FILTER = messages.DeleteAclsRequest.DeleteAclsFilter

def settings(allows_everyone: bool, creates_topics: bool = True) -> dict[str, str]:
    """The properties of a broker: ANONYMOUS is a super user, al and bo authenticate with SASL/PLAIN."""
    plain, sasl = free_ports(2)
    users = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    return {
        **SETTINGS,
        "allow_everyone_if_no_acl_found": str(allows_everyone).lower(),
        "auto_create_topics_enable": str(creates_topics).lower(),
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "delegation_token_secret_key": "secret",
        "listener_name_sasl_plain_sasl_jaas_config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
    }


class Player:
    """Plays rounds to one broker, which is ready."""

    def __init__(self, broker: OwnedBroker, answer_s: float) -> None:
        self.broker, self._tree = broker, broker.tree
        self._answer_s = answer_s
        self._senders: dict[tuple[str, str], Sender] = {}
        self._markers = 0
        self._has_tokens = self._has_znodes = True
        self._is_changing = [True, True]
        self._ids: dict[str, str] = {}
        self._ensure_topics()

    def close(self) -> None:
        for sender in self._senders.values():
            sender.close()

    def play(self, step: Step) -> str:
        """What became of a step: the response as text, or that the znode was written."""
        if isinstance(step, Put):
            self._put(step)
            return "written"
        self._has_tokens |= step.api == "CreateDelegationToken"
        if step.api in ("CreateAcls", "DeleteAcls"):
            self._is_changing = [True, True]
        if (step.who, step.address) not in self._senders:
            self._senders[step.who, step.address] = Sender(
                self.broker, self._answer_s, lambda: self._connected(step.who, step.address), masked
            )
        return self._senders[step.who, step.address].outcome(step.framed(self._id_of))

    def clear(self) -> None:
        """Remove all ACLs. After a round in which others wrote znodes these are deleted: some can only be removed so."""
        if self._has_tokens:
            self._expire_tokens()
        self._has_tokens = False
        self._is_changing = [True, True]
        if not self._has_znodes:
            request(self.broker.port, messages.DeleteAclsRequest(filters=[_FILTER(1, None, 1, None, None, 1, 1)]), 3)
            return
        self._has_znodes = False
        noticed = set()
        for prefixed, root in enumerate(_ROOTS):
            for kind in self._tree.children(root):
                for name in self._tree.children(f"{root}/{kind}"):
                    self._tree.delete(f"{root}/{kind}/{name}")
                    self._notify(bool(prefixed), change_of(bool(prefixed), kind, name))
                    noticed.add(bool(prefixed))
        for prefixed in noticed:
            self._wait_until_noticed(prefixed)
        request(self.broker.port, messages.DeleteAclsRequest(filters=[_FILTER(7, None, 1, _NOBODY, None, 1, 1)]), 3)
        self._markers = 0

    def _expire_tokens(self) -> None:
        """Expire the delegation tokens of all users."""
        for who in USERS:
            with self._connected(who, ADDRESSES[0]) as connection:
                for token in response_of(connection, messages.DescribeDelegationTokenRequest(owners=None), 3).tokens:
                    if token.principal_name == who:
                        response_of(connection, messages.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)

    def _put(self, put: Put) -> None:
        self._has_znodes = True
        if self._is_changing[put.prefixed]:  # or its own last change makes the broker read what is put here
            self._wait_until_noticed(put.prefixed)
        self._tree.put(put.path, put.data)
        if put.change is not None:
            self._notify(put.prefixed, put.change)
            self._wait_until_noticed(put.prefixed)

    def _notify(self, prefixed: bool, change: str) -> None:
        self._tree.client.create(_CHANGES[prefixed], change.encode(), sequence=True)

    def _wait_until_noticed(self, prefixed: bool) -> None:
        """Wait until the broker has seen all notifications: that of a further znode is the last one."""
        self._markers += 1
        name = f"marker-{self._markers}"
        row = {"principal": _NOBODY, "permissionType": "Allow", "operation": "Describe", "host": "nowhere"}
        self._tree.put(f"{_ROOTS[prefixed]}/User/{name}", {"version": 1, "acls": [row]})
        self._notify(prefixed, change_of(prefixed, "User", name))
        wanted = messages.DescribeAclsRequest(7, name, 4 if prefixed else 3, None, None, 1, 1)
        wait_for(lambda: bool(request(self.broker.port, wanted, 3).resources), name)
        self._is_changing[prefixed] = False

    def _ensure_topics(self) -> None:
        for name in TOPICS:
            request(self.broker.port, requests.create_topic(name, [[0]]), 5)
        wait_for(lambda: not any(topic.error_code for topic in request(self.broker.port, requests.metadata(TOPICS), 5).topics), "topics")

    def _id_of(self, topic: str) -> str:
        if topic not in self._ids:
            topic_id = self._tree.topic_id(topic.rstrip("/"))
            self._ids[topic] = "AAAAAAAAAAAAAAAAAAAAZw" if topic_id is None else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        return self._ids[topic]

    def _connected(self, who: str, address: str) -> socket.socket:
        name = "PLAINTEXT" if who == ADMIN else "SASL"
        host, _, port = self.broker.address(name).rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=30, source_address=(address, 0))
        if who != ADMIN:
            _authenticate(connection, who)
        return connection


def change_of(prefixed: bool, kind: str, name: str) -> str:
    """The notification of a change."""
    if prefixed:
        return json.dumps({"version": 1, "resourceType": capitals(kind), "name": name, "patternType": "PREFIXED"})
    return f"{capitals(kind)}:{name}"


def _authenticate(connection: socket.socket, user: str) -> None:
    response_of(connection, messages.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = response_of(connection, messages.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-secret".encode()), 0)
    assert answer.error_code == 0, answer


def masked(value: Any) -> Any:
    """A response with what differs from run to run masked. Results of changes of ACLs stay in order, and hosts of ACLs are not masked."""
    if "filterResults" in value:
        return {"filterResults": [{**_result(each), "matchingAcls": _sorted(each["matchingAcls"])} for each in value["filterResults"]]}
    if "resources" in value:
        rows = _sorted([{**each, "acls": _sorted(each["acls"])} for each in value["resources"]])
        return {**without_what_differs({**value, "resources": []}), "resources": rows}
    if "tokens" in value:
        tokens = [{**without_what_differs(each), **dict.fromkeys(_TOKEN, "<token>")} for each in value["tokens"]]
        return {**without_what_differs({**value, "tokens": []}), "tokens": _sorted(tokens)}
    if value.get("hmac"):
        return {**without_what_differs(value), **dict.fromkeys(_TOKEN, "<token>")}
    results = value.get("results") or [{}]
    if set(results[0]) == {"errorCode", "errorMessage"}:
        return {"results": [_result(each) for each in results]}
    return without_what_differs(value)


def _result(row: dict[str, Any]) -> dict[str, Any]:
    """A result of a change of ACLs; Apache Kafka shows its object of the request in the text of one error."""
    message = row["errorMessage"] or ""
    text = "<not authorized>" if message.startswith("Request ") else row["errorMessage"]
    return {**row, "errorCode": ErrorCode(row["errorCode"]).name, "errorMessage": text}


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=json.dumps)


def ready(broker: OwnedBroker, answer_s: float) -> Player:
    """Start a broker with topics and coordinators."""
    made_ready(broker).close()
    return Player(broker, answer_s)

