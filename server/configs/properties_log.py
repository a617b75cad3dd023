"""Logs properties that are ignored or unknown, once at the start of a broker."""

from __future__ import annotations

import logging

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.tables.broker import BROKER, SWITCHES

log = logging.getLogger(__name__)


def log_properties(config: BrokerConfig, whose: str) -> None:
    """List the properties of Kafka that have no effect here, and warn of unknown ones. Every line begins with `whose`."""
    if config.without_meaning:
        log.info("%sproperties of Kafka that are ignored: %s", whose, ", ".join(config.without_meaning))
    for name in config.misplaced:
        log.warning("%sproperty %s is ignored: it can only be set for all brokers, as a dynamic config", whose, name)
    for name in config.unknown:
        import difflib

        similar = difflib.get_close_matches(name, [*BROKER, *SWITCHES], n=1, cutoff=0.8)
        log.warning("%sproperty %s is unknown%s", whose, name, f"; did you mean {similar[0]}?" if similar else "")
