"""``sbredis worker`` and ``sbredis spark``: the programs of these packages, with the server of the context."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import click

from sbredis._root_error import ServiceBusError
from sbredis._server_url import URL_VARIABLE
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._server_choice import ChosenServer, NoServerError, address_of

__all__ = ["release_command", "spark", "worker"]

_WORKER = """Run a worker: the handlers of a Worker in one or several processes.

The options are those of 'python -m sbredis.workers', which --help lists. The worker runs on the server of --url or
--context if they are given, else on that of its module. A module that names none gets $SBREDIS_URL or the context.
"""
_SPARK = """Run a job on the messages of a queue or a subscription with Spark.

The jobs and their options are those of 'python -m sbredis.spark', which --help lists. A job works on the server of the
context, unless it has an option that names another one.
"""


def _passing(name: str, text: str, examples: list[str], main: Callable[[Invocation, list[str]], int]) -> click.Command:
    """Make a command that gives all its arguments to another program."""

    def run(invocation: Invocation, arguments: tuple[str, ...]) -> int:
        environment = os.environ.get(URL_VARIABLE)
        try:
            os.environ[URL_VARIABLE] = connection_string(invocation.server)
        except (NoServerError, ServiceBusError):
            if names_server(invocation):
                raise
            # the program says what is missing, if it needs a server
        try:
            return main(invocation, list(arguments))
        except SystemExit as end:  # its help, or a refusal of its arguments
            return end.code if isinstance(end.code, int) else 1
        finally:
            if environment is None:
                os.environ.pop(URL_VARIABLE, None)
            else:
                os.environ[URL_VARIABLE] = environment

    rest: Any = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED, metavar="ARGUMENTS...")
    made = command(name, connects=False, text=text, params=[rest], examples=examples)(run)
    made.params = [rest]
    made.add_help_option = False
    made.context_settings = {"ignore_unknown_options": True, "help_option_names": []}
    return made


def names_server(invocation: Invocation) -> bool:
    """Return whether the options of the command name a server, and not only the environment or a stored choice."""
    return invocation.settings.url is not None or invocation.settings.context is not None


def connection_string(server: ChosenServer) -> str:
    """Return a connection string that names the namespace too."""
    if server.namespace is None:
        return server.url
    url = re.sub(r"([?&])namespace=[^&]*&?", r"\1", server.url).rstrip("?&")
    return f"{url}{'&' if '?' in url else '?'}namespace={quote(server.namespace)}"


def release_command(invocation: Invocation, path: str) -> str:
    """Return the command that ends the reservation of an entity on the server of this invocation.

    A connection string is left out if it was not an option, or if it has secrets.
    """
    return shlex.join([*_spark_here(invocation), "release", path])


def _spark_here(invocation: Invocation) -> list[str]:
    """Return the command that runs jobs on the server of this invocation."""
    given, server = invocation.settings, invocation.server
    line = ["sbredis"]
    if server.name is not None:
        line += ["--context", server.name]
    elif given.url is not None:
        line += ["--url", server.url if address_of(server.url) == server.url else "URL"]
    if given.namespace is not None:
        line += ["--namespace", given.namespace]
    return [*line, "spark"]


def _run_worker(invocation: Invocation, arguments: list[str]) -> int:
    from sbredis.workers.__main__ import main

    if names_server(invocation):
        arguments = ["--server-of-command", *arguments]  # its connection string is in the environment
    elif invocation.settings.namespace is not None:
        arguments = ["--namespace-of-command", invocation.settings.namespace, *arguments]
    sys.path.insert(0, os.getcwd())  # as `python -m` does, so that the worker's module is found  # noqa: PTH109
    return main(arguments, "sbredis worker")


def _run_spark(invocation: Invocation, arguments: list[str]) -> int:
    from sbredis.spark.__main__ import main

    program = ["sbredis", "spark"]
    with suppress(NoServerError, ServiceBusError):
        program = _spark_here(invocation)
    return main(arguments, program)


worker = _passing(
    "worker",
    _WORKER,
    ["sbredis worker orders.app:worker", "sbredis --context prod worker orders.app:worker --processes 4"],
    _run_worker,
)
spark = _passing(
    "spark",
    _SPARK,
    ["sbredis spark dlq-report orders --csv report.csv", "sbredis --context prod spark reservations"],
    _run_spark,
)
