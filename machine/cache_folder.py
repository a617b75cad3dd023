"""Klamm's folder in the user's cache: whatever is there can be deleted, and is made again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.replaced_file import replace_file


def cache_folder(subject: str = "", environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for what one subject keeps (`spark`, `reference`), or the folder of all of them. It may not exist."""
    named = environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "klamm" / subject


def keep(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that has its name only when it is complete; other processes may write the same file at this moment. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data, flush=False, mode=mode)
