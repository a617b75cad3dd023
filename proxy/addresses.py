"""Addresses of brokers in responses: where they are, and how a response gets others.

These are Metadata, FindCoordinator, DescribeCluster, and since 3.7 (KIP-951) the new leaders in responses to Produce and Fetch. A response
that is changed is written by our codec: unknown tagged fields and surplus bytes of it are lost. All others pass as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey

Address = tuple[str, int]

_ROWS = {
    ApiKey.METADATA: "brokers", ApiKey.DESCRIBE_CLUSTER: "brokers", ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.PRODUCE: "node_endpoints", ApiKey.FETCH: "node_endpoints",
}  # fmt: skip
_ONE_COORDINATOR = range(4)
"""Versions of FindCoordinator whose response is about one key."""
_SINCE = {ApiKey.PRODUCE: 10, ApiKey.FETCH: 16}


def has_addresses(key: int, version: int) -> bool:
    """Whether responses of this API and version may have addresses."""
    return key in _ROWS and version >= _SINCE.get(ApiKey(key), 0)


def is_known(key: int, version: int) -> bool:
    """Whether we can read responses of this API and version."""
    return APIS[key].min_version <= version <= APIS[key].max_version


class AddressedResponse:
    """A response that may have addresses. Raises RemoteProtocolError if it cannot be decoded."""

    def __init__(self, frame: bytes, key: int, version: int) -> None:
        self._frame = frame
        self._version = version
        payload = frame[4:]
        _, self._start = messages.decode_response_header(key, version, payload)
        self._message, _ = messages.decode(f"{APIS[key].name}Response", version, payload, self._start)
        self._rows = "" if key == ApiKey.FIND_COORDINATOR and version in _ONE_COORDINATOR else _ROWS[ApiKey(key)]

    def nodes(self) -> Iterator[tuple[int, Address]]:
        """Broker ids with their addresses."""
        for row in self._each():
            if _id(row) >= 0 and row.host:
                yield _id(row), (row.host, row.port)

    def with_addresses(self, addresses: Mapping[int, Address]) -> bytes:
        """The frame with these addresses, by broker id; others stay."""
        if not any(addresses.get(node, address) != address for node, address in self.nodes()):
            return self._frame
        changed = [_at(row, addresses) for row in self._each()]
        message = self._message._replace(**{self._rows: changed}) if self._rows else changed[0]
        payload = self._frame[4 : 4 + self._start] + messages.encode(message, self._version)
        return len(payload).to_bytes(4, "big") + payload

    def _each(self) -> list[Any]:
        return list(getattr(self._message, self._rows) or ()) if self._rows else [self._message]


def _id(row: Any) -> int:
    node: int = row.broker_id if "broker_id" in row._fields else row.node_id
    return node


def _at(row: Any, addresses: Mapping[int, Address]) -> Any:
    if _id(row) < 0 or _id(row) not in addresses:
        return row
    host, port = addresses[_id(row)]
    return row._replace(host=host, port=port)
