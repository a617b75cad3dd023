"""The config that a misspelt config of a topic may stand for. Imported only after a mistake."""

from __future__ import annotations

import re

_UNKNOWN_CONFIG = re.compile(r"Unknown topic config name: (?P<name>[\w.-]+)$")


def with_config_suggestion(text: str) -> str:
    """The text of an error. If it ends with an unknown config of a topic, a similar config is added."""
    unknown = _UNKNOWN_CONFIG.search(text)
    if unknown is None:
        return text
    from klamm.configs.tables.broker import TOPICS
    from klamm.protocol.errors import did_you_mean

    return text + did_you_mean(unknown["name"], TOPICS)
