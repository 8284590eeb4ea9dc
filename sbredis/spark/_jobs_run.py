"""Run the jobs of ``python -m sbredis.spark``: make the session, run one job, and say what it did."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbredis.aio.bulk import stored_rows
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessageNotFoundError, ServiceBusError, SparkSetupError
from sbredis.registry import split_path
from sbredis.spark._commands import INTERRUPTED, Command, release_line
from sbredis.spark._loop import client_of, run
from sbredis.spark._secrets import server_of, warn_of_password

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sbredis.spark.jobs import Replay

__all__ = ["run_job"]

_CHUNK = 500
"""The number of dead letters that one redrive moves."""


def run_job(command: Command, spark: SparkSession | None = None) -> int:
    """Run a job, and return the exit code. Without ``spark``, the job has a session of its own."""
    if command.server:
        warn_of_password(command.server)
        server_of(command.server)  # a missing variable or file is an error before Spark starts
    if not command.needs_spark:
        return run(_WITHOUT_SPARK[command.job](command))
    if spark is not None:
        return _JOBS[command.job](spark, command)
    return _run_alone(command)


def _run_alone(command: Command) -> int:
    """Run a job in a session of its own, and say in one line why it failed, if that is known."""
    from sbredis.spark._endings import GONE, is_gone, reason_of, stop

    spark = _session(command)
    try:
        return _JOBS[command.job](spark, command)
    except Exception as error:
        said = GONE if is_gone(spark) else reason_of(error)
        if said is None:
            raise
        _complain(said)
        return 1
    finally:
        stop(spark)


def _session(command: Command) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    from sbredis.spark._registering import register

    builder = SparkSession.builder.appName(f"sbredis {command.job} {command.entity}".strip())
    if command.master is not None:
        builder = builder.master(command.master)
    if not sys.stderr.isatty():
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _options(command: Command) -> dict[str, str]:
    topic, subscription = split_path(command.entity)
    if subscription is None:
        return {**command.server, "queue": topic}
    return {**command.server, "topic": topic, "subscription": subscription}


def _read(spark: SparkSession, command: Command, **options: str) -> DataFrame:
    return spark.read.format("sbredis").options(**_options(command), **options).load()


# -- the jobs ----------------------------------------------------------------------------------------------------------


def _capture(spark: SparkSession, command: Command) -> int:
    from sbredis.spark._endings import asked_to_end
    from sbredis.spark.jobs import Capture

    options = {**_options(command), "consumer": command.consumer}
    if command.most_rows is not None:
        options["maxMessagesPerTrigger"] = str(command.most_rows)
    if command.accept_loss:
        options["failOnDataLoss"] = "false"
    capture = Capture(options, command.to, command.checkpoint)
    with asked_to_end(lambda: _complain("ending after the batch that is being written; Ctrl-C ends it now")) as asked:
        query = capture.start(spark, every=command.every)
        try:
            while not query.awaitTermination(1):
                _progress(f"captured {_rows(capture.written):,} messages in {len(capture.written)} batches")
                if asked():
                    capture.end(query)
                    return 0 if command.every else INTERRUPTED
            capture.settle(query)
        except KeyboardInterrupt:
            query.stop()
            raise
        finally:
            captured = f"captured {_rows(capture.written):,} messages of '{command.entity}'"
            _say(f"{captured} in {len(capture.written)} batches")
            _say_reserved(command)
    return 0


def _say_reserved(command: Command) -> None:
    """Say that the entity is still reserved, and how to release it."""

    async def find() -> bool:
        async with _administration(command) as admin:
            found = [each async for each in admin.list_reservations()]
        path = command.entity.lower()
        return any(each.path.lower() == path and each.consumer == command.consumer for each in found)

    with suppress(ServiceBusError):
        if run(find()):
            _say(f"'{command.entity}' stays reserved for '{command.consumer}'; to release it: {release_line(command)}")


def _rows(manifests: Iterable[Mapping[str, Any]]) -> int:
    return sum(each["rows"] for each in manifests)


def _replay(spark: SparkSession, command: Command) -> int:
    from sbredis.spark.jobs import Replay, replayable

    rows = spark.read.parquet(command.source)
    parts = (command.source, command.entity, command.where or "")
    replay = Replay.named(_options(command), *parts, tasks=command.tasks, rate=command.rate)
    if command.write_id is not None:
        replay = Replay(_options(command), command.write_id, command.tasks, command.rate)
    if command.dry_run:
        number = replayable(rows, tasks=command.tasks, where=command.where).count()
        _say(f"would send {number:,} messages to '{command.entity}' under the write id {replay.write_id}")
        return 0
    try:
        replay.run(rows, command.where)
    except BaseException:
        if (sent := _sent(command, replay)) is not None:
            _say(f"sent {sent:,} rows until now; the same command sends the others, and none twice")
        raise
    _say(f"sent the rows of {command.source} to '{command.entity}' under the write id {replay.write_id}")
    return 0


def _sent(command: Command, replay: Replay) -> int | None:
    """Return how many rows of a replay are stored; ``None`` if the server cannot be asked."""

    async def count() -> int:
        return await stored_rows(await client_of(server_of(command.server)), command.entity, replay.write_id)

    try:
        return run(count())
    except ServiceBusError:
        return None


def _dead_letter_report(spark: SparkSession, command: Command) -> int:
    from sbredis.spark.jobs import dead_letter_report

    letters = _read(spark, command, subQueue="deadLetter", includeBody="false")
    return _show(dead_letter_report(letters, top=command.top), command)


def _resubmit(spark: SparkSession, command: Command) -> int:
    from sbredis.spark.jobs import with_fingerprint

    chosen = set(command.fingerprints) | _fingerprints(command.report)
    letters = with_fingerprint(_read(spark, command, subQueue="deadLetter", includeBody="false"))
    found = letters.where(letters["fingerprint"].isin(*chosen)).select("sequence_number").collect()
    numbers = sorted(row["sequence_number"] for row in found)
    if command.dry_run:
        _say(f"would move {len(numbers):,} dead letters of '{command.entity}'")
        return 0
    moved: list[int] = []
    try:
        run(_redrive(command, numbers, moved))
    except BaseException:
        _say(f"moved {sum(moved):,} of {len(numbers):,} dead letters; the others stay where they are")
        raise
    told = f"moved {sum(moved):,} of {len(numbers):,} dead letters of '{command.entity}'"
    _say(f"{told}; receivers took or hold the others")
    return 0


def _fingerprints(report: str | None) -> set[str]:
    if report is None:
        return set()
    try:
        with Path(report).open(encoding="utf-8", newline="") as lines:
            return {row["fingerprint"] for row in csv.DictReader(lines)}
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise SparkSetupError(
            f"{report} is no report of dlq-report as CSV, with a column fingerprint: {error!r}."
        ) from None


async def _redrive(command: Command, numbers: Sequence[int], moved: list[int]) -> None:
    """Move dead letters, and note in ``moved`` how many each call has moved."""
    client = await client_of(server_of(command.server))
    entity, subscription = split_path(command.entity)
    receiver = (
        client.get_queue_receiver(entity, sub_queue="deadletter")
        if subscription is None
        else client.get_subscription_receiver(entity, subscription, sub_queue="deadletter")
    )
    async with receiver:

        async def move(some: Sequence[int]) -> None:
            try:
                moved.append((await receiver.redrive_messages(sequence_numbers=some, rate=command.rate)).moved)
            except MessageNotFoundError:  # another receiver has taken one of them
                if len(some) > 1:
                    middle = len(some) // 2
                    await move(some[:middle])
                    await move(some[middle:])

        for at in range(0, len(numbers), _CHUNK):
            await move(numbers[at : at + _CHUNK])
            _progress(f"moved {sum(moved):,} of {len(numbers):,} dead letters")


def _latency(spark: SparkSession, command: Command) -> int:
    from sbredis.spark.jobs import latency_report

    return _show(latency_report(_read(spark, command, records="settlements")), command)


def _skew(spark: SparkSession, command: Command) -> int:
    from sbredis.spark.jobs import skew_report

    return _show(skew_report(_read(spark, command), top=command.top), command)


def _compact(spark: SparkSession, command: Command) -> int:
    from sbredis.spark.jobs import compacted

    ready = compacted(spark.read.parquet(command.source), files=command.files)
    try:
        ready.write.mode("errorifexists").partitionBy("entity", "date", "hour").parquet(command.to)
    except KeyboardInterrupt:
        _say(f"{command.to} is not complete: delete it before you run the command again")
        raise
    _say(f"wrote {spark.read.parquet(command.to).count():,} messages to {command.to}")
    return 0


def _administration(command: Command) -> ServiceBusAdministrationClient:
    server = server_of(command.server)
    return ServiceBusAdministrationClient(server.url, namespace=server.namespace)


async def _reservations(command: Command) -> int:
    async with _administration(command) as admin:
        found = [each async for each in admin.list_reservations()]
    for each in found:
        seen = "never" if each.last_seen is None else each.last_seen.astimezone(UTC).isoformat(timespec="seconds")
        stale = f"; stale, to end it: {release_line(command, each.path)}" if each.stale else ""
        _say(f"{each.path}: {each.state} by {each.consumer} ({each.owner}), last sign of life {seen}{stale}")
    if not found:
        _say("no entity is reserved")
    return 0


async def _release(command: Command) -> int:
    async with _administration(command) as admin:
        released = await admin.release_reservation(command.entity)
    _say(f"released '{command.entity}'" if released else f"'{command.entity}' was not reserved")
    return 0


_JOBS: Mapping[str, Callable[[SparkSession, Command], int]] = {
    "capture": _capture,
    "replay": _replay,
    "dlq-report": _dead_letter_report,
    "dlq-resubmit": _resubmit,
    "latency": _latency,
    "skew": _skew,
    "compact": _compact,
}
_WITHOUT_SPARK = {"reservations": _reservations, "release": _release}


# -- what a user sees --------------------------------------------------------------------------------------------------


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)  # noqa: T201 -- it is a program
    print(line, flush=True)  # noqa: T201


def _complain(line: str) -> None:
    print(f"sbredis: {line}", file=sys.stderr, flush=True)  # noqa: T201 -- it is a program


def _progress(line: str) -> None:
    """Show how far a job is, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)  # noqa: T201 -- it is a program


def _show(report: DataFrame, command: Command) -> int:
    """Print a report as a table, or write it as CSV."""
    rows = [tuple(map(_text, row)) for row in report.collect()]
    if command.csv is None:
        _table(report.columns, rows)
    elif command.csv == "-":
        csv.writer(sys.stdout).writerows([report.columns, *rows])
    else:
        with Path(command.csv).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([report.columns, *rows])
        _say(f"wrote {len(rows)} rows to {command.csv}")
    return 0


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)


_WIDEST = 60


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = [columns, *([text.replace("\n", " ")[:_WIDEST] for text in row] for row in rows)]
    widths = [max(len(row[place]) for row in shown) for place in range(len(columns))]
    for row in shown:
        _say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if not rows:
        _say("(nothing)")
