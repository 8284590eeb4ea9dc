"""The program: its options, and the table of its commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import partial

import click

from sbredis._arguments import drop_unwritten, main_of, refusal, unwritten
from sbredis._version import __version__
from sbredis._visible import visible
from sbredis.cli._commands import LazyGroup, common_options, imported
from sbredis.cli._exit_codes import ExitCode, interrupted_before_work
from sbredis.cli._streams import replace_closed_streams

__all__ = ["program", "run"]

PARTS = {
    "queue": ("sbredis.cli._entities:queues", "Create, list, show, change and delete queues."),
    "topic": ("sbredis.cli._entities:topics", "Create, list, show, change and delete topics."),
    "subscription": ("sbredis.cli._entities:subscriptions", "Create, list, show, change and delete subscriptions."),
    "rule": ("sbredis.cli._entities:rules", "Create, list, show, change and delete rules."),
    "apply": ("sbredis.cli._apply:apply", "Create and update the entities that a file declares."),
    "export": (
        "sbredis.cli._apply:export",
        "Write a file that declares the entities of the namespace, for 'sbredis apply'.",
    ),
    "send": ("sbredis.cli._send:send", "Send messages to a queue or a topic."),
    "receive": ("sbredis.cli._receive:receive", "Receive messages, and print their bodies."),
    "peek": ("sbredis.cli._peek:peek", "Show messages without receiving them."),
    "message": ("sbredis.cli._peek:message", "Show, delete or dead-letter single messages by their numbers."),
    "session": ("sbredis.cli._sessions:sessions", "List sessions, and show the state of one."),
    "dlq": ("sbredis.cli._dlq:dlq", "List, report, redrive and purge dead letters."),
    "purge": ("sbredis.cli._purge:purge", "Delete the messages of a queue or a subscription."),
    "move": (
        "sbredis.cli._move:move",
        "Move messages to another queue or topic.",
    ),
    "dump": ("sbredis.cli._dump:dump", "Write the messages of an entity as lines of JSON, and change nothing."),
    "load": (
        "sbredis.cli._dump:load",
        "Send the messages of lines of JSON, each of them once.",
    ),
    "top": (
        "sbredis.cli._top:top",
        "Show all entities live: depth by state, rates, the oldest message, waiting receivers, dead letters.",
    ),
    "bench": (
        "sbredis.cli._bench:bench",
        "Measure the server: sending, receiving and completing, one by one, in parallel and in batches.",
    ),
    "doctor": ("sbredis.cli._doctor:doctor", "Examine the servers and the entities, and say what to do."),
    "exporter": (
        "sbredis.cli._exporter:exporter",
        "Serve the measures of all entities over HTTP, for Prometheus and KEDA.",
    ),
    "worker": ("sbredis.cli._passing:worker", "Run a worker: the handlers of a Worker in one or several processes."),
    "spark": ("sbredis.cli._passing:spark", "Run a job on the messages of a queue or a subscription with Spark."),
    "namespace": ("sbredis.cli._namespace:namespaces", "Show the namespace, and limit its entities."),
    "maintain": ("sbredis.cli._maintaining:maintain", "Do background maintenance until Ctrl-C."),
    "upgrade": (
        "sbredis.cli._maintaining:upgrade",
        "Show the layout of the stored data and the libraries, and finish what was interrupted.",
    ),
    "acl": ("sbredis.cli._acl:acl", "Print the rights that a user of the server needs, as a command for the server."),
    "server": (
        "sbredis.cli._servers:servers",
        "Run a server on a folder of this machine; back up, restore and repair its data.",
    ),
    "demo": ("sbredis.cli._demonstrating:demo", "Show sbredis at work on servers that it starts itself."),
    "context": (
        "sbredis.cli._context:contexts",
        "Store servers under names, and choose one of them.",
    ),
    "completion": ("sbredis.cli._completion:completion", "Print what makes a shell complete commands and entities."),
}
"""Each command: where it is, and its line in the help."""

_HELP = """Work with queues, topics and their messages from a terminal.

A server is named by --url, by --context, by $SBREDIS_URL, by $SBREDIS_CONTEXT, or by 'sbredis context use'.
"""

program = LazyGroup(
    "sbredis",
    parts={name: (partial(imported, place), line) for name, (place, line) in PARTS.items()},
    help=_HELP,
    epilog="\b\nExample:\n  sbredis queue list --url embedded://./bus",
)
common_options(program)
program = click.version_option(__version__, prog_name="sbredis")(program)


def run(arguments: Sequence[str]) -> int:
    """Run the program, and return the exit code."""
    logging.getLogger("sbredis").addHandler(logging.NullHandler())  # 'sbredis doctor' tells what the warnings tell
    if not replace_closed_streams():
        return _refuse("stdout is closed. To discard the output, write it to /dev/null.", ExitCode.USAGE)
    try:
        return int(main_of(program, arguments, "sbredis") or ExitCode.DONE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        return _refuse(refusal(error), ExitCode.USAGE)
    except click.ClickException as error:
        return _refuse(error.format_message(), ExitCode.FAILED)
    except OSError as error:  # a command reports its own errors; this is the help
        drop_unwritten()
        return _refuse(unwritten(error), ExitCode.FAILED)
    except (click.Abort, KeyboardInterrupt):
        return interrupted_before_work()


def _refuse(text: str, code: ExitCode) -> int:
    print(f"sbredis: {visible(text, lines=True)}", file=sys.stderr)  # noqa: T201 -- it is a program
    return code
