"""Whether a client of librdkafka still has contact with brokers."""

from __future__ import annotations

import json
import time

from confluent_kafka import KafkaError

LOST_S = 30.0
STATISTICS_MS = 5000
"""How often librdkafka says something of itself (`statistics.interval.ms`)."""
_NOT_ASKED = "INIT"
"""The state of a broker to which librdkafka has no connection and makes none."""


class Contact:
    """Whether a client of librdkafka has contact with a broker.

    A response to Metadata without brokers, as one that has just started sends it, lets librdkafka 2.16 drop all its brokers for good
    (confluentinc/librdkafka issue 5301). It then tells that all brokers are down; a connection to a coordinator can go on. Or it learns of
    some of them again, but connects to none: a member then sends nothing for the rest of the run, and tells nothing.
    """

    def __init__(self) -> None:
        self._lost_at_s: float | None = None
        self._asks_nobody_since_s: float | None = None
        self.known = "nothing is known of its brokers"
        """What librdkafka said of itself last, as text."""

    @property
    def callbacks(self) -> dict[str, object]:
        """Settings of the client, with which it hears of it."""
        return {"error_cb": self.told, "stats_cb": self.told_statistics}

    def begun(self) -> None:
        """A new client takes the place of the one before."""
        self._lost_at_s = self._asks_nobody_since_s = None

    def told(self, error: KafkaError) -> None:
        """An error that is about no partition: the client's `error_cb`."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._lost_at_s is None:
            self._lost_at_s = time.monotonic()

    def told_statistics(self, text: str) -> None:
        """What librdkafka says of itself from time to time: the client's `stats_cb`."""
        said = json.loads(text)
        brokers = said["brokers"].values()
        states = ", ".join(f"{'coordinator' if each['nodeid'] < 0 else each['nodeid']} {each['state']}" for each in brokers) or "none"
        group = said.get("cgrp", {})
        self.known = f"brokers: {states}; group: {group.get('state')}, {group.get('join_state')}"
        if any(each["state"] != _NOT_ASKED for each in brokers):
            self._asks_nobody_since_s = None
        elif self._asks_nobody_since_s is None:
            self._asks_nobody_since_s = time.monotonic()

    def made(self) -> None:
        """A record came."""
        self._lost_at_s = None

    @property
    def is_lost(self) -> bool:
        """Whether it has told that all brokers are down, and no record came since, or that it asks nobody."""
        return self._lost_at_s is not None or self._asks_nobody_since_s is not None

    @property
    def is_lost_for_good(self) -> bool:
        """Whether it has been lost for longer than LOST_S."""
        since_s = [each for each in (self._lost_at_s, self._asks_nobody_since_s) if each is not None]
        return bool(since_s) and time.monotonic() - min(since_s) > LOST_S
