"""The place of a lake, or of a copy of it in an object store.

What is stored there has a name, relative to the lake, with `/` between its words. Only this module and the lock of a lake (`folder.py`)
know that a lake is a folder; the log of the tables (`delta_log.py`) gives its address to delta-rs. All other code says what it wants by
name, or gives an address from here to a reader or a writer of Parquet. The journal is the brokers': its folders are known to
`klamm.journal`.

What is put into an object store has its name when the upload is complete; nothing is renamed. Credentials and the endpoint come from the
usual variables, such as those of AWS.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm.machine.replaced_file import replace_file, replacing, temporary_path
from klamm.pipeline.lake.folder import PipelineFailed

if TYPE_CHECKING:
    import pyarrow as pa


class NewFile:
    """A file that grows. It has its name when it is complete."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._unfinished = path, temporary_path(path)
        self.sink: pa.NativeFile = pa.OSFile(str(self._unfinished), "wb")

    def complete(self) -> int:
        """Close the file and name it; returns its size in bytes."""
        size = int(self.sink.tell())
        self.sink.close()
        self._unfinished.replace(self._path)
        return size


class Store:
    """Reads, lists, puts and deletes what is in a lake. What is put is there as a whole, or not at all. Methods raise OSError."""

    def __new__(cls, lake: Path | str) -> Store:
        """For a URL such as `s3://bucket/lake` it is an ObjectStore."""
        return super().__new__(ObjectStore if "://" in str(lake) else cls)

    def __init__(self, lake: Path | str) -> None:
        self._lake = Path(lake)

    def __str__(self) -> str:
        return str(self._lake)

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

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

    def folders(self, below: str) -> list[str]:
        """The names of the folders that are directly below this one, in order."""
        folder = self._lake / below
        return sorted(f"{below}/{path.name}" for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def size(self, name: str) -> int | None:
        """The number of bytes; None if there is nothing of this name."""
        try:
            return (self._lake / name).stat().st_size
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Store under this name, also in place of what was there."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, flush=False)

    def delete(self, name: str) -> None:
        """Remove what has this name, or is below it, and the folders of runs and their parts that are empty then; nothing may be there."""
        path = self._lake / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        for parent in path.parents:
            is_of_run = parent != self._lake and parent.name.startswith(("run=", "node=", "batch="))
            if not is_of_run or not parent.is_dir() or any(parent.iterdir()):
                return
            parent.rmdir()

    def copy(self, name: str, file: Path) -> None:
        """Store a file of this machine under this name."""
        path = self._lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            shutil.copyfile(file, temporary)

    def create(self, name: str) -> NewFile:
        """A new file, for a writer of Parquet."""
        return NewFile(self._lake / name)

    def address(self, name: str) -> Path:
        """Where readers and writers of Parquet find it."""
        return self._lake / name


class ObjectStore(Store):
    """A copy of a lake in an object store, by obstore. Methods raise PipelineFailed with one line that names the copy."""

    def __init__(self, lake: Path | str) -> None:
        self._url = str(lake).rstrip("/")

    def __str__(self) -> str:
        return self._url

    def read(self, name: str) -> bytes | None:
        """The content; None if there is no such object."""
        import obstore

        with self._opened() as store:
            try:
                return bytes(obstore.get(store, name).bytes())
            except FileNotFoundError:
                return None

    def names(self, below: str, suffix: str = "") -> list[str]:
        """The names below this one that end so, in order."""
        import obstore

        with self._opened() as store:
            found = [one["path"] for some in obstore.list(store, prefix=below or None) for one in some]
        return sorted(name for name in found if name.endswith(suffix))

    def copy(self, name: str, file: Path) -> None:
        """Store a file of this machine under this name."""
        import obstore

        with self._opened() as store:
            obstore.put(store, name, file)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        try:
            yield from_url(self._url)
        except (BaseError, FileNotFoundError) as problem:
            raise PipelineFailed(f"{self._url}: {str(problem).splitlines()[0]}") from problem
