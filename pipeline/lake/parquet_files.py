"""Files of Parquet in a lake: each page has a checksum, and who reads a page compares it.

Without it a flipped bit may be another value that nobody notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import parquet

WRITTEN: Mapping[str, str | bool] = {"compression": "zstd", "write_page_checksum": True}
"""Options of pyarrow's writers."""


def opened(path: Path) -> parquet.ParquetFile:
    """A file whose pages are compared with their checksums when they are read; a page without one, of an older file, is read as it is.

    Raises OSError and pyarrow.ArrowException, and so do its methods.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, page_checksum_verification=True)
