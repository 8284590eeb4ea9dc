"""Run the jobs of ``python -m sbredis.spark``: make the session, run one job, and say what it did."""

from __future__ import annotations

import csv
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sbredis._counting import counted
from sbredis._quoting import quoted
from sbredis._visible import without_guard
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import Browser, destination_of, stored_rows
from sbredis.engine import name_key
from sbredis.exceptions import MessageNotFoundError, ServiceBusError, SparkSetupError
from sbredis.registry import split_path
from sbredis.spark._commands import INTERRUPTED, PROGRAM_VARIABLE, SETUP_FAILED, JobCommand, release_line, with_program
from sbredis.spark._loop import client_of, run
from sbredis.spark._reservations import shown
from sbredis.spark._secrets import refuse_memory, server_of, warn_of_password
from sbredis.spark._telling import complain, progress, require_writable, say, show, showing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sbredis.spark.jobs import Capture, Replay

__all__ = ["run_job"]

_CHUNK = 500
"""The number of dead letters that one redrive moves."""


def run_job(command: JobCommand, spark: SparkSession | None = None) -> int:
    """Run a job, and return the exit code. Without ``spark``, the job has a session of its own."""
    if command.server:
        warn_of_password(command.server)
        server = server_of(command.server)  # a missing variable or file is an error before Spark starts
        if command.needs_spark:
            refuse_memory(server)
    if command.csv is not None:
        require_writable(command.csv)
    if command.report is not None:
        _require_readable(command.report)
    if not command.needs_spark:
        return run(_WITHOUT_SPARK[command.job](command))
    if spark is not None:
        return _JOBS[command.job](spark, command)
    return _run_alone(command)


def _run_alone(command: JobCommand) -> int:
    """Run a job in a session of its own, and say in one line why it failed, if that is known."""
    from pyspark.errors import PySparkException

    from sbredis.spark._endings import GONE, is_gone, reason_of, stop
    from sbredis.spark.jobs._files import told

    spark = _session(command)
    try:
        return _JOBS[command.job](spark, command)
    except Exception as error:
        said = GONE if is_gone(spark) else reason_of(error)
        if said is None:
            if isinstance(error, ServiceBusError):
                error.message = with_program(error.message, command)
            elif isinstance(error, PySparkException):
                complain(told(str(error)))  # the whole error comes after the sentence
            raise
        complain(with_program(said, command))
        return SETUP_FAILED if said.startswith(SparkSetupError.__name__) else 1
    finally:
        stop(spark)


