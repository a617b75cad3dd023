"""The steps of a round: a request that somebody sends, and a znode of ACLs that somebody writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.tests.frames.drawing import CORRELATION_ID, Changed
from klamm.tests.harness.client import KEYS
from klamm.tests.stories.both.answers import request

ADMIN = "admin"
USERS = ("al", "bo")
ADDRESSES = ("127.0.0.1", "127.0.0.2")


class Sent(NamedTuple):
    """A request: who sends it (ADMIN or one of USERS), from which address, and its body, with `<id NAME>` for the id of a topic."""

    who: str
    address: str
    api: str
    version: int
    body: Mapping[str, Any]

    def __str__(self) -> str:
        text = json.dumps(self.body, separators=(",", ":"), ensure_ascii=False)
        return f"{self.who} {self.address} {self.api} v{self.version} {text}"

    def framed(self, id_of: Callable[[str], str]) -> Changed:
        """The frame for a broker; `id_of` returns the id of a topic there, as text."""
        message = request(self.api, self.version, _with_ids(self.body, id_of))
        frame = messages.encode_request(KEYS[self.api], self.version, CORRELATION_ID, "test", messages.encode(message, self.version))
        return Changed(self.api, self.version, frame[4:], str(self))


class Raw(NamedTuple):
    """A frame of a user that no client would send."""

    who: str
    address: str
    changed: Changed

    @property
    def api(self) -> str:
        return self.changed.api

    def __str__(self) -> str:
        return f"{self.who} {self.address} {self.api} v{self.changed.version} {self.changed.about!a} {self.changed.frame.hex()}"

    def framed(self, id_of: Callable[[str], str]) -> Changed:
        """The frame; it has no ids of topics."""
        return self.changed


class Put(NamedTuple):
    """A znode with ACLs and the notification of its change that somebody writes; without a notification if that is None."""

    path: str
    data: str
    prefixed: bool
    change: str | None

    def __str__(self) -> str:
        return f"put {self.path} {self.data} | {self.change}"


Step = Sent | Raw | Put


def _with_ids(value: Any, id_of: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_ids(each, id_of) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_ids(each, id_of) for each in value]
    return id_of(value[4:-1]) if isinstance(value, str) and value.startswith("<id ") else value


ALL_ACLS: Mapping[str, Any] = {
    "resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1, "principalFilter": None, "hostFilter": None,
    "operation": 1, "permissionType": 1,
}
"""A filter of DescribeAcls and DeleteAcls that selects all."""

EVERYTHING = Sent(ADMIN, ADDRESSES[0], "DescribeAcls", 3, ALL_ACLS)
