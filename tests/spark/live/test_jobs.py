"""The jobs: what they make of rows, and each of them over a real server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from sbredis import ServiceBusClient
from sbredis.exceptions import MessagesLostError
from sbredis.spark.jobs import compacted, latency_report, lives, partitioned_by_time, skew_report
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.chaos.moments import Folders
from tests.spark.live.frames import NOON, messages, settlements
from tests.spark.live.reading import send
from tests.spark.live.running import captured, run, waiting
from tests.waiting import wait_until

# -- what the jobs make of rows ----------------------------------------------------------------------------------------


@pytest.mark.long("Spark needs seconds for each query")
def test_the_folder_of_a_message_is_its_hour_in_utc(spark: SparkSession) -> None:
    """Whatever the time zone of the session is, and over its change to summer time."""
    times = [NOON.replace(hour=hour, minute=59) for hour in (0, 1, 2, 23)] + [datetime(1969, 12, 31, 23, tzinfo=UTC)]
    rows = messages(spark, *({"enqueued_time": time} for time in times))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        found = partitioned_by_time(rows).select("date", "hour").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [(str(row["date"]), row["hour"]) for row in found] == [(str(time.date()), time.hour) for time in times]


@pytest.mark.long("Spark needs seconds for each query")
def test_the_life_of_a_message_is_put_together_from_its_settlements(spark: SparkSession) -> None:
    enqueued = {"enqueued_time": NOON}
    rows = settlements(
        spark,
        (1, "given", 1, enqueued),
        (1, "abandoned", 2, {}),
        (1, "given", 4, enqueued),
        (1, "completed", 9, {}),
        (2, "taken", 3, enqueued),
        (3, "expired", 5, {}),
        (4, "given", 1, enqueued),
        (4, "deliveries_exceeded", 2, {}),
        (4, "completed", 9, {"sub_queue": "deadLetter"}),
        (5, "completed", 9, {}),  # taken in bulk, or its delivery is forgotten
        (None, "lost", 0, {"lost": 7}),
    )
    found = {row["sequence_number"]: row for row in lives(rows).collect()}
    assert set(found) == {1, 2, 3, 4, 5}
    assert (found[1]["deliveries"], found[1]["completed_time"]) == (2, _naive(NOON + timedelta(seconds=9)))
    assert [found[number]["expired"] for number in (1, 2, 3, 4)] == [False, False, True, False]
    assert [found[number]["dead"] for number in (1, 2, 3, 4)] == [False, False, False, True]
    report = {row["measure"]: row for row in latency_report(rows).collect()}
    assert [(name, row["messages"], row["p50"], row["max"]) for name, row in report.items()] == [
        ("wait", 3, 1.0, 3.0),
        ("work", 2, 0.0, 5.0),
        ("total", 2, 3.0, 9.0),
        ("deliveries", 2, 1.0, 2.0),
        ("redelivered", 1, None, None),
        ("expired", 1, None, None),
        ("dead_lettered", 1, None, None),
        ("lost", 7, None, None),
    ]


def _naive(time: datetime) -> datetime:
    """Return a time as Spark gives it: without a zone, in that of the session or of the process."""
    return datetime.fromtimestamp(time.timestamp())  # noqa: DTZ006


@pytest.mark.long("Spark needs seconds for each query")
def test_the_spread_of_messages_is_reported(spark: SparkSession) -> None:
    rows = messages(
        spark,
        {"partition": 2, "session_id": "a", "body": b"four"},
        {"partition": 2, "session_id": "a", "state": "deferred"},
        {"partition": 10, "session_id": "b"},
        {"partition": 10, "partition_key": "k", "state": "scheduled"},
    )
    found = [tuple(row)[:8] for row in skew_report(rows, top=1).collect()]
    assert found == [
        ("partition", "2", 2, 0.5, 5, 1, 1, 0),
        ("partition", "10", 2, 0.5, 2, 1, 0, 1),
        ("session", "a", 2, 0.5, 5, 1, 1, 0),
        ("key", "k", 1, 0.25, 1, 0, 0, 1),
    ]


@pytest.mark.long("Spark needs seconds for each query")
def test_captured_messages_are_compacted_without_duplicates(spark: SparkSession) -> None:
    captured = partitioned_by_time(messages(spark, *({"partition": number % 2} for number in range(6))))
    twice = captured.selectExpr("*", "'one' AS batch_id").union(captured.selectExpr("*", "'two' AS batch_id"))
    found = compacted(twice)
    assert "batch_id" not in found.columns
    assert [row["sequence_number"] for row in found.collect()] == [0, 2, 4, 1, 3, 5]


# -- each job over a server --------------------------------------------------------------------------------------------


@pytest.mark.long("Spark needs seconds for each query")
def test_a_queue_is_captured_reported_resubmitted_and_replayed(
    spark: SparkSession, emptied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each message is in the files once, the queue is empty, and a second run of each job changes nothing."""
    out, check, report = tmp_path / "out", tmp_path / "check", tmp_path / "report.csv"
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("orders", enable_partitioning=True)
    send(emptied, "orders", map(str, range(40)))
    with ServiceBusClient(emptied) as client, client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(10):
            receiver.dead_letter_message(message, reason="bad", error_description=f"order {message.body!r} of 1999")
    capture = ("capture", "orders", "--to", str(out), "--checkpoint", str(check), "--max-messages", "12")
    run(spark, *capture)
    assert waiting(emptied, "orders") == (0, 10)
    assert len(captured(out)) == 30
    manifests = [json.loads(file.read_text()) for file in sorted(out.glob("_manifest/*/part-*"))]
    assert sum(each["rows"] for each in manifests) == 30
    file = next(out.glob("entity=*/**/*.parquet"))
    assert parquet.read_schema(file).field("enqueued_time").type == pa.timestamp("us", tz="UTC")

    run(spark, "dlq-report", "orders", "--csv", str(report))
    assert "bad: order b'#' of #" in report.read_text()
    run(spark, "dlq-resubmit", "orders", "--report", str(report), "--dry-run")
    assert waiting(emptied, "orders") == (0, 10)
    for _ in range(2):
        run(spark, "dlq-resubmit", "orders", "--report", str(report))
        assert waiting(emptied, "orders") == (10, 0)
    for _ in range(2):
        run(spark, *capture)
        assert waiting(emptied, "orders") == (0, 0)
        assert captured(out) == sorted(str(number).encode() for number in range(40))

    with ServiceBusClient(emptied) as client:
        client.ensure_queue("again", enable_partitioning=True)
    chosen = "CAST(CAST(body AS STRING) AS INT) < 25"
    replay = ("replay", "again", "--source", str(out), "--where", chosen, "--tasks", "2")
    run(spark, *replay, "--dry-run")
    assert waiting(emptied, "again") == (0, 0)
    for _ in range(2):
        run(spark, *replay, "--rate", "10000")
        assert waiting(emptied, "again") == (25, 0)
    run(spark, "compact", "--source", str(out), "--to", str(tmp_path / "fewer"))
    assert captured(tmp_path / "fewer") == captured(out)
    assert len(list(tmp_path.glob("fewer/*/*/*/*.parquet"))) <= len(list(out.glob("entity=*/*/*/*/*.parquet")))

    capsys.readouterr()
    run(spark, "reservations")
    assert "orders: reserved by capture" in capsys.readouterr().out
    run(spark, "release", "orders")
    run(spark, "release", "orders")
    told = capsys.readouterr().out
    assert ("released 'orders'" in told, "'orders' was not reserved" in told) == (True, True)


