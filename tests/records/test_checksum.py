"""The checksum comes from the extension module of its package, without the rest of the package."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from klamm.protocol.records import checksum


@pytest.mark.parametrize("data", [b"", b"123456789", bytes(range(256)) * 50])
def test_the_checksum_is_that_of_the_package(data: bytes) -> None:
    assert checksum.crc32c(data) == package.crc32c(data)
    assert checksum.crc32c(memoryview(data)[1:], 7) == package.crc32c(data[1:], 7)


def test_the_check_value_of_the_polynomial() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(
    ("before", "whole"),
    [("", False), ("find_spec = classmethod(lambda cls, name, path=None: None)", True)],
    ids=["found", "not found"],
)
def test_the_package_is_imported_only_if_its_extension_module_is_not_found(before: str, whole: bool) -> None:
    """If it is not: a new release has another shape, and a start takes 10 ms longer."""
    program = f"""
import importlib.machinery, sys
import klamm.protocol.records
class PathFinder(importlib.machinery.PathFinder):
    {before or "pass"}
importlib.machinery.PathFinder = PathFinder
from klamm.protocol.records.checksum import crc32c
print(crc32c(b"123456789") == 0xE3069283, "crc32c" in sys.modules, "importlib.metadata" in sys.modules)
"""
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.split() == ["True", str(whole), str(whole)]
