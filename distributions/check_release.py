"""Checks what would be released. `make check-release`; needs the packages of the extra `release`.

It builds both distributions twice and compares the bytes, lets twine look at them, installs them in clean environments of each supported
Python, without extras and with the embedded ZooKeeper, uses the latter also with other releases of kafka-python, and writes a bill of
materials of it (CycloneDX). Each step prints one line; the first that fails ends the program with exit code 1. A supported Python that is
not on the machine is made with debootstrap if that is there; otherwise the check fails: name the versions to check with `--versions`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klamm.distributions import definitions, pythons, wheels
from klamm.distributions.pythons import Python
from klamm.distributions.zookeeper.build_backend import file_name, pinned

_NOT_PASSED = (
    "KLAMM_ZOOKEEPER_JARS", "KAFKA_HOME", "ZOOKEEPER_HOME", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME",
    "VIRTUAL_ENV",
)
EXTRAS = ("", "embedded")
OTHER_KAFKA_PYTHONS = ("kafka-python==2.2.0", "kafka-python<3", "kafka-python<4")
"""Requirements whose newest release is used beside Klamm, after the release of constraints.txt: the oldest that it allows, the newest 2.x,
the newest 3.x."""

_KAFKA_PYTHON = "import importlib.metadata; print(importlib.metadata.version('kafka-python'))"


class CheckFailed(Exception):
    """What would be released has a fault. The message says which."""


class Installed(NamedTuple):
    """What an installation in a clean environment took."""

    python: str
    extra: str
    install_s: float
    ready_s: float
    """From the start of the command until it ended: for the embedded ZooKeeper the first record was read."""
    megabytes: float
    """Of the environment, without pip."""
    kafka_pythons: tuple[str, ...]
    """The releases of kafka-python with which a record was written and read."""

    def line(self) -> str:
        """One line for people."""
        what = f"klamm[{self.extra}]" if self.extra else "klamm"
        beside = f", with kafka-python {', '.join(self.kafka_pythons)}" if self.kafka_pythons else ""
        took = f"installed in {self.install_s:.1f} s, {self.megabytes:.0f} MB, used in {self.ready_s:.1f} s"
        return f"Python {self.python}: {what} {took}{beside}"


def build_twice(target: Path) -> list[Path]:
    """The built files, in `target`. Raises CheckFailed if a second build differs."""
    epoch = wheels.source_date_epoch()
    built = wheels.build(target, epoch)
    with tempfile.TemporaryDirectory(prefix="klamm-again-") as folder:
        for again in wheels.build(Path(folder), epoch):
            if again.read_bytes() != (target / again.name).read_bytes():
                raise CheckFailed(f"two builds of {again.name} differ: {first_difference(target / again.name, again)}")
    return built


def first_difference(one: Path, other: Path) -> str:
    """The first member in which two archives (wheels, or sdists) differ, and in what. For people."""
    ours, theirs = _members(one), _members(other)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            return f"{name} is only in the {'second' if name in theirs else 'first'}"
        (data, header), (other_data, other_header) = ours[name], theirs[name]
        if data != other_data:
            shorter = min(len(data), len(other_data))
            same = next((at for at in range(shorter) if data[at] != other_data[at]), shorter)
            return f"{name} from byte {same} on ({len(data)} and {len(other_data)} bytes)"
        if header != other_header:
            return f"{name}: time, mode or owner: {header} and {other_header}"
    if list(ours) != list(theirs):
        return "the order of the members"
    return "the compression, or the header of the archive"


def _members(archive: Path) -> dict[str, tuple[bytes, tuple[object, ...]]]:
    """Content and header of each member, in the order of the archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {each.filename: (wheel.read(each), (each.date_time, each.external_attr)) for each in wheel.infolist()}
    with tarfile.open(archive) as sdist:
        read: dict[str, tuple[bytes, tuple[object, ...]]] = {}
        for each in sdist.getmembers():
            file = sdist.extractfile(each) if each.isfile() else None
            read[each.name] = (b"" if file is None else file.read(), (each.mtime, each.mode, each.uname, each.gname, each.linkname))
        return read


def check_metadata(files: Sequence[Path]) -> None:
    """Let twine check the files. Raises CheckFailed."""
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckFailed(f"twine: {done.stdout}{done.stderr}")


