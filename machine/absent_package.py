"""Lets a process do without an installed package that a library would import only to look whether it is there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Absent(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def make_absent(package: str) -> None:
    """Let this process import as if the package was not installed, for the rest of its life. What is imported already stays."""
    sys.meta_path.insert(0, _Absent(package))
