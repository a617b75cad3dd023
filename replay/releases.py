"""Releases of clients, installed from their package registries into the user's cache, and the commands that run them.

The programs in `programs/` read the environment as adapters of `klamm conform --client` do (docs/conform.md).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from klamm.machine.cache_folder import cache_folder
from klamm.seams.value_class import dataclass

PROGRAMS = Path(__file__).with_name("programs")
INSTALL_S = 900.0
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
WHEEL = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--only-binary=:all:")
"""Of a wheel of confluent-kafka only the library is used, so that it need not fit this Python."""


class NotInstalled(Exception):
    """A release cannot be installed. The message is one line."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client library."""

    package: str
    registry: str
    install: Callable[[str, str, Path], None]
    """Puts a release of a package into an empty folder."""
    command: str
    """For a shell. `{release}` is that folder, `{programs}` that of the programs, `{python}` this interpreter."""


def command_of(client: str, version: str) -> str:
    """The command that runs a release of a client. It is installed first if it is not in the cache. Raises NotInstalled."""
    kind = CLIENTS[client]
    folder = cache_folder("replay") / f"{client}-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            try:
                kind.install(kind.package, version, Path(temporary))
            except NotInstalled as failure:
                raise NotInstalled(f"{kind.package} {version} cannot be installed from {kind.registry}: {failure}") from None
            with suppress(OSError):  # another run was first
                Path(temporary).rename(folder)
                Path(temporary).mkdir()  # that its end is no error
            if not folder.exists():
                raise NotInstalled(f"{folder} cannot be made")
    names = {"release": folder, "programs": PROGRAMS, "python": sys.executable}
    return kind.command.format(**{name: shlex.quote(str(value)) for name, value in names.items()})


def _run(folder: Path, *command: str) -> None:
    """Run a command of a registry's client. Raises NotInstalled, with the last line that it printed."""
    if shutil.which(command[0]) is None:
        raise NotInstalled(f"there is no {command[0]} here")
    try:
        environment = os.environ | {"GOFLAGS": "-mod=mod"}
        done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, env=environment)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{command[0]} did not end within {INSTALL_S:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise NotInstalled(lines[-1].strip() if lines else f"{command[0]} ended with exit code {done.returncode}")


def _wheel(package: str, version: str, folder: Path) -> None:
    """The library in a binary wheel."""
    _run(folder, *PIP, "download", "--no-deps", *WHEEL, f"{package}=={version}")
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "librdkafka" in name or ".libs/" in name])
    wheel.unlink()


def _python(package: str, version: str, folder: Path) -> None:
    _run(folder, *PIP, "install", "--no-deps", "--target", ".", f"{package}=={version}")


def _node(package: str, version: str, folder: Path) -> None:
    _run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", ".", f"{package}@{version}")


def _sarama(package: str, version: str, folder: Path) -> None:
    """A module that requires the release; sarama had another name before 1.40."""
    name = "github.com/IBM/sarama"
    shutil.copy(PROGRAMS / "sarama.go", folder / "main.go")
    (folder / "go.mod").write_text(f"module replay\n\ngo 1.21\n\nrequire {name} v0.0.0\n\nreplace {name} => {package} v{version}\n")
    _run(folder, "go", "mod", "tidy")


SARAMA = "cp {programs}/sarama.go {release}/main.go && cd {release} && go build -o client . && exec ./client"
CLIENTS = {
    "librdkafka": Client("confluent-kafka", "PyPI", _wheel, "RELEASE={release} exec {python} {programs}/librdkafka.py"),
    "kafka-python": Client("kafka-python", "PyPI", _python, "RELEASE={release} exec {python} {programs}/kafka_python.py"),
    "no-kafka": Client("no-kafka", "npm", _node, "NODE_PATH={release}/node_modules exec node {programs}/no_kafka.js"),
    "sarama": Client("github.com/IBM/sarama", "the Go module proxy", _sarama, SARAMA),
    "shopify-sarama": Client("github.com/Shopify/sarama", "the Go module proxy", _sarama, SARAMA),
}
"""By name. The versions of Go modules are written without their v."""
