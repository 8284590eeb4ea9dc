"""``sbredis completion``: the script of a shell that completes commands, options and entities."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation

__all__ = ["completion"]


@command("completion", connects=False, examples=[
    'eval "$(sbredis completion bash)"     # in ~/.bashrc',
    'eval "$(sbredis completion zsh)"      # in ~/.zshrc',
    "sbredis completion fish > ~/.config/fish/completions/sbredis.fish",
])  # fmt: skip
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(invocation: Invocation, shell: str) -> None:
    """Print what makes a shell complete commands and entities.

    The names of entities come from the server of the context, if it answers within two seconds.
    """
    from sbredis.cli._app import program

    found = get_completion_class(shell)
    assert found is not None
    script = found(program, {}, "sbredis", "_SBREDIS_COMPLETE")
    text = script.source_template % script.source_vars()  # `source()` would run bash to ask for its version
    invocation.out.line(text)
