"""The place of a lake: what is stored there has a name, relative to the lake, with `/` between its words.

Only this module, the log of the tables (`manifest.py`), the writers of parts (`table_parts.py`, `row_groups.py`) and the lock of a lake
(`folder.py`) know that a lake is a folder. All other code says what it wants by name, or gives an address from here to a reader or a writer
of Parquet. The journal is the brokers': its folders are known to `klamm.journal`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from klamm.machine.replaced_file import replace_file, temporary_path


class Store:
    """Reads, lists, puts and deletes what is in a lake. What is put is there as a whole, or not at all. Methods raise OSError."""

    def __init__(self, lake: Path | str) -> None:
        self._lake = Path(lake)

    def __str__(self) -> str:
        return str(self._lake)

    def read(self, name: str) -> bytes | None:
        """The content; None if there is nothing of this name."""
        try:
            return (self._lake / name).read_bytes()
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """Whether there is something of this name, or below it."""
        return (self._lake / name).exists()

    def names(self, below: str, suffix: str = "") -> list[str]:
        """The names below this one that end so, in order."""
        found = ((Path(folder), names) for folder, _, names in os.walk(self._lake / below))
        return sorted(str((folder / name).relative_to(self._lake)) for folder, names in found for name in names if name.endswith(suffix))

    def put(self, name: str, data: bytes) -> None:
        """Store under this name, also in place of what was there."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, flush=False)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Store under this name; False if there is something already, which stays. Of several who try, one succeeds."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(path)
        try:
            temporary.write_bytes(data)
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def delete(self, name: str) -> None:
        """Remove what has this name, or is below it, and the folders of brokers and runs that are empty then; nothing may be there."""
        path = self._lake / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        for parent in path.parents:
            if parent == self._lake or not parent.name.startswith(("run=", "node=")) or not parent.is_dir() or any(parent.iterdir()):
                return
            parent.rmdir()

    def address(self, name: str) -> Path:
        """Where readers and writers of Parquet find it; also a part, which may be a folder."""
        return self._lake / name

    def folder(self, name: str) -> Path:
        """The same, where nothing has to be yet and Spark wants a folder."""
        path = self._lake / name
        path.mkdir(parents=True, exist_ok=True)
        return path
