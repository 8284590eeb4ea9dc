"""The arguments of ``python -m sbredis.spark``. Importing this module needs no PySpark."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
    import click

    from sbredis._arguments import CheckedType, OrderedGroup, examples_text, read_arguments

    name = "sbredis spark" if program[0] == "sbredis" else shlex.join(PROGRAM)
    count, rate, path = CheckedType("number", _count), CheckedType("number", _rate), CheckedType("path", _path)
    jobs = OrderedGroup(
        help="Run a job on the messages of a queue or a subscription with Spark.",
        epilog=examples_text([f"{name} {line}" for line in _EXAMPLES.values()]),
        subcommand_metavar="JOB ...",
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option([*names], **settings)

    def job(kind: str, text: str, *own: click.Option, entity: bool = True, server: bool = True) -> None:
        params: list[click.Parameter] = [click.Argument(["entity"], type=path, metavar="ENTITY")] if entity else []
        if server:
            params += [
                option("--url-env", metavar="NAME", help=f"environment variable with the connection string ({_URL})"),
                option("--url-file", metavar="FILE", help="file with the connection string"),
                option("--url", metavar="URL", help="connection string; Spark logs it, so not with a password"),
                option("--namespace", metavar="NAME", help="namespace, if the connection string names none"),
            ]
        if kind not in _WITHOUT_SPARK:
            params.append(
                option("--master", metavar="MASTER", help="where Spark runs, such as local[4] or spark://host:7077")
            )

        def read(**given: Any) -> JobCommand:
            found = _server(given) if server else {}
            return _checked(JobCommand(job=kind, server=found, program=tuple(program), **given))

        described = f"{text[0].upper()}{text[1:]}."
        about_entity = "\n\nENTITY is a queue, or TOPIC/subscriptions/NAME." if entity else ""
        made = click.Command(
            kind,
            callback=read,
            params=[*params, *own],
            help=f"{described}{about_entity}",
            short_help=text,
            epilog=examples_text([f"{name} {_EXAMPLES[kind]}"]),
        )
        jobs.add_command(made)

    csv = option("--csv", metavar="FILE", help="write the report there; - for the standard output")
    job(
        "capture",
        "move the messages of an entity into parquet files, each exactly once",
        option("--to", required=True, metavar="DIR", help="folder of the files"),
        option("--checkpoint", required=True, metavar="DIR", help="folder in which Spark remembers its progress"),
        option(
            "--consumer",
            default="capture",
            metavar="CONSUMER",
            help="name of the reservation; another one for each job (capture)",
        ),
        option(
            "--every",
            type=CheckedType("time", _every),
            metavar="DURATION",
            help="go on for ever, with a batch every '10 seconds'",
        ),
        option("most_rows", "--max-messages", type=count, metavar="N", help="largest number of messages of a batch"),
        option("--accept-loss", is_flag=True, help="go on after messages were lost (failOnDataLoss=false)"),
    )
    job(
        "replay",
        "send rows of parquet files as messages, each exactly once",
        option("--source", required=True, metavar="DIR", help="folder of parquet files"),
        option("--where", metavar="SQL", help="send only the rows for which this is true"),
        option("--drop", multiple=True, metavar="COLUMN", help="leave out a column of the files; repeatable"),
        option("--rate", type=rate, metavar="N", help="send no more than N messages a second"),
        option("--tasks", type=count, default=8, metavar="N", help="tasks that send (8); the same in each run"),
        option("--write-id", metavar="ID", help="name under which a repeated run recognises what is sent already"),
        option("--dry-run", is_flag=True, help="count the rows, and send nothing"),
    )
    job(
        "dlq-report",
        "say why messages are dead letters: reasons, fingerprints, sessions and keys",
        option("--top", type=count, default=3, metavar="N", help="how many sessions and keys to name (3)"),
        csv,
    )
    job(
        "dlq-resubmit",
        "move chosen dead letters back to their queue, each exactly once",
        option("--report", metavar="FILE", help="rows of a report as CSV: their dead letters are chosen"),
        option(
            "fingerprints", "--fingerprint", multiple=True, metavar="TEXT", help="choose by fingerprint; repeatable"
        ),
        option("--rate", type=rate, metavar="N", help="move no more than N messages a second"),
        option("--dry-run", is_flag=True, help="count the dead letters, and move nothing"),
    )
    job("latency", "measure how long messages waited and were worked on; the entity needs audit=True", csv)
    job(
        "skew",
        "count messages and bytes by partition, session and key",
        option("--top", type=count, default=10, metavar="N", help="how many sessions and keys to name (10)"),
        csv,
    )
    job(
        "compact",
        "write captured files again: fewer, larger, without duplicates",
        option("--source", required=True, metavar="DIR", help="folder of captured files"),
        option("--to", required=True, metavar="DIR", help="another folder"),
        option("--files", type=count, default=1, metavar="N", help="files for each hour of an entity (1)"),
        entity=False,
        server=False,
    )
    job(
        "reservations",
        "list what queries have reserved: by whom, since when, and how far",
        option(
            "--stale-after",
            type=CheckedType("time", _duration),
            default=STALE_AFTER,
            metavar="DURATION",
            help="mark those without a sign of life for this time, with the command that releases them (15 min)",
        ),
        entity=False,
    )
    job("release", "end a reservation, so that receivers get the messages again")
    found: JobCommand = read_arguments(jobs, sys.argv[1:] if arguments is None else arguments, name)
    return found


def _checked(command: JobCommand) -> JobCommand:
    """Refuse arguments that do not fit together."""
    from click import UsageError

    if command.job == "dlq-resubmit" and not command.report and not command.fingerprints:
        raise UsageError("Give --report or --fingerprint, which choose the dead letters.")
    if command.job == "compact" and os.path.realpath(command.source) == os.path.realpath(command.to):
        raise UsageError("--to must be another folder than --source: compacting reads one and writes the other.")
    return command


def _server(given: dict[str, Any]) -> dict[str, str]:
    """Return the options that say where the connection string is, and take them out of the arguments."""
    from click import UsageError

    namespace = given.pop("namespace")
    found = {key: value for name, key in _PLACES.items() if (value := given.pop(name)) is not None}
    if len(found) > 1:
        raise UsageError("Give one of --url-env, --url-file and --url.")
    found = found or {"urlEnv": _URL}
    return found if namespace is None else {**found, "namespace": namespace}


_PLACES = {"url_env": "urlEnv", "url_file": "urlFile", "url": "url"}
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
    split_path(text)
    return text


def _duration(text: str) -> float:
    seconds = duration(text)
    if not seconds:
        raise ValueError("it must be longer than 0")
    return seconds


def _every(text: str) -> str:
    return f"{round(duration(text) * 1000)} milliseconds"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e12:
        raise ValueError(f"{text!r} is not a number of messages a second")
    return rate
