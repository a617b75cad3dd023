"""Small disks that can be filled: a tmpfs for each folder, in a mount namespace of their own (Linux, `unshare`).

A command that runs `in_namespace` sees the disks, and so do its child processes; `fill` and `free` enter the namespace of such a process.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FILLER = "filler"
_MOUNT = 'size=$1; shift; while [ "$1" != -- ]; do mount -t tmpfs -o size="$size" tmpfs "$1" || exit 1; shift; done; shift; exec "$@"'


def can_mount() -> bool:
    """Whether this user may mount a disk in a namespace here."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    return subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode == 0


def in_namespace(folders: Sequence[Path], size: int, command: Sequence[str]) -> list[str]:
    """The command that mounts a disk of `size` bytes on each of these folders and becomes `command`, as the same process."""
    shell = ["sh", "-c", _MOUNT, "small-disks", str(size), *map(str, folders), "--"]
    return ["unshare", "--map-root-user", "--mount", *shell, *command]


def inside(pid: int, command: Sequence[str]) -> list[str]:
    """The command that runs `command` where the process `pid` sees its disks, as the same process."""
    return ["nsenter", f"--target={pid}", "--user", "--preserve-credentials", "--mount", *command]


def fill(pid: int, folder: Path, size: int) -> None:
    """Write to the disk of this size until no byte is free. Raises OSError if it is not full then."""
    command = inside(pid, ["dd", "if=/dev/zero", f"of={folder / FILLER}", f"count={(2 * size >> 20) + 1}", "bs=1M"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No space left" not in done.stderr:
        raise OSError(f"the disk {folder} is not full: {done.stderr.strip()}")


def free(pid: int, folder: Path) -> None:
    """What `fill` took is free again."""
    subprocess.run(inside(pid, ["rm", "-f", str(folder / FILLER)]), check=True, capture_output=True)
