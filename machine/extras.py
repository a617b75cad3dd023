"""The packages of Klamm's extras, from the metadata of the installed distribution."""

from __future__ import annotations

import re

DISTRIBUTION = "klamm"
OWN = "klamm-"
"""How names of distributions start that are built beside Klamm."""
_OF_EXTRA = re.compile(r"""^(?P<requirement>[^;]+);.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")


def requirements(extra: str) -> list[str]:
    """The requirements of an extra, such as `pyarrow<27,>=18`; empty if Klamm is not installed or does not have this extra."""
    import importlib.metadata  # rarely needed, and the import takes time

    try:
        listed = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    parsed = (_OF_EXTRA.match(line) for line in listed)
    return [line["requirement"].strip() for line in parsed if line is not None and line["extra"] == extra]


def install_command(extra: str) -> str:
    """The shell command that installs the packages of an extra.

    It names the packages, not `klamm[extra]`, because Klamm is not in a package index and the user may not have a checkout. Distributions
    that are built beside Klamm are not in an index either, and are left out.
    """
    listed = [each for each in requirements(extra) if not each.startswith(OWN)]
    if not listed:
        return f"pip install 'klamm[{extra}]' from where Klamm was installed from"
    return " ".join(("pip install", *(f"'{each}'" for each in listed)))
