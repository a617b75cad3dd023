"""The type of an argument that names a lake."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

NO_FOLDER = "a folder of this machine is needed, or one that is mounted here: files are renamed and locked, which {scheme}:// cannot do"


SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Schemes of the addresses of lakes → how the libraries call them."""


class LakeFolder(click.Path):
    """The path of a lake with journals. An address such as `s3://bucket/lake` is refused with the reason."""

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


class LakeAddress(LakeFolder):
    """The path of a lake, or its address in an object store, such as `s3://bucket/lake`, as text."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path, or the address without a slash at its end."""
        address = re.fullmatch(r"([a-z0-9]+)://(.*?)/*", os.fspath(value), re.IGNORECASE | re.DOTALL)
        scheme = None if address is None else SCHEMES.get(address[1].lower())
        if address is None or scheme is None:
            return super().convert(value, param, ctx)
        if not re.fullmatch(r"[^/@?#\s]+(/[^/@?#]+)*", address[2]):
            self.fail(f"{scheme}://BUCKET/LAKE, without user, password and question mark: credentials are variables", param, ctx)
        return f"{scheme}://{address[2]}"
