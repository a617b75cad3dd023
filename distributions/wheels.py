"""Builds klamm and klamm-zookeeper: a wheel and an sdist of each. `python distributions/wheels.py dist`, or `make wheels`.

The bytes depend only on the files and on SOURCE_DATE_EPOCH (seconds; by default the time of the last commit). For this, everything is built
from a copy with fixed modes and times, with the packages of this environment; an sdist is packed again with fixed times, modes and owners;
and a wheel is built from the unpacked sdist, which also shows that the sdist is complete.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ZOOKEEPER = ROOT / "distributions" / "zookeeper"
_SKIPPED = (".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules")
_NOT_KLAMM = ("tests", "docs", "benchmarks")
_BUILD_STEP = "definitions.py"
"""The only file of distributions/ that an sdist of klamm has."""
_WITHOUT_GIT = 315532800
"""1980-01-01, the first time that a wheel can hold."""
_HOOK = """
import importlib, os, sys
os.umask(0o022)
sys.path.insert(0, os.getcwd()) if sys.argv[1] == "build_backend" else None
print(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(sys.argv[3]))
"""


def build(target: Path, epoch: int) -> list[Path]:
    """Build all four files in the folder `target`, and return them. Raises subprocess.CalledProcessError, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    fetch_jars()
    with tempfile.TemporaryDirectory(prefix="klamm-wheels-") as folder:
        work = Path(folder)
        shutil.copytree(ROOT, work / "klamm", ignore=_ignored)
        shutil.copytree(ZOOKEEPER, work / "zookeeper", ignore=shutil.ignore_patterns(*_SKIPPED))
        return [
            *_distribution(work / "klamm", "setuptools.build_meta", target, epoch),
            *_distribution(work / "zookeeper", "build_backend", target, epoch),
        ]


def fetch_jars() -> None:
    """Fetch the jars of klamm-zookeeper into the checkout. Raises the backend's NoJars."""
    spec = importlib.util.spec_from_file_location("klamm_zookeeper_backend", ZOOKEEPER / "build_backend.py")
    assert spec is not None
    assert spec.loader is not None
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    backend.jars()


def source_date_epoch() -> int:
    """SOURCE_DATE_EPOCH, or the time of the last commit of this checkout, in seconds."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named:
        return int(named)
    asked = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    return int(asked.stdout) if asked.returncode == 0 and (ROOT / ".git").exists() else _WITHOUT_GIT


def _ignored(folder: str, names: list[str]) -> set[str]:
    if Path(folder) == ROOT / "distributions":
        return set(names) - {_BUILD_STEP}
    here = _NOT_KLAMM if Path(folder) == ROOT else ()
    return shutil.ignore_patterns(*_SKIPPED, *here)(folder, names)


def _distribution(source: Path, backend: str, target: Path, epoch: int) -> list[Path]:
    """The sdist of a source folder, and the wheel that is built from it."""
    _settle(source, epoch)
    sdist = target / _call(source, backend, "build_sdist", target, epoch)
    _pack_again(sdist, epoch)
    unpacked = source.parent / f"{source.name}-sdist"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    _settle(folder, epoch)
    return [sdist, target / _call(folder, backend, "build_wheel", target, epoch)]


def _call(source: Path, backend: str, hook: str, target: Path, epoch: int) -> str:
    """Call a hook of PEP 517 in its own process; returns the name of the file that it wrote."""
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", _HOOK, backend, hook, str(target.absolute())]
    done = subprocess.run(command, cwd=source, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
    return done.stdout.splitlines()[-1]


def _settle(folder: Path, epoch: int) -> None:
    """Give every file the same mode and time."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (epoch, epoch))


def _pack_again(sdist: Path, epoch: int) -> None:
    """Write an sdist again, sorted, with fixed times, modes and owners."""
    plain = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.mode = epoch, 0o755 if member.isdir() else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch, compresslevel=9) as packed:
        packed.write(plain.getvalue())


def main(target: str = "dist") -> int:
    """Build, and print the files with their sizes."""
    try:
        built = build(Path(target), source_date_epoch())
    except (OSError, subprocess.CalledProcessError, RuntimeError) as problem:
        print(f"wheels: {problem}", file=sys.stderr)
        return 1
    for file in built:
        print(f"{file}  {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
