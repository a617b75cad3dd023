"""What the pipeline keeps in the user's cache folder: whatever is there can be deleted, and is made again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.replaced_file import replace_file


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where launchers, class archives and the like are kept: a folder of the user's cache."""
    named = environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "klamm" / "spark"


def keep(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that has its name only when it is whole; others may write the same one at this moment. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data, flush=False, mode=mode)
