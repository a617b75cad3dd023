"""A request of a client with its response, decoded when somebody looks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from klamm.control.history import Exchange, as_json
from klamm.control.json_object import JsonObject
from klamm.testing.transcript import request_text


class Request:
    """A request that a broker received. `number` counts all requests of the cluster from 1."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.number = exchange.number
        self.at_ms = exchange.at_ms
        """Milliseconds since 1970."""
        self.broker = exchange.broker
        self.client_id = exchange.client_id
        self.peer = exchange.peer
        self.api = exchange.api
        self.version = exchange.version
        self.correlation_id = exchange.correlation_id

    @cached_property
    def request(self) -> Any:
        """The message, with the fields of Kafka's schema in snake case: `request.topics[0].name`. None if it cannot be decoded."""
        return self._exchange.decoded_request()

    @property
    def response(self) -> Any:
        """The message, None if there is none, or if it cannot be decoded."""
        return self._exchange.decoded_response()

    @property
    def payloads(self) -> tuple[bytes, bytes | None]:
        """Request and response as they were sent, without their lengths and without secrets."""
        return self._exchange.request, self._exchange.response

    @property
    def error(self) -> str | None:
        """The name of the first error in the response."""
        return self._exchange.error

    def as_json(self) -> JsonObject:
        """As the control API shows it."""
        return as_json(self._exchange)

    def __repr__(self) -> str:
        return f"<request {self.number}: {request_text(self._exchange)}>"