def check_version(files: Sequence[Path], changelog: Path) -> None:
    """Every file of klamm has the version of the package, and the changelog has a section for it. Raises CheckFailed."""
    from klamm import __version__

    for file in files:
        if file.name.startswith("klamm-") and f"klamm-{__version__}" not in file.name:
            raise CheckFailed(f"{file.name} is not version {__version__}")
    if not re.search(rf"^## (Unreleased|{re.escape(__version__)}\b)", changelog.read_text(), re.MULTILINE):
        raise CheckFailed(f"CHANGELOG.md has no section for {__version__}")


def check_installation(python: Python, files: Sequence[Path], extra: str, bill: Path | None = None) -> Installed:
    """Install the wheels in a clean environment and use them. Writes a bill of materials to `bill`. Raises CheckFailed."""
    work = Path(tempfile.mkdtemp(prefix="klamm-release-", dir=python.root / "tmp"))
    try:
        for file in (*files, wheels.ROOT / "constraints.txt", Path(__file__).with_name("first_record.py")):
            shutil.copy(file, work)
        interpreter = f"{python.inside(work)}/venv/bin/python"
        _run(python, work, python.program, "-m", "venv", f"{python.inside(work)}/venv")
        before = _megabytes(work / "venv")
        started = time.monotonic()
        klamm, zookeeper = (next(work.glob(f"{name}-*.whl")) for name in ("klamm", "klamm_zookeeper"))
        wanted = [f"{python.inside(klamm)}[{extra}]", python.inside(zookeeper)] if extra else [python.inside(klamm)]
        options = ("--quiet", "--disable-pip-version-check", "--no-compile", "-c", python.inside(work / "constraints.txt"))
        _run(python, work, interpreter, "-m", "pip", "install", *options, *wanted)
        install_s, megabytes = time.monotonic() - started, _megabytes(work / "venv") - before
        started = time.monotonic()
        used = [_use_embedded(python, work)] if extra else _use_plain(python, work)
        ready_s = time.monotonic() - started
        if bill is not None:
            bill.write_text(json.dumps(bill_of_materials(work / "venv" / "bin" / "python"), indent=1, sort_keys=True) + "\n")
        for requirement in OTHER_KAFKA_PYTHONS if extra else ():
            _run(python, work, interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", requirement)
            _run(python, work, interpreter, "-m", "pip", "--disable-pip-version-check", "check")
            if _run(python, work, interpreter, "-c", _KAFKA_PYTHON).strip() not in used:
                used.append(_use_embedded(python, work))
        return Installed(python.version, extra, install_s, ready_s, megabytes, tuple(used))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _use_plain(python: Python, work: Path) -> list[str]:
    """Without extras the command works, and `serve` says what is missing. No kafka-python is used."""
    from klamm import __version__

    program = f"{python.inside(work)}/venv/bin/klamm"
    said = _run(python, work, program, "--version")
    if said != f"klamm {__version__}\n":
        raise CheckFailed(f"klamm --version of Python {python.version}: {said}")
    refused = subprocess.run([*python.prefix, program, "serve"], env=_environ(work), capture_output=True, text=True, check=False)
    if refused.returncode == 0 or "--zookeeper HOST:PORT" not in refused.stderr:
        raise CheckFailed(f"klamm serve without extras, Python {python.version}: {refused.returncode} {refused.stderr}")
    return []


def _use_embedded(python: Python, work: Path) -> str:
    """A cluster takes a record, with the jars of klamm-zookeeper. Returns the release of kafka-python that was used."""
    inside = python.inside(work)
    folder, client, *said = _run(python, work, f"{inside}/venv/bin/python", f"{inside}/first_record.py").splitlines()
    if not (folder.startswith(inside) and folder.endswith("klamm_zookeeper/jars") and said == ["first", "record", "record", "0"]):
        raise CheckFailed(f"a cluster of Python {python.version}: {folder}, kafka-python {client}, {said}")
    return client


def bill_of_materials(python: Path) -> dict[str, Any]:
    """What is installed in an environment, and what is inside klamm and klamm-zookeeper of others, as a CycloneDX document."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON", "-o", "-", str(python)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckFailed(f"cyclonedx_py: {done.stderr}")
    bill: dict[str, Any] = json.loads(done.stdout)
    jars = []
    for artefact, digest in pinned().items():
        group, name, version = artefact.split(":")
        purl = f"pkg:maven/{group}/{name}@{version}"
        hashes = [{"alg": "SHA-512", "content": digest}]
        jars.append({"type": "library", "bom-ref": purl, "purl": purl, "group": group, "name": name, "version": version, "hashes": hashes,
                     "description": f"in klamm-zookeeper as {file_name(artefact)}"})
    found = {each["name"]: each for each in bill["components"] if each["name"] not in ("pip", "setuptools")}
    parts = [_definitions(python), *jars]
    for component in found.values():
        # where it was installed from says something about this machine only
        component.pop("externalReferences", None)
    bill["metadata"]["component"] = found.pop("klamm") | {"type": "application"}
    bill["components"] = [*found.values(), *parts]
    refs = {each["bom-ref"] for each in (bill["metadata"]["component"], *bill["components"])}
    links = {each["ref"]: refs & set(each.get("dependsOn", ())) for each in bill["dependencies"] if each["ref"] in refs}
    links |= {part["bom-ref"]: set() for part in parts}
    links[bill["metadata"]["component"]["bom-ref"]].add(parts[0]["bom-ref"])
    links[found["klamm-zookeeper"]["bom-ref"]] = {jar["bom-ref"] for jar in jars}
    bill["dependencies"] = [{"ref": ref, "dependsOn": sorted(needed)} for ref, needed in sorted(links.items())]
    return bill


def _definitions(python: Path) -> dict[str, Any]:
    """Kafka's message definitions in the wheel of klamm, as a component."""
    (file,) = python.parent.parent.glob("lib/python3*/site-packages/klamm/schemas/kafka_messages.txt")
    version = definitions.wanted_version()
    return {"type": "data", "bom-ref": "kafka-messages", "name": file.name, "version": version,
            "hashes": [{"alg": "SHA-512", "content": hashlib.sha512(file.read_bytes()).hexdigest()}],
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "description": f"message definitions of Apache Kafka, from kafka-python {version}, in klamm"}


def _run(python: Python, work: Path, *command: str) -> str:
    done = subprocess.run([*python.prefix, *command], env=_environ(work), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckFailed(f"Python {python.version}: {' '.join(command)}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


def _environ(work: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    return kept | {"XDG_CACHE_HOME": str(work / "cache"), "LC_ALL": "C.UTF-8"}


def _megabytes(folder: Path) -> float:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()) / 1e6


def check_all(target: Path, versions: tuple[str, ...]) -> None:
    """All checks; prints a line for each. Raises CheckFailed."""
    files = build_twice(target)
    print(f"Two builds of {len(files)} files have the same bytes: {', '.join(file.name for file in files)}", flush=True)
    check_metadata(files)
    check_version(files, wheels.ROOT / "CHANGELOG.md")
    print("twine finds no fault; the version is the same everywhere", flush=True)
    bill: Path | None = target / "klamm.cdx.json"
    for version, found in pythons.find_pythons(versions).items():
        if found is None and shutil.which("debootstrap") is None:
            raise CheckFailed(f"no Python {version} on this machine, and no debootstrap to make one; name others with --versions")
        python = found or pythons.debian_python(version)
        try:
            for extra in EXTRAS:
                writes = bill if extra and python.root == Path("/") else None
                print(check_installation(python, files, extra, writes).line(), flush=True)
                bill = None if writes is not None else bill
        finally:
            pythons.release(python)
    if bill is not None:
        raise CheckFailed("none of these Pythons can write the bill of materials")
    print(f"Bill of materials: {target / 'klamm.cdx.json'}")


def main() -> int:
    """Check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Check what would be released.")
    parser.add_argument("target", nargs="?", type=Path, default=Path("dist"), help="folder for the built files")
    parser.add_argument("--versions", nargs="+", default=list(pythons.SUPPORTED), help="Pythons to check, by default %(default)s")
    options = parser.parse_args()
    try:
        check_all(options.target.absolute(), tuple(options.versions))
    except (CheckFailed, OSError, RuntimeError, subprocess.CalledProcessError) as problem:
        print(f"check-release: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
