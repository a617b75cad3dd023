"""Prints the requirements of extras of Klamm: `python requirements.py journal,metrics`.

An image installs them before it copies the source, so that a change of the source does not install them again.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(extras: str, file: str = "pyproject.toml") -> None:
    """One requirement per line, without klamm-zookeeper, which is built from the source."""
    project = tomllib.loads(Path(file).read_text())["project"]
    wanted = [*project["dependencies"], *(each for extra in extras.split(",") for each in project["optional-dependencies"][extra])]
    print("\n".join(each for each in wanted if not each.startswith("klamm")))


if __name__ == "__main__":
    main(*sys.argv[1:])
