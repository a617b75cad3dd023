"""A group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

import click


class LazyGroup(click.Group):
    """Finds a command by its name without importing the others. `modules`: name → the module that has its `command`."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; None when there is no such command."""
        if cmd_name not in self._modules:
            return None
        return cast(click.Command, importlib.import_module(self._modules[cmd_name]).command)
