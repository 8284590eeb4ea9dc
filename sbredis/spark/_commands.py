"""The arguments of ``python -m sbredis.spark``. Importing this module needs no PySpark."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from sbredis._arguments import ArgumentParser
from sbredis.registry import STALE_AFTER, split_path
from sbredis.spark._values import duration

__all__ = [
    "INTERRUPTED",
    "PROGRAM",
    "PROGRAM_VARIABLE",
    "SETUP_FAILED",
    "JobCommand",
    "read_command",
    "release_line",
    "with_program",
]

SETUP_FAILED = 2
"""The exit code of a job whose arguments or set-up are wrong."""
INTERRUPTED = 130
"""The exit code of a job that someone has ended before its work was done."""

_EXAMPLES = {
    "capture": "capture orders --to /data/captured --checkpoint /data/checkpoints/orders",
    "replay": "replay orders --source /data/captured --where \"subject = 'paid'\" --rate 500",
    "dlq-report": "dlq-report orders --csv report.csv",
    "dlq-resubmit": "dlq-resubmit orders --report report.csv --dry-run",
    "latency": "latency orders",
    "skew": "skew orders --top 20",
    "compact": "compact --source /data/captured --to /data/compacted",
    "reservations": "reservations --stale-after '5 min'",
    "release": "release orders",
}
_WITHOUT_SPARK = ("reservations", "release")
_URL = "SBREDIS_URL"
PROGRAM = ("python", "-m", "sbredis.spark")
PROGRAM_VARIABLE = "SBREDIS_SPARK_PROGRAM"
"""The variable in which a job tells the processes of its Spark the command that runs jobs, as the user has typed it."""


def _program_of_the_job() -> tuple[str, ...]:
    return tuple(shlex.split(os.environ.get(PROGRAM_VARIABLE, ""))) or PROGRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand:
    """The job to run, and its arguments."""

    job: str
    entity: str = ""
    """The path of the queue, topic or subscription."""
    server: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """The options that say where the connection string is."""
    master: str | None = None
    source: str = ""
    to: str = ""
    checkpoint: str = ""
    consumer: str = ""
    every: str | None = None
    """The time between two batches, as Spark takes it; ``None`` to stop when everything is captured."""
    most_rows: int | None = None
    accept_loss: bool = False
    where: str | None = None
    drop: tuple[str, ...] = ()
    """Columns that are not sent."""
    rate: float | None = None
    tasks: int = 8
    write_id: str | None = None
    dry_run: bool = False
    csv: str | None = None
    report: str | None = None
    fingerprints: tuple[str, ...] = ()
    top: int = 10
    files: int = 1
    stale_after: float = STALE_AFTER
    """The seconds without a sign of life after which a reservation is listed as stale."""
    program: tuple[str, ...] = field(default_factory=_program_of_the_job)
    """The command that runs jobs, as the user types it to reach the same server."""

    @property
    def needs_spark(self) -> bool:
        """Whether the job is one for Spark, and not only for the client."""
        return self.job not in _WITHOUT_SPARK


def read_command(arguments: Sequence[str] | None = None, program: Sequence[str] = PROGRAM) -> JobCommand:
    """Read the arguments of the command. Ends the program with a message if they are wrong.

    ``program`` is the command that runs jobs, as the user has typed it.
    """
    name = "sbredis spark" if program[0] == "sbredis" else shlex.join(PROGRAM)
    parser = ArgumentParser(
        prog=name,
        description="Run a job on the messages of a queue or a subscription with Spark.",
        epilog="examples:\n" + "".join(f"  {name} {line}\n" for line in _EXAMPLES.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)

    def job(kind: str, text: str, *, entity: bool = True, server: bool = True) -> ArgumentParser:
        made = jobs.add_parser(
            kind,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example:\n  {name} {_EXAMPLES[kind]}\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if entity:
            made.add_argument("entity", type=_path, metavar="ENTITY", help="queue, or TOPIC/subscriptions/NAME")
        if server:
            _add_server(made)
        if kind not in _WITHOUT_SPARK:
            made.add_argument("--master", help="where Spark runs, such as local[4] or spark://host:7077")
        return made

    one = job("capture", "move the messages of an entity into parquet files, each exactly once")
    one.add_argument("--to", required=True, metavar="DIR", help="folder of the files")
    one.add_argument("--checkpoint", required=True, metavar="DIR", help="folder in which Spark remembers its progress")
    one.add_argument(
        "--consumer", default="capture", help="name of the reservation; another one for each job (capture)"
    )
    one.add_argument("--every", type=_every, metavar="DURATION", help="go on for ever, with a batch every '10 seconds'")
    one.add_argument("--max-messages", type=_count, metavar="N", help="largest number of messages of a batch")
    one.add_argument("--accept-loss", action="store_true", help="go on after messages were lost (failOnDataLoss=false)")

    one = job("replay", "send rows of parquet files as messages, each exactly once")
    one.add_argument("--source", required=True, metavar="DIR", help="folder of parquet files")
    one.add_argument("--where", metavar="SQL", help="send only the rows for which this is true")
    one.add_argument(
        "--drop", action="append", default=[], metavar="COLUMN", help="leave out a column of the files; repeatable"
    )
    one.add_argument("--rate", type=_rate, metavar="N", help="send no more than N messages a second")
    one.add_argument("--tasks", type=_count, default=8, metavar="N", help="tasks that send (8); the same in each run")
    one.add_argument("--write-id", metavar="ID", help="name under which a repeated run recognises what is sent already")
    one.add_argument("--dry-run", action="store_true", help="count the rows, and send nothing")

    one = job("dlq-report", "say why messages are dead letters: reasons, fingerprints, sessions and keys")
    one.add_argument("--top", type=_count, default=3, metavar="N", help="how many sessions and keys to name (3)")
    one.add_argument("--csv", metavar="FILE", help="write the report there; - for the standard output")

    one = job("dlq-resubmit", "move chosen dead letters back to their queue, each exactly once")
    one.add_argument("--report", metavar="FILE", help="rows of a report as CSV: their dead letters are chosen")
    one.add_argument(
        "--fingerprint", action="append", default=[], metavar="TEXT", help="choose by fingerprint; repeatable"
    )
    one.add_argument("--rate", type=_rate, metavar="N", help="move no more than N messages a second")
    one.add_argument("--dry-run", action="store_true", help="count the dead letters, and move nothing")

    one = job("latency", "measure how long messages waited and were worked on; the entity needs audit=True")
    one.add_argument("--csv", metavar="FILE", help="write the report there; - for the standard output")

    one = job("skew", "count messages and bytes by partition, session and key")
    one.add_argument("--top", type=_count, default=10, metavar="N", help="how many sessions and keys to name (10)")
    one.add_argument("--csv", metavar="FILE", help="write the report there; - for the standard output")

    one = job("compact", "write captured files again: fewer, larger, without duplicates", entity=False, server=False)
    one.add_argument("--source", required=True, metavar="DIR", help="folder of captured files")
    one.add_argument("--to", required=True, metavar="DIR", help="another folder")
    one.add_argument("--files", type=_count, default=1, metavar="N", help="files for each hour of an entity (1)")

    one = job("reservations", "list what queries have reserved: by whom, since when, and how far", entity=False)
    one.add_argument(
        "--stale-after",
        type=_duration,
        default=STALE_AFTER,
        metavar="DURATION",
        help="mark those without a sign of life for this time, with the command that releases them (15 min)",
    )
    job("release", "end a reservation, so that receivers get the messages again")

    given = parser.parse_args(arguments)
    command = JobCommand(
        **{_NAMES.get(name, name): value for name, value in vars(given).items() if name not in _READ_APART},
        server=_server(given) if hasattr(given, "url_env") else {},
        fingerprints=tuple(getattr(given, "fingerprint", ())),
        drop=tuple(getattr(given, "drop", ())),
        program=tuple(program),
    )
    if command.job == "dlq-resubmit" and not command.report and not command.fingerprints:
        parser.error("give --report or --fingerprint, which choose the dead letters")
    if command.job == "compact" and os.path.realpath(command.source) == os.path.realpath(command.to):
        parser.error("--to must be another folder than --source: compacting reads one and writes the other")
    return command


_NAMES = {"max_messages": "most_rows"}
_READ_APART = ("url", "url_env", "url_file", "namespace", "fingerprint", "drop")


def _add_server(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--url-env", default=None, metavar="NAME", help=f"environment variable with the connection string ({_URL})"
    )
    where.add_argument("--url-file", metavar="FILE", help="file with the connection string")
    where.add_argument("--url", metavar="URL", help="connection string; Spark logs it, so not with a password")
    parser.add_argument("--namespace", metavar="NAME", help="namespace, if the connection string names none")


def _server(given: argparse.Namespace) -> dict[str, str]:
    if given.url is not None:
        found = {"url": given.url}
    elif given.url_file is not None:
        found = {"urlFile": given.url_file}
    else:
        found = {"urlEnv": given.url_env or _URL}
    return found if given.namespace is None else {**found, "namespace": given.namespace}


_FLAGS = {"urlEnv": "--url-env", "urlFile": "--url-file", "namespace": "--namespace"}


def release_line(command: JobCommand, path: str | None = None) -> str:
    """Return the command that ends the reservation of an entity. A connection string that was given is left out, and
    one of a ``urlProvider``, which the command does not know.
    """
    line = [*command.program, "release", path or command.entity]
    for name, value in command.server.items():
        if (name, value) != ("urlEnv", _URL):
            line += [_FLAGS[name], value] if name in _FLAGS else ["--url", "URL"]
    return shlex.join(line)


def with_program(text: str, command: JobCommand) -> str:
    """Return a text of an error, with the command that runs jobs as the user has typed it."""
    return text.replace(f"{shlex.join(PROGRAM)} release", f"{shlex.join(command.program)} release")


def _path(text: str) -> str:
    try:
        split_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _duration(text: str) -> float:
    try:
        seconds = duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not seconds:
        raise argparse.ArgumentTypeError("it must be longer than 0")
    return seconds


def _every(text: str) -> str:
    try:
        return f"{round(duration(text) * 1000)} milliseconds"
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages a second")
    return rate
