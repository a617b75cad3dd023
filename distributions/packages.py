"""Builds the modules for Node, the JVM and Go as packages: `python distributions/packages.py dist`, or `make modules`.

`klamm-0.1.0.tgz` is for npm, `klamm-0.1.0.jar` and `.pom` for `mvn install:install-file`, `go/` is a module proxy: `GOPROXY=file://…/dist/go,…`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MODULES = Path(__file__).resolve().parent.parent / "modules"
_BUILT = ("dist", "node_modules", "target")


def build(target: Path) -> None:
    """Write all packages to the folder `target`. Raises subprocess.CalledProcessError, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="klamm-modules-") as folder:
        source = Path(shutil.copytree(MODULES, Path(folder) / "modules", ignore=shutil.ignore_patterns(*_BUILT)))
        _run(source / "node", "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
        _run(source / "node", "npm", "pack", "--silent", "--pack-destination", str(target.absolute()))
        _run(source / "jvm", "mvn", "-q", "-B", "package", "-DskipTests")
        version = json.loads((source / "node" / "package.json").read_text())["version"]
        shutil.copy(source / "jvm" / "target" / f"klamm-{version}.jar", target)
        shutil.copy(source / "jvm" / "pom.xml", target / f"klamm-{version}.pom")
        _go_proxy(source / "go", version, target / "go")


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def _go_proxy(source: Path, version: str, target: Path) -> None:
    """Files as `go` reads them from a proxy (https://go.dev/ref/mod#goproxy-protocol)."""
    module = (source / "go.mod").read_text()
    found = re.match(r"module (\S+)", module)
    assert found is not None
    folder = target / found[1] / "@v"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "list").write_text(f"v{version}\n")
    (folder / f"v{version}.info").write_text(json.dumps({"Version": f"v{version}", "Time": "2026-01-01T00:00:00Z"}))
    (folder / f"v{version}.mod").write_text(module)
    with zipfile.ZipFile(folder / f"v{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(each for each in source.iterdir() if each.is_file()):
            archive.write(file, f"{found[1]}@v{version}/{file.name}")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
