"""Names that a misspelt name may stand for. Imported only after a mistake."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_UNKNOWN_CONFIG = re.compile(r"Unknown topic config name: (?P<name>[\w.-]+)$")


def suggestion(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` with the most similar of these names, in any case; empty if none is similar."""
    by_lower = {each.lower(): each for each in names}
    similar = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[similar[0]]}?" if similar else ""


def with_config_suggestion(text: str) -> str:
    """The text of an error. If it ends with an unknown config of a topic, a similar config is added."""
    unknown = _UNKNOWN_CONFIG.search(text)
    if unknown is None:
        return text
    from klamm.configs.tables.topic import TOPIC

    return text + suggestion(unknown["name"], (key.name for key in TOPIC))
