"""The arguments of ``python -m sbredis.workers``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sbredis._http_server import address_of
from sbredis._server_url import URL_VARIABLE

__all__ = ["PROGRAM", "WorkerCommand", "read_command"]

PROGRAM = "python -m sbredis.workers"
_DESCRIPTION = f"""\
Run a worker: the handlers of a Worker in one or several processes.

MODULE:WORKER is where the Worker is, such as orders.app:worker.
It runs on the server that its module names, or on that of ${URL_VARIABLE} if the module names none.
'sbredis --url URL worker …' and 'sbredis --context NAME worker …' run it on another server.
"""
_EXAMPLES = (
    "orders.app:worker",
    "orders.app:worker --processes 4 --http 0.0.0.0:8080",
    "orders.app:worker --reload",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """The worker to run, and the options of its run."""

    target: str
    processes: int | None = None
    """How many processes run it; ``None`` for one."""
    reload: bool = False
    queues: tuple[str, ...] = ()
    """Only the handlers of these entities run; all of them if it is empty."""
    concurrency: int | None = None
    max_messages: int | None = None
    http: str | None = None
    log_format: str | None = None
    """The form of log lines; ``None`` for text on a terminal, and JSON elsewhere."""
    server_of_command: bool = False
    """Whether the connection string in ``SBREDIS_URL`` takes the place of that of the worker."""
    namespace_of_command: str | None = None
    """The namespace that takes the place of that of the worker."""
    reports_to: int | None = None
    """A file descriptor to which this process reports as a child of a supervisor."""
    killer: str | None = None
    """The suspect with which the process before this one has ended, in JSON."""

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor starts the processes: also a single one if its number was given."""
        return self.processes is not None or self.reload or self.max_messages is not None


def read_command(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> WorkerCommand:
    """Read the arguments of the command. Ends the program with a message if they are wrong.

    ``program`` is the command as the user has typed it.
    """
    import click

    from sbredis._arguments import CheckedType, examples_text, read_arguments

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option([*names], **settings)

    count, address = CheckedType("number", _count), CheckedType("address", _address)
    params: list[click.Parameter] = [
        click.Argument(["target"], metavar="MODULE:WORKER"),
        option("--processes", type=count, metavar="N", help="run N processes, and replace those that end"),
        option("--reload", is_flag=True, help="start again when a Python file changes"),
        option(
            "queues", "--queue", multiple=True, metavar="PATH", help="run only the handlers of this entity; repeatable"
        ),
        option(
            "--concurrency", type=count, metavar="N", help="how many handlers of each entity run at once in a process"
        ),
        option(
            "max_messages",
            "--max-messages-per-process",
            type=count,
            metavar="N",
            help="replace a process that has begun N messages",
        ),
        option("--http", type=address, metavar="HOST:PORT", help="serve /live, /ready and /metrics there"),
        option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            help="the form of log lines (text on a terminal, else json)",
        ),
        # 'sbredis worker' gives these two. A connection string may have a password, so it is not among the arguments.
        option("--server-of-command", is_flag=True, hidden=True),
        option("--namespace-of-command", hidden=True),
        option("--reports-to", type=int, hidden=True),
        option("--killer", hidden=True),
    ]
    command = click.Command(
        "worker",
        callback=_command_of,
        params=params,
        help=_DESCRIPTION,
        epilog=examples_text([f"{program} {line}" for line in _EXAMPLES]),
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    found: WorkerCommand = read_arguments(command, sys.argv[1:] if arguments is None else arguments, program)
    return found


def _command_of(**given: Any) -> WorkerCommand:
    command = WorkerCommand(**given)
    if command.processes is not None and command.processes > 4 * (os.cpu_count() or 1):
        import click

        raise click.UsageError(
            f"--processes {command.processes} is more than four times the {os.cpu_count()} processors here."
        )
    return command


def _address(text: str) -> str:
    address_of(text)
    return text


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise ValueError(f"{value} is less than 1")
    return value
