"""What clients requested and what happened in a cluster for tests, since a test began or since a wait began."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from klamm.control import views
from klamm.control.history import Exchange
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.testing.arguments import RequestFilter
from klamm.testing.cluster_text import cluster_text, controller_text
from klamm.testing.cluster_verbs import ClusterVerbs
from klamm.testing.request import Request
from klamm.testing.steered_cluster import Steered
from klamm.testing.transcript import timeline
from klamm.testing.waits import Place

__tracebackhide__ = True  # pytest leaves out the lines of this module

SHOWN_REQUESTS = 20


class ClusterRequests(ClusterVerbs):
    """A running cluster, as `AsyncCluster` has it."""

    def __init__(self, cluster: Steered) -> None:
        super().__init__(cluster)
        self._suffix = secrets.token_hex(3)
        self.begun = self.here()
        """When this object was made."""

    def describe(self) -> str:
        """Brokers, controller, clock, topics, groups, faults and holds as text."""
        words = set(re.findall(r"[\w.-]+", "\n".join(self.transcript())))
        named = words | {word.rpartition("-")[0] for word in words}  # a topic is there with the number of a partition

        def rank(name: str) -> int:
            """First what the test has made, then what its requests named."""
            return self._rank(name) and (1 if name in named else 2)

        return self._now(cluster_text(self._control, rank))

    def _rank(self, name: str) -> int:
        """0 for the topics and groups of the test, 1 for others."""
        return int(name not in self._created and not name.endswith(self._suffix))

    def requests(self, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """Requests of clients since this object was made, oldest first: those that match. Raises Refused.

        The cluster keeps the last 20,000 requests or 64 MB; of older ones the last 2,000 that had an error. `error="any"` is any error. An
        API, error or broker that does not exist is refused.
        """
        return [Request(each) for each in self._exchanges(**wanted)]

    def _all_exchanges(self, **wanted: Any) -> list[Exchange]:
        return self._now(self._control.history.exchanges(**wanted))

    def _events(self, since: int) -> list[JsonObject]:
        async def events() -> list[JsonObject]:
            return self._control.events.since(since)

        return self._now(events())

    def _exchanges(self, **wanted: Unpack[RequestFilter]) -> list[Exchange]:
        wanted["after"] = max(self.begun.request, wanted.get("after", 0))
        try:
            return self._all_exchanges(**wanted)[::-1]
        except TypeError:
            raise Refused(f"requests are filtered by {', '.join(RequestFilter.__annotations__)}") from None

    def here(self) -> Place:
        """The present place in time."""
        return Place(time.time_ns() // 1_000_000, self._control.history.last(), self._control.events.total)

    def transcript(self, since: Place | None = None) -> list[str]:
        """Requests of clients and events since then, in order; without `since` since this object was made."""
        since = self.begun if since is None else since
        exchanges = self._all_exchanges()[::-1]
        older = {each.peer for each in exchanges if each.number <= since.request}
        shown = [each for each in exchanges if each.number > since.request]
        return timeline(shown, self._events(since.event), since.at_ms, self._topic_of, rank=self._rank, older=older)

    async def wait_text(self, what: str, timeout_s: float, since: Place, view: Callable[[], Awaitable[str]] | None = None) -> str:
        """The text of a wait that timed out."""
        try:
            state = self.describe() if view is None else f"{await view()}\n{await self._then(controller_text(self._control))}"
        except Exception as error:  # noqa: BLE001 a state that cannot be shown must not hide that the wait timed out
            state = f"the state cannot be shown: {error!r}"
        exchanges = self._all_exchanges(after=since.request)
        lines = timeline(exchanges[:SHOWN_REQUESTS][::-1], (), since.at_ms, self._topic_of)
        events = timeline((), self._events(since.event), since.at_ms, rank=self._rank)
        parts = [f"not within {timeout_s:g} s: {what}", "present state:", *(f"  {line}" for line in state.splitlines())]
        if lines:
            parts.append(f"requests of clients since the wait began (the last {min(len(exchanges), SHOWN_REQUESTS)} of {len(exchanges)}):")
            parts += lines
        else:
            parts.append("no client sent a request since the wait began")
        parts += ["events since the wait began:", *events] if events else ["no event since the wait began"]
        return "\n".join(parts)

    def _topic_of(self, topic_id: bytes) -> str:
        return self._control.history.topic_name(topic_id) or views.uuid(topic_id) or "?"
