"""Rows of a journal about the broker itself: its start and stop, the APIs that it offers, changes of configs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.apis import Api
from klamm.server.journal.journaling import Frames, Journal, to_text


class BrokerEvents:
    """Writes the rows about one broker. Their JSON is made at once, because there are few of them."""

    def __init__(self, journal: Journal, frames: Frames, broker_id: int) -> None:
        self._event = journal.event
        self._request_seq = frames.request_seq
        self._broker_id = broker_id

    def started(self, config: BrokerConfig, version: str) -> None:
        """The broker has started and the journal is open; `version` is the version of Klamm."""
        what = {
            "broker": self._broker_id,
            "version": version,
            "ibp": str(config.get("inter.broker.protocol.version")),
            "listeners": [listener.name for listener in config.listeners],
            "zookeeper": config.get("zookeeper.connect"),
        }
        self._event("broker_started", broker=self._broker_id, output=to_text(what))

    def offers(self, listeners: Iterable[str], apis: Collection[Api]) -> None:
        """These listeners offer these APIs in ApiVersions."""
        what = to_text({"apis": [[int(api.key), api.min_version, api.max_version] for api in apis]})
        for name in listeners:
            self._event("advertised", input=to_text({"listener": name}), output=what)

    def config_changed(self, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]) -> None:
        """The stored configs of an entity have changed; the arguments are those of `DynamicConfigs`. Values are not journaled."""
        self._event(
            "config_change", input=to_text({"entity_type": kind, "entity": name}), output=to_text({"keys": sorted(changed)})
        )

    def coordinator_phase(self, phase: Any) -> None:
        """A coordinator of this broker reached a phase. Commits of offsets have their frames, and no rows."""
        name = type(phase).__name__
        if name != "OffsetsAppended":
            self._event("coordinator_phase", broker=self._broker_id, input=to_text({"name": name, **dataclasses.asdict(phase)}))

    def fault_hit(self, number: int, effect: Mapping[str, object], connection: str, correlation_id: int) -> None:
        """A fault hit a request of this connection."""
        cause = self._request_seq(connection, correlation_id)
        self._event("fault_injected", broker=self._broker_id, cause_seq=cause, input=to_text({"name": f"fault {number}", **effect}))

    def stopped(self) -> None:
        """The broker has stopped normally."""
        self._event("broker_stopped", broker=self._broker_id)
