"""Klamm's folder in the user's cache. Everything in it can be deleted and will be created again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.replaced_file import replace_file


def cache_folder(subject: str = "", environ: Mapping[str, str] = os.environ) -> Path:
    """The cache folder of one subject (`spark`, `reference`), or the parent of all. It may not exist."""
    named = environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "klamm" / subject


def keep(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: it gets its name when it is complete. Other processes may write the same file at the same time. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data, flush=False, mode=mode)
