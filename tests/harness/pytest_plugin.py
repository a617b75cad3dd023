"""How a run of pytest in a test gets the plugin: by its entry point, or by name where an older installation has none."""

from __future__ import annotations

from importlib.metadata import entry_points


def plugin_arguments() -> list[str]:
    """Arguments of pytest that load the plugin, once."""
    return [] if list(entry_points(group="pytest11", name="klamm")) else ["-p", "klamm.testing.plugin"]
