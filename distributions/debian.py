"""Small Debians in the user's cache folder, made with debootstrap from the mirror that it knows (about a minute, root only)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from klamm.machine.cache_folder import cache_folder


def small_debian(name: str, suite: str, packages: str, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """The folder of a Debian with these packages (separated by commas), made and finished if it is not there.

    Raises subprocess.CalledProcessError, OSError; then nothing stands under its name.
    """
    folder = cache_folder() / "debian" / f"{suite}-{name}"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", suite, str(unfinished)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        finish(unfinished)
        unfinished.rename(folder)
    return folder
