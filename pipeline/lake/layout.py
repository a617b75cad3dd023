"""Which tables and columns silver has in a lake: those of this Klamm, or those of an older one, which have to be made again from bronze."""

from __future__ import annotations

import json
from contextlib import suppress

from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import SILVER

PLACE = "bronze/silver.json"
"""It is in bronze, because silver is made again if bronze is."""
LAYOUT = 5
"""The version of the columns of silver."""
_REMOVED = b"{}"


def is_current(lake: Lake) -> bool:
    """Silver was made by this Klamm."""
    return Store(lake).read(PLACE) == _own()


def is_older(lake: Lake) -> bool:
    """Another Klamm made silver."""
    return Store(lake).read(PLACE) not in (None, _own())


def is_being_removed(lake: Lake) -> bool:
    """Silver and gold are partly gone: a run that removes them was killed."""
    return Store(lake).read(PLACE) == _REMOVED


def remove(lake: Lake) -> None:
    """Write down that silver and gold are going to be removed."""
    Store(lake).put(PLACE, _REMOVED)


def keep(lake: Lake) -> None:
    """Write down that silver is made by this Klamm."""
    Store(lake).put(PLACE, _own())


def refuse_older(lake: Lake) -> None:
    """Raise PipelineFailed if silver has the columns of another Klamm, which lack what rules read."""
    if is_older(lake):
        raise PipelineFailed(f"another version of Klamm made the tables of {lake}: klamm pipeline run {lake}")


def refuse_newer(lake: Lake) -> None:
    """Raise PipelineFailed if a newer Klamm made the tables."""
    content, layout = Store(lake).read(PLACE), None
    with suppress(ValueError, AttributeError):
        layout = None if content is None else json.loads(content).get("layout")
    if isinstance(layout, int) and layout > LAYOUT:
        raise PipelineFailed(f"a newer Klamm made the tables of {lake}: they have layout {layout}, and this Klamm knows {LAYOUT}")


def _own() -> bytes:
    return json.dumps({"silver": [table.name for table in SILVER], "layout": LAYOUT}).encode()
