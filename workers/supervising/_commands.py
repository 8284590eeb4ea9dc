"""The arguments of ``python -m sbredis.workers``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from sbredis._arguments import ArgumentParser
from sbredis._server_url import URL_VARIABLE
from sbredis.workers.declaring._checks import address_of

__all__ = ["PROGRAM", "WorkerCommand", "read_command"]

PROGRAM = "python -m sbredis.workers"
_DESCRIPTION = f"""\
Run a worker: the handlers of a Worker in one or several processes.

It runs on the server that its module names, or on that of ${URL_VARIABLE} if the module names none.
'sbredis --url URL worker …' and 'sbredis --context NAME worker …' run it on another server.
"""
_EXAMPLES = """\
examples:
  {program} orders.app:worker
  {program} orders.app:worker --processes 4 --http 0.0.0.0:8080
  {program} orders.app:worker --reload
"""


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

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor starts the processes: also a single one if its number was given."""
        return self.processes is not None or self.reload or self.max_messages is not None


def read_command(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> WorkerCommand:
    """Read the arguments of the command. Ends the program with a message if they are wrong.

    ``program`` is the command as the user has typed it.
    """
    parser = ArgumentParser(
        prog=program,
        description=_DESCRIPTION,
        epilog=_EXAMPLES.format(program=program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:WORKER", help="where the Worker is, such as orders.app:worker")
    parser.add_argument("--processes", type=_count, metavar="N", help="run N processes, and replace those that end")
    parser.add_argument("--reload", action="store_true", help="start again when a Python file changes")
    parser.add_argument(
        "--queue", action="append", default=[], metavar="PATH", help="run only the handlers of this entity; repeatable"
    )
    parser.add_argument(
        "--concurrency", type=_count, metavar="N", help="how many handlers of each entity run at once in a process"
    )
    parser.add_argument(
        "--max-messages-per-process", type=_count, metavar="N", help="replace a process that has begun N messages"
    )
    parser.add_argument("--http", type=_address, metavar="HOST:PORT", help="serve /live, /ready and /metrics there")
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="the form of log lines (text on a terminal, else json)",
    )
    # 'sbredis worker' gives these two. A connection string may have a password, so it is not among the arguments.
    parser.add_argument("--server-of-command", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--namespace-of-command", help=argparse.SUPPRESS)
    parser.add_argument("--reports-to", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.processes is not None and given.processes > 4 * (os.cpu_count() or 1):
        parser.error(f"--processes {given.processes} is more than four times the {os.cpu_count()} processors here")
    return WorkerCommand(
        target=given.target,
        processes=given.processes,
        reload=given.reload,
        queues=tuple(given.queue),
        concurrency=given.concurrency,
        max_messages=given.max_messages_per_process,
        http=given.http,
        log_format=given.log_format,
        server_of_command=given.server_of_command,
        namespace_of_command=given.namespace_of_command,
        reports_to=given.reports_to,
    )


def _address(text: str) -> str:
    try:
        address_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value
