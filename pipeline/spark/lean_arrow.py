"""pyarrow without pandas.

The first array that pyarrow makes of a Python list lets it import pandas, if that is installed, to see whether the list is one of pandas'
own arrays. That takes half a second, in each process of Spark's workers too, and where nobody uses pandas it is for nothing.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not looked for", name=fullname)


def leave_out_pandas() -> None:
    """For a process that is Klamm's alone: pyarrow decides now that there is no pandas. `import pandas` and `to_pandas` still work, but
    pyarrow would take a Series for any sequence."""
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
