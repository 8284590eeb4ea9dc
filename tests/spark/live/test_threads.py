"""A thread that has not made the session finds the format after one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from sbredis.spark import register
from sbredis.spark.jobs import Capture, Replay
from tests.spark.live.reading import send
from tests.spark.live.running import captured, waiting


def in_thread(work: Callable[[], object]) -> BaseException | None:
    """Do work in a new thread. Return its error, if there is one."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- the caller looks at it
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None


def registered(spark: SparkSession, work: Callable[[], object]) -> None:
    """Do work after the call that lets a thread find the format."""
    register(spark)
    work()


@pytest.mark.long("Spark needs seconds for each query")
def test_batches_and_streams_work_in_a_thread_that_registers_the_format(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    send(emptied, "orders", ["1", "2"])
    send(emptied, "from-thread", [])
    given = {"urlEnv": "SBREDIS_URL"}

    def write() -> None:
        rows = spark.read.format("sbredis").options(**given, queue="orders").load()
        rows.select("body").write.format("sbredis").options(**given, queue="from-thread").mode("append").save()

    def stream() -> None:
        rows = spark.readStream.format("sbredis").options(**given, queue="orders").load()
        writing = rows.select("body").writeStream.format("sbredis").options(**given, queue="from-thread")
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()

    for work in (write, stream):
        assert "DATA_SOURCE_NOT_FOUND" in str(in_thread(work))
    assert waiting(emptied, "from-thread") == (0, 0)
    for number, work in enumerate((write, stream), 1):
        assert in_thread(partial(registered, spark, work)) is None
        assert waiting(emptied, "from-thread") == (2 * number, 0)


@pytest.mark.long("Spark needs seconds for each query")
def test_jobs_work_in_any_thread(spark: SparkSession, emptied: str, tmp_path: Path) -> None:
    send(emptied, "orders", ["1", "2"])
    send(emptied, "again", [])
    made = Capture(
        {"urlEnv": "SBREDIS_URL", "queue": "orders", "consumer": "c"}, str(tmp_path / "out"), str(tmp_path / "check")
    )
    assert in_thread(lambda: made.start(spark).awaitTermination()) is None
    assert captured(tmp_path / "out") == [b"1", b"2"]
    rows = spark.range(3).selectExpr("STRING(id) AS body")
    replay = Replay({"urlEnv": "SBREDIS_URL", "queue": "again"}, "load", tasks=2)
    assert in_thread(lambda: replay.run(rows)) is None
    assert waiting(emptied, "again") == (3, 0)
