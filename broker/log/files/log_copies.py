"""Copies logs for moves between log directories. Everything here runs in a thread.

A log is copied while it is written: first only its segments, piece by piece, until little is left. Then its writer is held, the rest and
all other files are copied, everything is forced to disk, and the copy gets the name of the log. Apache Kafka copies with an internal
fetcher; the folders look the same during and after the move.

Until the old folder is renamed for deletion, there are two folders of the log. Both have a file `klamm.move`, which marks them as the two
sides of one move: a start after a crash continues with the new one (`LogDirectories`). Two folders without this file are not touched.
"""

from __future__ import annotations

import os
import shutil

from klamm.broker.log.files import marker_files, names
from klamm.machine.system_calls import remove, sync_folder, write_file

PIECE = 8 << 20
NOT_COPIED = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX, ".tmp", marker_files.MOVE)


class SourceUnreadable(Exception):
    """The source folder of a move cannot be read."""


def copy_segments(source: str, target: str, most: int | None = None) -> int:
    """Copy parts of segments that are not in `target` yet, at most `most` bytes; remove segments there that were deleted in the source.
    Returns the number of bytes copied.

    Segments may only have grown since the last copy. Raises SourceUnreadable, OSError for the target.
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
    """Copy the rest of a log that is not written any more, force the copy to disk and give it its name. Its segments are as old as before.

    `unique` is the id of the move. Raises SourceUnreadable, also if the old folder cannot be written; OSError for the target.
    """
    copy_segments(source, target)
    for name in _listed(source):
        if name.endswith(names.LOG_SUFFIX):
            written_ns = os.stat(f"{source}/{name}").st_mtime_ns
            os.utime(f"{target}/{name}", ns=(written_ns, written_ns))
        elif not name.endswith(NOT_COPIED):
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
    """Remove the file of a move from a folder, because the move is complete or did not happen."""
    remove(f"{folder}/{marker_files.MOVE}")


def remove_copy(target: str) -> None:
    """Remove an unfinished copy."""
    shutil.rmtree(target, ignore_errors=True)


def _listed(source: str) -> list[str]:
    try:
        return os.listdir(source)
    except OSError as error:
        raise SourceUnreadable(str(error)) from error


def _copy_rest(source: str, target: str, most: int | None = None) -> int:
    """Append the part that the target does not have yet, at most `most` bytes; returns the number of bytes."""
    try:
        reading = os.open(source, os.O_RDONLY)
    except FileNotFoundError:
        return 0  # deleted in the meantime
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
