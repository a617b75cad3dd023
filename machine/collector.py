"""Settings of Python's garbage collector for a program that creates many objects and few cycles.

With the default thresholds the collector runs 60 times while the modules of a broker are imported. That is a tenth of the CPU of the
start, and it finds nothing. A message with ten thousand partitions consists of hundreds of thousands of small objects that live briefly
and have no cycles; with the default thresholds, the search for cycles among them costs as much as making them. The search stops everything
else, for some tens of milliseconds with these thresholds.
"""

from __future__ import annotations

import gc

THRESHOLDS = (400_000, 50, 20)


def collect_seldom() -> None:
    """Search for cycles after many more new objects than by default."""
    gc.set_threshold(*THRESHOLDS)


def keep_present_objects() -> None:
    """Never search the objects that exist now (code, tables). Unused cycles among them stay too: about a thousand objects after imports."""
    gc.freeze()