def _session(command: JobCommand) -> SparkSession:
    """Start Spark. Ctrl-C ends the job only when Spark has started. Before, it would leave a Java process behind."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ[PROGRAM_VARIABLE] = shlex.join(command.program)
    from pyspark.sql import SparkSession

    from sbredis.spark._endings import asked_to_end, stop
    from sbredis.spark._registering import register

    builder = SparkSession.builder.appName(f"sbredis {command.job} {command.entity}".strip())
    if command.master is not None:
        builder = builder.master(command.master)
    if not sys.stderr.isatty() or command.job in _WITH_PROGRESS:
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    with asked_to_end(lambda: complain("ending as soon as Spark has started")) as asked:
        spark = builder.getOrCreate()
    if asked():
        stop(spark)
        raise KeyboardInterrupt
    register(spark)
    return spark


def _options(command: JobCommand) -> dict[str, str]:
    topic, subscription = split_path(command.entity)
    if subscription is None:
        return {**command.server, "queue": topic}
    return {**command.server, "topic": topic, "subscription": subscription}


def _read(spark: SparkSession, command: JobCommand, **options: str) -> DataFrame:
    return spark.read.format("sbredis").options(**_options(command), **options).load()


# -- the jobs ----------------------------------------------------------------------------------------------------------


def _capture(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark._endings import asked_to_end
    from sbredis.spark.jobs import Capture

    options = {**_options(command), "consumer": command.consumer}
    if command.most_rows is not None:
        options["maxMessagesPerTrigger"] = str(command.most_rows)
    if command.accept_loss:
        options["failOnDataLoss"] = "false"
    capture = Capture(options, command.to, command.checkpoint)
    with asked_to_end(lambda: complain("ending after the batch that is being written; Ctrl-C ends it now")) as asked:
        query = capture.start(spark, every=command.every)
        try:
            while not query.awaitTermination(1):
                progress(_captured(capture))
                if asked():
                    capture.end(query)
                    return 0 if command.every else INTERRUPTED
            capture.settle(query)
        except KeyboardInterrupt:
            query.stop()
            raise
        finally:
            say(_captured(capture, f" of '{command.entity}'"))
            _say_reserved(command)
    return 0


def _say_reserved(command: JobCommand) -> None:
    """Say that the entity is still reserved, and how to release it."""

    async def find() -> bool:
        async with _administration(command) as admin:
            found = [each async for each in admin.list_reservations()]
        path = command.entity.lower()
        return any(each.path.lower() == path and each.consumer == command.consumer for each in found)

    with suppress(ServiceBusError):
        if run(find()):
            say(f"'{command.entity}' stays reserved for '{command.consumer}'; to release it: {release_line(command)}")


def _captured(capture: Capture, entity: str = "") -> str:
    written = capture.written
    return f"captured {counted(written.messages, 'message')}{entity} in {counted(written.batches, 'batch', 'batches')}"


def _replay(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark.jobs import Replay, read_captured, replayable

    options = run(_destination(command))
    rows = read_captured(spark, command.source)
    parts = (_one_spelling(command.source), name_key(command.entity), (command.where or "").strip())
    replay = Replay.named(options, *parts, tasks=command.tasks, rate=command.rate)
    if command.write_id is not None:
        replay = Replay(options, command.write_id, command.tasks, command.rate)
    if command.dry_run:
        ready = replayable(rows, tasks=command.tasks, where=command.where, drop=command.drop)
        replay.check()
        number = ready.count()
        say(f"would send {counted(number, 'message')} to '{command.entity}' under the write id {replay.write_id}")
        return 0
    ready = replay.build(rows, command.where, command.drop)
    replay.check()  # nothing was sent yet, so nothing is said of it
    try:
        with showing(lambda: _sent(command, replay)):
            replay.send(ready)
    except BaseException:
        told = _sent(command, replay)
        if told is not None:
            say(f"{told} until now; the same command sends the others, and none twice")
        raise
    told = _sent(command, replay) or "sent the rows"
    say(f"{told} of {command.source} to '{command.entity}' under the write id {replay.write_id}")
    return 0


async def _destination(command: JobCommand) -> dict[str, str]:
    """Return the options of a write to the entity of a job."""
    found = await destination_of(await client_of(server_of(command.server)), command.entity)
    if found.kind == "subscription":
        raise SparkSetupError(f"'{found.path}' is a subscription: messages are sent to its topic, or to a queue.")
    return {**command.server, found.kind: found.path}


def _one_spelling(source: str) -> str:
    """Return the same text for the spellings of a folder of this machine. URIs of other file systems are kept."""
    path = re.sub("^file:/+", "/", source)
    return source.rstrip("/") if "://" in path else str(Path(path).resolve())


def _sent(command: JobCommand, replay: Replay) -> str | None:
    """Return how many rows of a replay are stored; ``None`` if the server cannot be asked."""

    async def count() -> int:
        return await stored_rows(await client_of(server_of(command.server)), command.entity, replay.write_id)

    try:
        return f"sent {counted(run(count()), 'row')}"
    except ServiceBusError:
        return None


def _dead_letter_report(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark.jobs import dead_letter_report

    letters = _read(spark, command, subQueue="deadLetter", includeBody="false")
    return show(dead_letter_report(letters, top=command.top), command.csv, only_in_file=("letters",))


def _resubmit(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark.jobs import reported, resubmittable

    report = reported(_report(command.report))
    _require_incarnation({row.incarnation for row in report}, command)
    letters = _read(spark, command, subQueue="deadLetter", includeBody="false")
    found = resubmittable(letters, report, command.fingerprints).select("sequence_number", "fingerprint").collect()
    known = {row["fingerprint"] for row in found} | {row.fingerprint for row in report}
    for fingerprint in command.fingerprints:
        if fingerprint not in known:
            raise SparkSetupError(
                f"No dead letter of '{command.entity}' has the fingerprint {quoted(fingerprint)}, and none was moved. "
                "dlq-report shows the fingerprints."
            )
    numbers = sorted(row["sequence_number"] for row in found)
    if command.dry_run:
        say(f"would move {counted(len(numbers), 'dead letter')} of '{command.entity}'")
        return 0
    moved: list[int] = []
    try:
        run(_redrive(command, numbers, moved))
    except BaseException:
        say(f"moved {sum(moved):,} of {counted(len(numbers), 'dead letter')}; the others stay where they are")
        raise
    told = f"moved {sum(moved):,} of {counted(len(numbers), 'dead letter')} of '{command.entity}'"
    say(f"{told}; receivers took or hold the others" if sum(moved) < len(numbers) else told)
    return 0


def _require_readable(path: str) -> None:
    """Refuse a report that cannot be opened. A pipe is opened only once, when it is read."""
    try:
        if not stat.S_ISFIFO(Path(path).stat().st_mode):
            Path(path).open("rb").close()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> SparkSetupError:
    return SparkSetupError(f"The report {path} cannot be read: {error}.")


def _report(path: str | None) -> list[dict[str, str]]:
    """Return the rows of a report as CSV."""
    if path is None:
        return []
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            return [
                {name: without_guard(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
                for row in csv.DictReader(lines)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None


def _require_incarnation(reported: Collection[str], command: JobCommand) -> None:
    """Refuse a report about an entity that was deleted and created again."""

    async def find() -> str:
        browser = await Browser.open(await client_of(server_of(command.server)), command.entity)
        await browser.refresh()
        return browser.incarnation

    if reported and set(reported) != {run(find())}:
        raise SparkSetupError(
            f"The report is not about the dead letters of '{command.entity}' as it is now: it is about another entity, "
            "or the entity was created again. Run dlq-report again."
        )


async def _redrive(command: JobCommand, numbers: Sequence[int], moved: list[int]) -> None:
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
            progress(f"moved {sum(moved):,} of {counted(len(numbers), 'dead letter')}")


def _latency(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark.jobs import latency_report

    return show(latency_report(_read(spark, command, records="settlements")), command.csv)


def _skew(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark.jobs import skew_report

    return show(skew_report(_read(spark, command), top=command.top), command.csv)


def _compact(spark: SparkSession, command: JobCommand) -> int:
    from sbredis.spark.jobs import compact

    try:
        compact(spark, command.source, command.to, files=command.files)
    except KeyboardInterrupt:
        say(f"{command.to} is not complete: delete it before you run the command again")
        raise
    say(f"wrote {counted(spark.read.parquet(command.to).count(), 'message')} to {command.to}")
    return 0


def _administration(command: JobCommand) -> ServiceBusAdministrationClient:
    server = server_of(command.server)
    return ServiceBusAdministrationClient(server.url, namespace=server.namespace)


async def _reservations(command: JobCommand) -> int:
    async with _administration(command) as admin:
        found = [each async for each in admin.list_reservations(stale_after=command.stale_after)]
    for each in found:
        for line in shown(each, release_line(command, each.path)):
            say(line)
    if not found:
        say("no entity is reserved")
    return 0


async def _release(command: JobCommand) -> int:
    async with _administration(command) as admin:
        released = await admin.release_reservation(command.entity)
    say(f"released '{command.entity}'" if released else f"'{command.entity}' was not reserved")
    return 0


_JOBS: Mapping[str, Callable[[SparkSession, JobCommand], int]] = {
    "capture": _capture,
    "replay": _replay,
    "dlq-report": _dead_letter_report,
    "dlq-resubmit": _resubmit,
    "latency": _latency,
    "skew": _skew,
    "compact": _compact,
}
_WITH_PROGRESS = ("capture", "replay", "dlq-resubmit")
"""The jobs that show their progress themselves, instead of Spark's stages."""
_WITHOUT_SPARK = {"reservations": _reservations, "release": _release}
