"""Puts Kafka's message definitions into the wheel of klamm: a step of setuptools, named in `[tool.setuptools.cmdclass]` of pyproject.toml.

They are made from the files of kafka-python, of exactly the version that `[build-system]` of pyproject.toml names, so that every build has
the same. An editable installation gets none: it reads the files of the kafka-python that is installed beside it.
"""

from __future__ import annotations

import importlib.util
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent.parent


class BuildWithDefinitions(build_py):
    """Setuptools' step that collects the modules and data of a wheel."""

    def run(self) -> None:
        """Collect, and write the definitions."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "klamm", "schemas", _packing().PACKED)
            target.write_text(definitions(), encoding="utf-8", newline="\n")


def definitions() -> str:
    """The text of the packed file. Raises SetupError if kafka-python is not installed in the version that the build needs."""
    wanted = wanted_version()
    try:
        found = version("kafka-python")
    except PackageNotFoundError:
        found = "none"
    spec = importlib.util.find_spec("kafka")
    if found != wanted or spec is None or spec.origin is None:
        raise SetupError(f"the message definitions of a wheel are those of kafka-python {wanted}; installed is {found}")
    packing = _packing()
    folder = Path(spec.origin).parent.joinpath(*packing.RESOURCES)
    return str(packing.packed(folder, wanted, {path.stem for path in (ROOT / "schemas").glob("*.json")}))


def wanted_version() -> str:
    """The version of kafka-python that builds a wheel."""
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    (wanted,) = (each.removeprefix("kafka-python==") for each in requirements if each.startswith("kafka-python=="))
    return str(wanted)


def _packing() -> Any:
    """The module `klamm.schemas.packing`: where this runs Klamm is not installed."""
    spec = importlib.util.spec_from_file_location("klamm_packing", ROOT / "schemas" / "packing.py")
    assert spec is not None
    assert spec.loader is not None
    packing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing)
    return packing
