"""What a broker's journal says of the broker itself: its start and end, the APIs that it offers, configs that change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.apis import Api
from klamm.server.journal.journaling import Journal, to_text


class BrokerEvents:
    """Rows about one broker. Each JSON is made at once: they are few."""

    def __init__(self, journal: Journal, broker_id: int) -> None:
        self._event = journal.event
        self._broker_id = broker_id

    def started(self, config: BrokerConfig, version: str) -> None:
        """The journal is open; `version` is that of this program."""
        what = {
            "broker": self._broker_id,
            "version": version,
            "ibp": str(config.get("inter.broker.protocol.version")),
            "listeners": [listener.name for listener in config.listeners],
            "zookeeper": config.get("zookeeper.connect"),
        }
        self._event("broker_started", broker=self._broker_id, output=to_text(what))

    def offers(self, listeners: Iterable[str], apis: Collection[Api]) -> None:
        """ApiVersions has these on these listeners."""
        what = to_text({"apis": [[int(api.key), api.min_version, api.max_version] for api in apis]})
        for name in listeners:
            self._event("advertised", input=to_text({"listener": name}), output=what)

    def config_changed(self, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]) -> None:
        """Stored configs of an entity changed, as `DynamicConfigs` says it. Values are not written down."""
        self._event(
            "config_change", input=to_text({"entity_type": kind, "entity": name}), output=to_text({"keys": sorted(changed)})
        )

    def stopped(self) -> None:
        """The broker has ended in order."""
        self._event("broker_stopped", broker=self._broker_id)
