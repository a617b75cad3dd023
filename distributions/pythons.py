"""Finds the Pythons of this machine that Klamm supports, and makes those that are missing from Debian's packages.

A Python is on PATH, in pyenv, or known to uv. One that is missing may be in a suite of Debian: `debian_python` makes a small Debian with
debootstrap in the user's cache folder (about a minute and 300 MB, root only), and its programs run with `chroot`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from klamm.distributions.debian import small_debian

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
DEBIAN_SUITE = "sid"
"""The suite of Debian whose Python is made when a supported one is not on the machine."""


class Python(NamedTuple):
    """An interpreter of this machine."""

    version: str
    """Like 3.11."""
    prefix: tuple[str, ...]
    """What precedes a command that it runs: nothing, or `chroot FOLDER`."""
    program: str
    """Its path, below `root`."""
    root: Path
    """The folder that is `/` for it."""

    def inside(self, path: Path) -> str:
        """A path of this machine as the interpreter sees it."""
        return f"/{path.relative_to(self.root)}"


def find_pythons(versions: tuple[str, ...] = SUPPORTED) -> dict[str, Python | None]:
    """Version → the first interpreter that can make environments; None if there is none."""
    return {version: next(_usable(version), None) for version in versions}


def _usable(version: str) -> Iterator[Python]:
    check = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
    for program in _candidates(version):
        if subprocess.run([program, "-c", check], capture_output=True, check=False).returncode == 0:
            yield Python(version, (), str(program), Path("/"))


def _candidates(version: str) -> Iterator[str]:
    """Paths that may be a Python of this version: of this process, on PATH, of pyenv, of uv."""
    yield sys.executable
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(home.glob(f"versions/{version}.*/bin/python3"), reverse=True))
    uv = shutil.which("uv")
    if uv is not None:
        asked = subprocess.run([uv, "python", "find", "--no-python-downloads", version], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            yield asked.stdout.strip()


def debian_python(version: str) -> Python:
    """The Python `version` of Debian, made if it is not there. Raises subprocess.CalledProcessError, OSError."""
    folder = small_debian(f"python{version}", DEBIAN_SUITE, f"python{version},python{version}-venv,ca-certificates")
    for name in ("resolv.conf", "hosts", "ssl/certs/ca-certificates.crt", "pip.conf"):
        if Path("/etc", name).exists():
            shutil.copy(Path("/etc", name), folder / "etc" / name)
    if not (folder / "proc" / "self").exists():
        subprocess.run(["mount", "-t", "proc", "proc", folder / "proc"], check=True)
    return Python(version, ("chroot", str(folder)), f"/usr/bin/python{version}", folder)


def release(python: Python) -> None:
    """Undo what `debian_python` mounted."""
    if python.root != Path("/"):
        subprocess.run(["umount", "--lazy", python.root / "proc"], check=False)
