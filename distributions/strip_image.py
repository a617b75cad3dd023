"""Removes from the environment of an image what running does not need: `python strip_image.py FOLDER`.

That is pip, tests of packages and header files. Bytecode is compiled, because an image may be run with a file system that is read only.
"""

from __future__ import annotations

import compileall
import shutil
import sys
from pathlib import Path

_NOT_NEEDED = ("pip", "pip-*.dist-info", "setuptools", "setuptools-*.dist-info", "pkg_resources", "_distutils_hack", "distutils-*.pth")
_OF_PACKAGES = (
    "pyarrow/include", "pyarrow/tests", "pyarrow/src", "pyarrow/*flight*", "pyarrow/_gcsfs*",
    "pandas/tests", "numpy/tests", "numpy/*/tests", "pyspark/examples",
)


def main(folder: str) -> None:
    """Strip the environment in `folder`."""
    (packages,) = Path(folder).glob("lib/python3.*/site-packages")
    for pattern in (*_NOT_NEEDED, *_OF_PACKAGES):
        for path in packages.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    compileall.compile_dir(str(packages), quiet=2, workers=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
