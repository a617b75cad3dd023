"""Removes the logs from a log directory, to simulate that a broker has lost its disk."""

from __future__ import annotations

import os
import shutil

from klamm.broker.log.files import checkpoints, marker_files, names

_FILES = (
    checkpoints.RECOVERY_POINT_CHECKPOINT, checkpoints.LOG_START_OFFSET_CHECKPOINT, checkpoints.REPLICATION_OFFSET_CHECKPOINT,
    checkpoints.CLEANER_OFFSET_CHECKPOINT, marker_files.CLEAN_SHUTDOWN,
)


def remove_logs(directory: str) -> None:
    """Remove all logs and checkpoints from a directory that is not in use; everything else stays. Raises OSError."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir() and _is_log(entry.name):
            shutil.rmtree(entry.path)
        elif entry.name in _FILES:
            os.remove(entry.path)


def _is_log(name: str) -> bool:
    try:
        names.parse_folder(name)
    except names.NotALog:
        return False
    return True
