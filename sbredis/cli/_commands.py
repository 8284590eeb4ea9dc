"""How a command is made: groups that load their commands when they are used, common options, examples in the help."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from sbredis._arguments import OrderedGroup, examples_text
from sbredis._root_error import ServiceBusError
from sbredis.cli._invocation import Invocation, Settings
from sbredis.cli._running import CommandFunction, run_work

__all__ = ["LazyGroup", "command", "common_options", "group", "imported", "wrong_arguments"]

_CONNECTION = (
    click.Option(
        ["common_url", "--url"], metavar="URL", help="The connection string; '-' reads it from stdin. [$SBREDIS_URL]"
    ),
    click.Option(
        ["common_context", "--context"], metavar="NAME", help="A stored context (sbredis context). [$SBREDIS_CONTEXT]"
    ),
    click.Option(
        ["common_namespace", "--namespace"], metavar="NAME", help="The namespace, if not that of the connection string."
    ),
)
_OUTPUT = click.Option(
    ["common_output", "--output", "-o"], type=click.Choice(["table", "json"]), help="The form of results. [table]"
)


class LazyGroup(OrderedGroup):
    """A group that makes a command when it is used, so that its other commands and its help cost nothing."""

    def __init__(
        self, *arguments: Any, parts: Mapping[str, tuple[Callable[[], click.Command], str]], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.parts = parts
        """For each name, what makes the command, and its line in the help."""
        self._made: dict[str, click.Command] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(self.parts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, which is made at the first time."""
        del ctx
        if cmd_name in self.parts and cmd_name not in self._made:
            self._made[cmd_name] = self.parts[cmd_name][0]()
        return self._made.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the lines of help of the table, without making them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.parts.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is refused with the nearest name."""
        self.commands = dict.fromkeys(self.parts, click.Command("none")) if args[0] not in self.parts else self.commands
        return super().resolve_command(ctx, args)


def imported(place: str) -> click.Command:
    """Import the command at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    found: click.Command = getattr(importlib.import_module(module), attribute)
    return found


def command(
    name: str,
    *,
    examples: Sequence[str],
    connects: bool = True,
    into: click.Group | None = None,
    text: str | None = None,
    params: Sequence[click.Parameter] = (),
) -> Callable[[CommandFunction], click.Command]:
    """Make a command of a function, whose docstring is the help; ``text`` takes its place.

    The function gets an :class:`~sbredis.cli._invocation.Invocation`, and the values of ``params`` and of its
    decorators ``click.option`` and ``click.argument``. It may be a coroutine function. It returns the exit code, or
    ``None`` for success.
    With ``connects`` the command has the options that name a server.
    """
    if not examples:
        raise ValueError(f"the command {name} needs an example")

    def decorate(work: CommandFunction) -> click.Command:
        @functools.wraps(work)
        @click.pass_context
        def run(ctx: click.Context, /, **given: Any) -> None:
            invocation = Invocation(_settings(ctx, given))
            if connects:
                invocation.take_url()
            ctx.exit(run_work(work, invocation, given))

        made = click.command(name, help=text, epilog=examples_text(examples))(run)
        made.params += [*params, *(_CONNECTION if connects else ()), _OUTPUT]
        if into is not None:
            into.add_command(made)
        return made

    return decorate


def group(name: str, text: str, *, examples: Sequence[str]) -> OrderedGroup:
    """Make a group of commands with this help."""
    return OrderedGroup(name, help=text, epilog=examples_text(examples))


def common_options(made: click.Command) -> None:
    """Give the program itself the options that its commands have."""
    made.params += [*_CONNECTION, _OUTPUT]


@contextmanager
def wrong_arguments() -> Generator[None]:
    """Report an argument that the library refuses, before it sends anything, as a wrong use of the command."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, ServiceBusError):
            raise
        raise click.UsageError(str(error)) from error


def _settings(ctx: click.Context, given: dict[str, Any]) -> Settings:
    """Return the common options, those of the command before those of the program, and take them out of ``given``."""
    own = {name: given.pop(f"common_{name}", None) for name in Settings.NAMES}
    program = {name: ctx.find_root().params.get(f"common_{name}") for name in Settings.NAMES}
    if own["url"] or own["context"]:
        program["url"] = program["context"] = None  # the command names another server than the program
    return Settings(**{name: own[name] if own[name] is not None else program[name] for name in Settings.NAMES})
