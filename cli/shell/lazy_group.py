"""A group of commands. The file of a command is imported only when the command is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

import click

from klamm.cli.shell.failures import extra_needed


class LazyGroup(click.Group):
    """A click group that finds a command by its name without importing the others. `modules`: name → the module that has its `command`,
    or `module:name` for a command that has another name there.

    `extra` is the extra that all commands of the group need. If one of its packages is missing, the failure is one line with the command
    that installs it.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], extra: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._modules = modules
        self._extra = extra

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; None if there is no such command."""
        if cmd_name not in self._modules:
            return None
        module, _, name = self._modules[cmd_name].partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), name or "command"))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments of the command. An option before the name of a command fails with the place where it belongs."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            place = f" The options of a command belong behind its name: {ctx.command_path} COMMAND {error.option_name}."
            raise click.NoSuchOption(error.option_name, error.message + place, error.possibilities, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was chosen."""
        if self._extra is None:
            return super().invoke(ctx)
        with extra_needed(self._extra, lambda: f"{ctx.command_path} {ctx.invoked_subcommand}"):
            return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. An unknown name fails with a list of similar names."""
        name = args[0]
        if name not in self._modules and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            similar = difflib.get_close_matches(name, self._modules)
            ctx.fail(f"No such command '{name}'.{f' Did you mean {_either(similar)}?' if similar else ''}")
        return super().resolve_command(ctx, args)


def _either(names: list[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)
