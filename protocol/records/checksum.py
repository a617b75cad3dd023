"""CRC-32C, the checksum of record batches and of snapshots of producers.

The function is in the extension module of the package crc32c. The package itself also imports its command line and, for its version number,
`importlib.metadata`, which takes longer than all of `protocol/records`. So the extension module is loaded by itself; if the package has
another shape, it is imported as a whole.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:

    def _extension() -> object | None:
        """The package's extension module, None if there is none of that name."""
        package = PathFinder.find_spec("crc32c")
        folders = None if package is None else package.submodule_search_locations
        spec = None if folders is None else PathFinder.find_spec("crc32c._crc32c", folders)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    crc32c = getattr(_extension(), "crc32c", None)
    if crc32c is None:
        from crc32c import crc32c
