"""How all programs of sbredis read their arguments: examples in the help, types of values, and what a refusal says."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from sbredis._visible import visible

__all__ = [
    "CheckedType",
    "OrderedGroup",
    "ParamType",
    "drop_unwritten",
    "examples_text",
    "main_of",
    "read_arguments",
    "refusal",
    "silence",
    "unwritten",
]

_FAILED, _USAGE, _BROKEN_PIPE = 1, 2, 141

if TYPE_CHECKING:
    ParamType = click.ParamType[Any, Any]
else:
    ParamType = click.ParamType  # it is generic only in newer releases of click


class CheckedType(ParamType):
    """Values that a function reads from a text. Its :class:`ValueError` says why a text is refused."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text, or refuse it. A default is a value already."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class OrderedGroup(click.Group):
    """A group of commands. Its help lists them in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        del ctx
        return list(self.commands)


def examples_text(lines: Sequence[str]) -> str:
    """Return the part of a help page that shows examples, one on each line."""
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\b\n" + "\n".join([heading, *(f"  {line}" for line in lines)])


def refusal(error: click.UsageError) -> str:
    """Return what is wrong with the arguments, and which command shows the help."""
    hint = f"\nTry '{error.ctx.command_path} --help' for help." if error.ctx is not None else ""
    return f"{error.format_message()}{hint}"


def unwritten(error: OSError) -> str:
    """Return why the help could not be written."""
    return f"The help cannot be written: {error.strerror or error}."


def silence(stream: TextIO) -> None:
    """Let the interpreter flush the stream at its end without an error and without waiting."""
    with suppress(io.UnsupportedOperation):  # a test has put a buffer in its place
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def drop_unwritten() -> None:
    """Discard what stdout cannot take. Otherwise the interpreter tries again at its end, and exits with code 120."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)


def main_of(command: click.Command, arguments: Sequence[str], program: str) -> Any:
    """Run a command, and return what its function returns, or an exit code if the help was shown.

    The code is that of SIGPIPE if the reader of the help has gone.
    """
    stdout = sys.stdout
    try:
        return command.main(list(arguments), prog_name=program, standalone_mode=False)
    except SystemExit:
        if sys.stdout is stdout:  # after a broken pipe, click replaces it and exits with code 1
            raise
        return _BROKEN_PIPE


def read_arguments(command: click.Command, arguments: Sequence[str], program: str) -> Any:
    """Return what the function of a command returns, which must not be a number.

    Ends the program after its help, and with a message if the arguments are wrong. ``program`` is the command as the
    user has typed it.
    """
    try:
        found = main_of(command, arguments, program)
    except click.UsageError as error:
        print(f"sbredis: {visible(refusal(error), lines=True)}", file=sys.stderr)  # noqa: T201 -- it is a program
        sys.exit(_USAGE)
    except OSError as error:
        print(f"sbredis: {unwritten(error)}", file=sys.stderr)  # noqa: T201 -- it is a program
        drop_unwritten()
        sys.exit(_FAILED)
    if isinstance(found, int):  # the help was shown
        sys.exit(found)
    return found
