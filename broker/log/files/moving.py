"""Copies of logs, for a move from one log directory to another. Everything here runs in a thread.

A log is copied while it is written: only its segments, piece by piece, until little is left. Then its writer is held, the
rest and all other files are copied, everything is forced to disk, and the copy gets the log's name. Apache Kafka copies by an internal
fetcher; the folders look the same meanwhile and afterwards.

Until the old folder has its name of a folder to delete, there are two of the log. Both have a file `klamm.move` then, which says that they
are the two sides of one move: a start after a crash goes on with the new one (`LogDirectories`). Two folders without it are not touched.
"""

from __future__ import annotations

import os
import shutil

from klamm.broker.log.files import marker_files, names
from klamm.broker.log.files.log_files import remove, sync_folder, write_file

PIECE = 8 << 20
NOT_COPIED = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX, ".tmp", marker_files.MOVE)


class SourceUnreadable(Exception):
    """The log cannot be read where it is now."""


def copy_segments(source: str, target: str, most: int | None = None) -> int:
    """Copy the segments of a log as far as they are not in `target` yet; segments that are gone go there too. The number of bytes copied,
    not more than `most`.

    Segments may only have grown since the last copy. Raises SourceUnreadable, OSError of the target.
    """
    os.makedirs(target, exist_ok=True)
    present = {name for name in _listed(source) if name.endswith(names.LOG_SUFFIX)}
    for name in os.listdir(target):
        if name not in present:
            os.unlink(f"{target}/{name}")
    copied = 0
    for name in sorted(present):
        if copied == most:
            break
        copied += _copy_rest(f"{source}/{name}", f"{target}/{name}", None if most is None else most - copied)
    return copied


def finish_copy(source: str, target: str, final: str, unique: str) -> None:
    """Copy what is left of a log that is not written any more, force the copy to disk and give it its name.

    `unique` is the id of the move. Raises SourceUnreadable, also when the old folder cannot be written; OSError of the target.
    """
    copy_segments(source, target)
    for name in _listed(source):
        if not name.endswith((*NOT_COPIED, names.LOG_SUFFIX)):
            _copy_rest(f"{source}/{name}", f"{target}/{name}")
    write_file(f"{target}/{marker_files.MOVE}", marker_files.encode_move(unique, is_new=True))
    for name in os.listdir(target):
        descriptor = os.open(f"{target}/{name}", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(target)
    try:
        write_file(f"{source}/{marker_files.MOVE}", marker_files.encode_move(unique, is_new=False), flush=True)
        sync_folder(source)
    except OSError as error:
        raise SourceUnreadable(str(error)) from error
    os.rename(target, final)
    sync_folder(os.path.dirname(final))


def forget_move(folder: str) -> None:
    """The move of this log is over, or did not happen."""
    remove(f"{folder}/{marker_files.MOVE}")


def remove_copy(target: str) -> None:
    """Drop a copy that is not finished."""
    shutil.rmtree(target, ignore_errors=True)


def _listed(source: str) -> list[str]:
    try:
        return os.listdir(source)
    except OSError as error:
        raise SourceUnreadable(str(error)) from error


def _copy_rest(source: str, target: str, most: int | None = None) -> int:
    """Append what the target lacks, at most so much; the number of bytes."""
    try:
        reading = os.open(source, os.O_RDONLY)
    except FileNotFoundError:
        return 0  # deleted meanwhile
    except OSError as error:
        raise SourceUnreadable(str(error)) from error
    try:
        with open(target, "ab", buffering=0) as writing:
            position = begin = writing.tell()
            while True:
                size = PIECE if most is None else min(PIECE, most - (position - begin))
                try:
                    piece = os.pread(reading, size, position)
                except OSError as error:
                    raise SourceUnreadable(str(error)) from error
                if not piece:
                    return position - begin
                written = 0
                while written < len(piece):
                    written += writing.write(piece[written:])
                position += len(piece)
    finally:
        os.close(reading)