@pytest.mark.long("Spark needs seconds for each query")
def test_another_checkpoint_writes_no_file_of_an_earlier_one_again(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    """The first batch of each checkpoint has the number 0, but its files have the id of its query."""
    out = tmp_path / "out"
    for number in range(2):
        send(emptied, "orders", [f"{number}-{each}" for each in range(5)])
        run(spark, "capture", "orders", "--to", str(out), "--checkpoint", str(tmp_path / f"check{number}"))
    assert captured(out) == sorted(f"{number}-{each}".encode() for number in range(2) for each in range(5))


@pytest.mark.long("Spark needs seconds for each query")
def test_a_lost_partition_is_reported_and_nothing_is_written(spark: SparkSession, emptied: str, tmp_path: Path) -> None:
    capture = ("capture", "orders", "--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "check"))
    send(emptied, "orders", ["1"])
    run(spark, *capture)
    before = captured(tmp_path / "out")
    with ServiceBusAdministrationClient(emptied) as admin:
        admin.release_reservation("orders")
        admin.delete_queue("orders")
    send(emptied, "orders", ["2"])
    with pytest.raises(Exception, match=MessagesLostError.__name__):
        run(spark, *capture)
    assert captured(tmp_path / "out") == before
    assert waiting(emptied, "orders") == (1, 0)
    run(spark, *capture, "--accept-loss")
    assert captured(tmp_path / "out") == [b"1", b"2"]


@contextmanager
def interrupted_when(condition: Callable[[], object]) -> Generator[None]:
    """Send this process SIGINT, as Ctrl-C does, as soon as a condition holds. The main thread is in the block."""

    def wait() -> None:
        wait_until(condition)
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.long("Spark needs seconds for each query")
def test_an_interrupted_capture_ends_after_its_batch(
    spark: SparkSession, emptied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in the files is no longer in the queue, also after its release."""
    at = Folders(tmp_path)
    send(emptied, "orders", map(str, range(60)))
    given = ("capture", "orders", "--to", str(at.out), "--checkpoint", str(at.checkpoint), "--max-messages", "20")
    with interrupted_when(at.staged):
        run(spark, *given, "--every", "0 seconds")
    told = capsys.readouterr()
    stored = captured(at.out)
    assert f"captured {len(stored)} messages of 'orders' in {len(stored) // 20} batch" in told.out
    assert "'orders' stays reserved for 'capture'; to release it: python -m sbredis.spark release orders" in told.out
    assert "ending after the batch that is being written" in told.err
    assert not at.staged()
    run(spark, "release", "orders")
    assert waiting(emptied, "orders") == (60 - len(stored), 0)
    run(spark, *given, "--accept-loss")  # Spark may have planned the next batch, whose messages were released
    assert captured(at.out) == sorted(str(number).encode() for number in range(60))


@pytest.mark.long("Spark needs seconds for each query")
def test_the_latency_of_an_audited_queue_is_measured(
    spark: SparkSession, emptied: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("orders", audit=True)
    send(emptied, "orders", map(str, range(5)), partitioned=False)
    with ServiceBusClient(emptied) as client, client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(5):
            receiver.complete_message(message)
    run(spark, "latency", "orders", "--csv", "-")
    told = capsys.readouterr().out
    assert "total,5," in told
    assert "lost,0," in told
    run(spark, "skew", "orders")
    assert "(nothing)" in capsys.readouterr().out
