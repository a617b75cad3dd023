"""A client of the control API for threads, with the standard library alone.

It connects directly: a proxy of the environment is not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

from klamm.control.json_object import JsonObject

TIMEOUT_S = 60.0
_OPENER = build_opener(ProxyHandler({}))


class ControlFailed(Exception):
    """The control API refused a request, or is none. The message is one line."""


class ControlUnreachable(ControlFailed):
    """Nothing answers at the address."""


class ControlClient:
    """The control API at an address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._token = token

    def get(self, *path: object, timeout_ms: int | None = None, **query: object) -> JsonObject:
        """The response to a GET. A query parameter that is None is left out. `timeout_ms` is how long the API may wait. Raises
        ControlFailed.
        """
        return self._send("GET", path, query={"timeout_ms": timeout_ms, **query}, wait_s=(timeout_ms or 0) / 1000)

    def post(self, *path: object, body: Mapping[str, object] | None = None) -> JsonObject:
        """The response to a POST. A field of the body that is None is left out. Raises ControlFailed."""
        return self._send("POST", path, {name: value for name, value in (body or {}).items() if value is not None})

    def delete(self, *path: object) -> JsonObject:
        """The response to a DELETE. Raises ControlFailed."""
        return self._send("DELETE", path)

    def events(self, after: int) -> Iterator[JsonObject]:
        """Events with higher numbers, as they happen: number, kind, data. It has no end. Raises ControlFailed."""
        number, kind = 0, ""
        with self._open("GET", "/events", {"Last-Event-ID": str(after)}, None, None) as response:
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "event":
                    kind = value
                elif name == "data":
                    yield {"number": number, "kind": kind, "data": json.loads(value)}

    def _send(
        self, method: str, path: tuple[object, ...], body: Mapping[str, object] | None = None, *,
        query: Mapping[str, object] | None = None, wait_s: float = 0,
    ) -> JsonObject:
        place = "".join(f"/{quote(str(part), safe='')}" for part in path)
        if given := {name: _text(value) for name, value in (query or {}).items() if value is not None}:
            place += f"?{urlencode(given)}"
        data = json.dumps(body).encode() if body else None
        with self._open(method, place, {"Content-Type": "application/json"}, data, TIMEOUT_S + wait_s) as response:
            text = response.read()
        value = _decoded(text)
        if not isinstance(value, dict):
            raise ControlFailed(f"{self._url} is not a control API of Klamm")
        return value

    @contextmanager
    def _open(
        self, method: str, place: str, headers: Mapping[str, str], data: bytes | None, timeout_s: float | None
    ) -> Iterator[IO[bytes]]:
        if self._token is not None:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        try:
            request = Request(f"{self._url}{place}", data, dict(headers), method=method)
            with _OPENER.open(request, timeout=timeout_s) as response:
                yield response
        except HTTPError as refused:
            value = _decoded(refused.read())
            text = value.get("error") if isinstance(value, dict) else None
            raise ControlFailed(text or f"{self._url} is not a control API of Klamm: HTTP status {refused.code}") from None
        except (OSError, ValueError) as failure:
            reason = failure.reason if isinstance(failure, URLError) else failure
            said = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
            raise ControlUnreachable(f"cannot reach the control API at {self._url}: {said}") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
