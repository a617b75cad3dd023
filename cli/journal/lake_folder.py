"""The type of an argument that names a lake."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

NO_FOLDER = "a lake is a folder of this machine, or one that is mounted here: its files are renamed and locked, which {scheme}:// cannot do"


class LakeFolder(click.Path):
    """The path of a lake. An address such as `s3a://bucket/lake` is refused with the reason."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        address = re.match(r"([a-z][a-z0-9+.-]*)://", os.fspath(value), re.IGNORECASE)
        if address is not None:
            self.fail(f"{os.fspath(value)}: {NO_FOLDER.format(scheme=address[1])}", param, ctx)
        return super().convert(value, param, ctx)
