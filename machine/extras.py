"""The packages that Klamm's extras bring, as the metadata of the installed distribution lists them."""

from __future__ import annotations

import re

DISTRIBUTION = "klamm"
_OF_EXTRA = re.compile(r"""^(?P<requirement>[^;]+);.*\bextra\s*==\s*["'](?P<extra>[^"']+)["']""")


def requirements(extra: str) -> list[str]:
    """What the extra needs beside Klamm itself, such as `pyarrow<27,>=18`; empty if Klamm is not installed or has no such extra."""
    import importlib.metadata  # few need it, and it takes a while

    try:
        listed = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    parsed = (_OF_EXTRA.match(line) for line in listed)
    return [line["requirement"].strip() for line in parsed if line is not None and line["extra"] == extra]


def install_command(extra: str) -> str:
    """The command that installs what the extra needs, to be pasted into a shell.

    It names the packages, not `klamm[extra]`: no index has Klamm, and who installed its wheel has no checkout.
    """
    listed = requirements(extra)
    if not listed:
        return f"pip install 'klamm[{extra}]' from where Klamm was installed from"
    return " ".join(("pip install", *(f"'{each}'" for each in listed)))
