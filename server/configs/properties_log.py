"""What is unusual in a broker's properties, said once at its start."""

from __future__ import annotations

import difflib
import logging

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.tables.broker import BROKER, SWITCHES

log = logging.getLogger(__name__)


def log_properties(config: BrokerConfig, whose: str) -> None:
    """List those of Kafka's that change nothing here, and warn of each that nobody knows; `whose` begins every line."""
    if config.without_meaning:
        log.info("%signored properties of Kafka: %s", whose, ", ".join(config.without_meaning))
    for name in config.misplaced:
        log.warning("%sproperty %s is ignored: it is set for all brokers at once, as a dynamic config", whose, name)
    for name in config.unknown:
        similar = difflib.get_close_matches(name, [*BROKER, *SWITCHES], n=1, cutoff=0.8)
        log.warning("%sproperty %s is unknown%s", whose, name, f"; did you mean {similar[0]}?" if similar else "")
