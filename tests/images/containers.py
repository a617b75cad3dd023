"""Builds the images of the Dockerfile without Docker and without a registry of images, and runs them with podman.

`python:3.11-slim` is a Debian with Python, made by debootstrap and imported under that name; `zookeeper:3.9` is built beside this file.
buildah builds with `--isolation chroot`, podman runs with runc and with the limits in `containers.conf`. All of it needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klamm.distributions.debian import small_debian
from klamm.distributions.wheels import fetch_jars

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STORAGE = ROOT / ".venv" / "containers"
"""Images, containers, volumes and networks of this checkout: nothing is shared with podman's own, or with another checkout."""
ENVIRON = {
    **os.environ,
    "CONTAINERS_CONF": str(STORAGE / "containers.conf"),
    "CONTAINERS_STORAGE_CONF": str(STORAGE / "storage.conf"),
    "BUILDAH_ISOLATION": "chroot",
}
PROGRAMS = ("buildah", "podman", "runc", "debootstrap")
BASE, ZOOKEEPER = "docker.io/library/python:3.11-slim", "docker.io/library/zookeeper:3.9"
_PACKAGES = "python3,python3-venv,ca-certificates,netcat-openbsd"
_OF_THE_MACHINE = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")
"""What pip inside needs to reach the registry of packages that this machine uses."""


def run(*command: str | Path, within_s: float = 600, environ: Mapping[str, str] = ENVIRON) -> str:
    """What a command prints on stdout. Fails with all that it printed."""
    done = subprocess.run(
        command, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within_s, check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout


def podman(*arguments: str, within_s: float = 600) -> str:
    """What `podman ARGUMENTS` prints."""
    return run("podman", *arguments, within_s=within_s)


def logs(container: str) -> str:
    """What a container wrote to stdout and stderr."""
    command = ["podman", "logs", container]
    return subprocess.run(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


class Compose:
    """Calls podman-compose for the file of the checkout, with these variables in place of its defaults."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __call__(self, *arguments: str) -> str:
        """What it prints on stdout."""
        program = Path(sys.executable).parent / "podman-compose"
        return run(program, "-f", ROOT / "docker-compose.yml", *arguments, environ={**ENVIRON, **self._variables})


def configure() -> None:
    """Write the files that say where podman and buildah keep what they make."""
    STORAGE.mkdir(parents=True, exist_ok=True)
    conf = (HERE / "containers.conf").read_text()
    (STORAGE / "containers.conf").write_text(
        conf.replace("[containers]", f'tmp_dir = "{STORAGE}/tmp"\n\n[network]\nnetwork_config_dir = "{STORAGE}/networks"\n\n[containers]')
    )
    (STORAGE / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{STORAGE}/root"\nrunroot = "{STORAGE}/run"\n')


def release() -> None:
    """Unmount what podman and buildah leave mounted, so that the folder of the checkout can be removed."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for folder in reversed([folder for folder in mounted if folder.startswith(f"{STORAGE}/")]):
        subprocess.run(["umount", folder], check=True)


def inspect(image: str) -> dict[str, Any]:
    """What podman says of an image."""
    described: list[dict[str, Any]] = json.loads(podman("image", "inspect", image))
    return described[0]


def prepare() -> None:
    """Say where podman and buildah keep what they make, and fetch the jars of ZooKeeper that the images get."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    assert not missing, f"not on this machine: {', '.join(missing)}; `make test-images` installs them"
    configure()
    fetch_jars()


def build_zookeeper() -> None:
    """Build what stands in for the image `zookeeper:3.9`."""
    build(ZOOKEEPER, "-f", str(HERE / "Containerfile.zookeeper"), str(HERE))


def build(name: str, *arguments: str) -> None:
    """Let buildah build an image; layers of an earlier build are used again."""
    options = ("--isolation", "chroot", "--layers", "--format", "docker", "--pull=never")
    run("buildah", "build", *options, "-t", name, *arguments, within_s=1200)


def _as_the_official_image(folder: Path) -> None:
    (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for name in _OF_THE_MACHINE:
        if Path("/", name).exists():
            shutil.copy(Path("/", name), folder / name)
    for cached in (folder / "var/cache/apt/archives").glob("*.deb"):
        cached.unlink()


def import_base() -> None:
    """Make what stands in for `python:3.11-slim`, unless it is there."""
    if subprocess.run(["podman", "image", "exists", BASE], env=ENVIRON, check=False).returncode == 0:
        return
    folder = small_debian("python3.11-slim", "bookworm", _PACKAGES, _as_the_official_image)
    with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(["podman", "import", "-", BASE], env=ENVIRON, stdin=packed.stdout, check=True, capture_output=True)
    assert packed.returncode == 0
