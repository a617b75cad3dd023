"""`klamm completion`: prints the script with which a shell completes `klamm`."""

from __future__ import annotations

import click

from klamm.cli.shell.output import say


@click.command(short_help="Print the script that completes klamm in a shell.")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands, options and values of `klamm` in a SHELL: bash (4.4 or newer), zsh or fish.

    \b
    klamm completion bash > ~/.local/share/bash-completion/completions/klamm
    klamm completion zsh > ~/.zfunc/_klamm      # a folder of $fpath, before compinit
    klamm completion fish > ~/.config/fish/completions/klamm.fish
    eval "$(klamm completion bash)"             # only for this shell
    """
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    script = completion(click.Command("klamm"), {}, "klamm", "_KLAMM_COMPLETE")
    say((script.source_template % script.source_vars()).strip())
