"""Which tables and columns silver has in a lake: those of this Klamm, or those of an older one, which have to be made again from bronze."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from klamm.pipeline.lake.folder import CHECKPOINTS, PipelineFailed
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import SILVER

PLACE = f"{CHECKPOINTS}/place.json"
LAYOUT = 4
"""The version of the columns of silver."""


def is_current(lake: Path) -> bool:
    """Silver was made by this Klamm in the folder where the lake is now."""
    return _stored(lake) == {"path": str(lake), **_own()}


def keep(lake: Path) -> None:
    """Write down that silver is made by this Klamm, in this folder."""
    Store(lake).put(PLACE, json.dumps({"path": str(lake), **_own()}).encode())


def refuse_older(lake: Path) -> None:
    """Raise PipelineFailed if silver has the columns of another Klamm, which lack what rules read."""
    stored = _stored(lake)
    if stored is not None and {name: value for name, value in stored.items() if name != "path"} != _own():
        raise PipelineFailed(f"another version of Klamm made the tables of {lake}: klamm pipeline run {lake}")


def _own() -> dict[str, Any]:
    return {"silver": [table.name for table in SILVER], "layout": LAYOUT}


def _stored(lake: Path) -> dict[str, Any] | None:
    try:
        content = Store(lake).read(PLACE)
        stored: dict[str, Any] | None = None if content is None else json.loads(content)
    except (OSError, ValueError):
        return None
    return stored
