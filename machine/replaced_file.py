"""Files that are replaced as a whole: a reader finds the old content or the new one, also after a crash.

The new content is written under a temporary name beside the file, `.<name>.<12 hex digits>.tmp`, which then becomes the file's name. Each
write draws a name of its own, so that writes of one file by several threads or processes never meet: one of them is the last. A crash may
leave a temporary file behind, which no reader takes for anything; `remove_temporaries` cleans up where nobody else writes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".tmp"


def temporary_path(path: str | Path) -> Path:
    """A name beside `path` that no other write has."""
    folder, name = os.path.split(path)
    return Path(folder, f".{name}.{secrets.token_hex(6)}{TEMPORARY}")


@contextmanager
def replacing(path: str | Path, *, flush: bool = False, mode: int | None = None) -> Iterator[Path]:
    """A temporary name to write the new content to. What is there at the end becomes `path`; after an exception it is removed.

    `flush`: the machine may lose its power. Raises OSError, which names `path`.
    """
    temporary = temporary_path(path)
    try:
        yield temporary
        if mode is not None:
            temporary.chmod(mode)
        if flush:
            force(temporary)
        temporary.replace(path)
    except BaseException as problem:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.filename == str(temporary):
            problem.filename, problem.filename2 = str(path), None
        raise


def replace_file(path: str | Path, data: bytes, *, flush: bool, mode: int | None = None) -> None:
    """Make `data` the content of a file. `flush`: the machine may lose its power. Raises OSError."""
    with replacing(path, flush=flush, mode=mode) as temporary:
        temporary.write_bytes(data)


def remove_temporaries(folder: str | Path, names: Collection[str]) -> None:
    """Remove what unfinished writes of these files left. Only while nobody writes them. `<name>.tmp` is what Apache Kafka leaves."""
    for entry in os.listdir(folder):
        stem = entry.removesuffix(TEMPORARY)
        if stem != entry and (stem in names or (stem.startswith(".") and stem[1:].rpartition(".")[0] in names)):
            Path(folder, entry).unlink(missing_ok=True)


def force(path: str | Path) -> None:
    """Force a file, or the names in a folder, to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
