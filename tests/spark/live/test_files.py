"""Captured files are the same whatever the settings of the session are."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from sbredis import ServiceBusClient
from sbredis.exceptions import SparkSetupError
from sbredis.spark.jobs import Capture, Captured, compact, compacted, partitioned_by_time, read_captured
from tests.engine.test_codec import typed
from tests.spark.live.frames import messages
from tests.spark.live.kept import contents_of, send_random
from tests.spark.live.reading import send
from tests.spark.live.running import captured, run, waiting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ODD = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.maxConcurrentOutputFileWriters": "0",
    "spark.sql.session.timeZone": "Pacific/Auckland",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
}
"""Settings of which each would change what files are like, or how they are read."""


@pytest.fixture
def odd(spark: SparkSession) -> SparkSession:
    """A session of its own, whose settings are odd. It shares the rest of Spark with the session of the other tests,
    whose settings stay as they are.
    """
    session = spark.newSession()
    for name, value in ODD.items():
        session.conf.set(name, value)
    return session


def capture(spark: SparkSession, folder: Path, queue: str) -> None:
    given = {"urlEnv": "SBREDIS_URL", "queue": queue, "consumer": "capture", "maxMessagesPerTrigger": "15"}
    made = Capture(given, str(folder / "out"), str(folder / "check"))
    query = made.start(spark)
    query.awaitTermination()
    made.settle(query)
    assert (made.written.messages, made.written.batches > 1) == (30, True)


def types(folder: Path) -> set[tuple[Any, Any]]:
    """Return the types of two columns in all files of a folder."""
    schemas = [parquet.read_schema(path) for path in folder.glob("entity=*/**/*.parquet")]
    return {(schema.field("enqueued_time").type, schema.field("body").type) for schema in schemas}


@pytest.mark.long("Spark needs seconds for each query")
def test_a_capture_and_its_compacted_files_do_not_depend_on_the_session(
    odd: SparkSession, emptied: str, tmp_path: Path
) -> None:
    """The name of the entity could be taken for a number, and would lose its zeros."""
    send(emptied, "007", map(str, range(30)))
    capture(odd, tmp_path, "007")
    assert waiting(emptied, "007") == (0, 0)
    compact(odd, str(tmp_path / "out"), str(tmp_path / "fewer"))
    for folder in (tmp_path / "out", tmp_path / "fewer"):
        assert captured(folder) == sorted(str(number).encode() for number in range(30))
        assert {each.name for each in folder.glob("entity=*")} == {"entity=007"}
        assert types(folder) == {(pa.timestamp("us", tz="UTC"), pa.binary())}
        found = read_captured(odd, str(folder))
        assert {row["entity"] for row in found.select("entity").distinct().collect()} == {"007"}
    assert {name: odd.conf.get(name) for name in ODD} == ODD


@pytest.mark.long("Spark needs seconds for each query")
def test_every_part_of_a_message_survives_a_capture_and_a_replay(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    """Also if the files are compacted between the two."""
    send_random(emptied, "source", 150, 11)
    wait_until(lambda: waiting(emptied, "source")[1] == 0)
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("target", enable_partitioning=True)
        client.ensure_queue("again", enable_partitioning=True)
    before = contents_of(emptied, "source")
    # A capture takes no message before its time.
    enqueued = [each for each in before if each["scheduled"] == typed(None)]
    assert 50 < len(enqueued) < len(before)
    run(spark, "capture", "source", "--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "check"))
    compact(spark, str(tmp_path / "out"), str(tmp_path / "fewer"))
    for folder, queue in (("out", "target"), ("fewer", "again")):
        run(spark, "replay", queue, "--source", str(tmp_path / folder), "--tasks", "2")
        assert contents_of(emptied, queue) == enqueued


def older(folder: Path, *bodies: bytes) -> None:
    """Write a captured file of version 1, which does not say its version."""
    names = ["incarnation", "message_id", "session_id", "body"]
    columns: dict[str, Any] = {name: pa.array([None] * len(bodies), pa.string()) for name in names[:-1]}
    columns["application_properties"] = pa.array([[("n", "1")]] * len(bodies), pa.map_(pa.string(), pa.string()))
    columns |= {"body": list(bodies), "partition": pa.array([0] * len(bodies), pa.int32())}
    columns["sequence_number"] = list(range(len(bodies)))
    place = folder / "entity=orders" / "date=2026-05-01" / "hour=7" / "batch_id=old-0000000000"
    place.mkdir(parents=True)
    parquet.write_table(pa.table(columns), place / "part.parquet")


@pytest.mark.long("Spark needs seconds for each query")
def test_files_of_an_earlier_release_are_read_alone_and_beside_others(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    older(tmp_path / "out", b"1", b"2")
    send(emptied, "again", [])
    run(spark, "replay", "again", "--source", str(tmp_path / "out"), "--tasks", "1", "--write-id", "one")
    assert "capture_format" not in read_captured(spark, str(tmp_path / "out")).columns
    send(emptied, "orders", ["3"])
    run(spark, "capture", "orders", "--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "check"))
    found = read_captured(spark, str(tmp_path / "out"))
    assert {(bytes(row["body"]), row["capture_format"]) for row in found.collect()} == {
        (b"1", None),
        (b"2", None),
        (b"3", 2),
    }
    run(spark, "replay", "again", "--source", str(tmp_path / "out"), "--tasks", "1", "--write-id", "two")
    compact(spark, str(tmp_path / "out"), str(tmp_path / "fewer"))
    assert captured(tmp_path / "fewer") == [b"1", b"2", b"3"]
    with ServiceBusClient(emptied) as client, client.get_queue_receiver("again") as receiver:
        rows = sorted((bytes(each.body), str(each.application_properties)) for each in receiver.peek_messages(10))
    old = [(b"1", "{'n': '1'}"), (b"2", "{'n': '1'}")]
    assert rows == sorted([*old, *old, (b"3", "None")])


@pytest.mark.long("Spark needs seconds for each query")
def test_files_of_a_later_release_are_refused_before_anything_is_sent(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    send(emptied, "again", [])
    rows = partitioned_by_time(messages(spark, {"entity": "q"})).selectExpr("*", "3 AS capture_format")
    rows.write.partitionBy("entity", "date", "hour").parquet(str(tmp_path / "out"))
    with pytest.raises(SparkSetupError, match="have the format 3, and this release of sbredis reads up to 2"):
        run(spark, "replay", "again", "--source", str(tmp_path / "out"), "--tasks", "1")
    assert waiting(emptied, "again") == (0, 0)


@pytest.mark.long("Spark needs seconds for each query")
def test_rows_whose_entities_were_taken_for_numbers_are_refused(spark: SparkSession) -> None:
    rows = partitioned_by_time(messages(spark, {"entity": "007"}))
    with pytest.raises(SparkSetupError, match=r"The column entity has the type int.*jobs.read_captured"):
        compacted(rows.selectExpr("* EXCEPT (entity)", "CAST(entity AS INT) AS entity"))


def test_a_capture_that_runs_for_long_keeps_only_counts() -> None:
    """It may write a batch each second for years."""
    written = Captured()
    assert written.all_committed(None)
    for number in range(7, 27):
        written.add(number, 3)
    assert astuple(written) == (60, 20, 26)
    assert [written.all_committed(committed) for committed in (None, 25, 26, 27)] == [False, False, True, True]
