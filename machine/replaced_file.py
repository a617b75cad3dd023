"""Replaces files atomically: a reader finds the old or the new content, even after a crash.

The new content is written to a temporary file in the same folder, `.<name>.<12 hex digits>.tmp`, which is then renamed. Each write uses a
new random name, so concurrent writes by several threads or processes do not interfere: the last one wins. A crash may leave a temporary
file, which readers ignore. `remove_temporaries` removes them if nobody else writes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".tmp"


def temporary_path(path: str | Path) -> Path:
    """A new temporary path in the folder of `path`."""
    folder, name = os.path.split(path)
    return Path(folder, f".{name}.{secrets.token_hex(6)}{TEMPORARY}")


@contextmanager
def replacing(path: str | Path, *, flush: bool = False, mode: int | None = None) -> Iterator[Path]:
    """A context with a temporary path for the new content. At its end the temporary file is renamed to `path`; after an exception it is
    removed.

    `flush`: force the file to disk first, so that it survives a power loss. Raises OSError with `path`.
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
    """Replace the content of a file by `data`. `flush`: force it to disk, so that it survives a power loss. Raises OSError."""
    with replacing(path, flush=flush, mode=mode) as temporary:
        temporary.write_bytes(data)


def remove_temporaries(folder: str | Path, names: Collection[str]) -> None:
    """Remove temporary files that unfinished writes of these files left, including Apache Kafka's `<name>.tmp`. Nobody may write these
    files now.
    """
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
