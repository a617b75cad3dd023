"""Build backend of klamm-zookeeper: fetches the jars, then lets setuptools do the rest.

`jars()` returns the folder `klamm_zookeeper/jars` with exactly the jars of `[tool.klamm-zookeeper.jars]` in pyproject.toml. A jar with
another SHA-512 is never used. Jars come from the folder itself (an sdist has them), from the user's cache folder, and otherwise from Maven;
then they are put into the cache folder. As a program it fetches them and prints the folder; a failure is one line on stderr and exit
code 1. It runs before anything is installed, so it imports the standard library only; `setuptools` is imported when something is built.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "klamm_zookeeper" / "jars"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_WITHIN_S = 300


class NoJars(RuntimeError):
    """The jars cannot be fetched. The message is one line."""


def pinned() -> dict[str, str]:
    """Artefact `group:name:version` → SHA-512 of its jar."""
    with (HERE / "pyproject.toml").open("rb") as file:
        table: dict[str, str] = tomllib.load(file)["tool"]["klamm-zookeeper"]["jars"]
    return table


def file_name(artefact: str) -> str:
    """The name of the jar of an artefact."""
    _, name, version = artefact.split(":")
    return f"{name}-{version}.jar"


def jars() -> Path:
    """The folder with the pinned jars and nothing else. Fetches what is missing. Raises NoJars, OSError."""
    wanted = {file_name(artefact): digest for artefact, digest in pinned().items()}
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        if wanted.get(file.name) != _digest(file):
            file.unlink()
    missing = {name: digest for name, digest in wanted.items() if not (FOLDER / name).exists()}
    if missing:
        cache = _cache_folder()
        if any(_digest(cache / name) != digest for name, digest in missing.items()):
            _fetch(cache, wanted)
        for name in missing:
            _copy(cache / name, FOLDER / name)
    return FOLDER


def _cache_folder() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "klamm" / "zookeeper"


def _digest(file: Path) -> str | None:
    return hashlib.sha512(file.read_bytes()).hexdigest() if file.is_file() else None


def _copy(source: Path, target: Path) -> None:
    """Copy a file. Its name appears when it is complete: another build may read it."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as unfinished:
        unfinished.write(source.read_bytes())
    Path(unfinished.name).chmod(0o644)
    Path(unfinished.name).replace(target)


def _fetch(cache: Path, wanted: dict[str, str]) -> None:
    """Let Maven copy the jars, check them, and put them into the cache folder."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars("the jars of ZooKeeper are fetched with Maven, and there is no mvn on PATH")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="klamm-zookeeper-") as folder:
        project, copied = Path(folder, "pom.xml"), Path(folder, "jars")
        project.write_text(_project(), encoding="utf-8")
        command = [maven, "--batch-mode", "--quiet", "-f", str(project), _COPY, "-DexcludeTransitive=true", f"-DoutputDirectory={copied}"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            raise NoJars(f"Maven did not fetch the jars of ZooKeeper within {_WITHIN_S} s") from None
        if done.returncode != 0:
            output = done.stdout + done.stderr
            reason = next((line for line in output.splitlines() if "ERROR" in line), output.strip()[-300:])
            raise NoJars(f"Maven cannot fetch the jars of ZooKeeper: {reason}")
        for name, digest in wanted.items():
            if _digest(copied / name) != digest:
                raise NoJars(f"Maven has another {name} than the one that pyproject.toml lists: its SHA-512 is {_digest(copied / name)}")
            _copy(copied / name, cache / name)


def _project() -> str:
    """A Maven project that depends on the pinned artefacts."""
    dependencies = "".join(
        "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>\n".format(*artefact.split(":"))
        for artefact in pinned()
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>klamm</groupId>\n  <artifactId>klamm-zookeeper</artifactId>\n  <version>1</version>\n"
        f"  <dependencies>\n{dependencies}  </dependencies>\n"
        "</project>\n"
    )


def _setuptools() -> Any:
    """The backend of setuptools, after the jars are there. Files of an earlier build would otherwise get into the wheel."""
    jars()
    shutil.rmtree(HERE / "build", ignore_errors=True)
    return importlib.import_module("setuptools.build_meta")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Hook of PEP 517."""
    return str(_setuptools().build_wheel(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Hook of PEP 517."""
    return str(_setuptools().build_sdist(sdist_directory, config_settings))


def main() -> int:
    """Fetch the jars. Returns the exit code."""
    try:
        print(jars())
    except (NoJars, OSError) as problem:
        print(f"klamm-zookeeper: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
