"""Tests of the listener that tells how far streams are behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sbredis.spark._lag import PartitionLag, lag_report
from sbredis.spark._planning import EntityPartition
from sbredis.spark.progress import EntityLag, ProgressListener, lags_of, measures_of
from tests.spark.live.reading import send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
NAMES = {"orders": "Orders", "invoices": "invoices"}
LAGS = {
    EntityPartition("orders", 1): PartitionLag(281474976710700, 1200, 240_000, 1_000_000),
    EntityPartition("orders", 0): PartitionLag(17, 0, 0, 0),
    EntityPartition("invoices", 0): PartitionLag(5, 1, 10, 1_004_000),
}


def progress(*reported: object, name: str | None = "capture") -> dict[str, Any]:
    return {"id": "a-b-c", "name": name, "sources": [{"latestOffset": each} for each in reported]}


REPORT = lag_report(LAGS, NAMES, now=1_005_000)


def test_a_report_has_the_lag_of_all_and_of_each_partition() -> None:
    assert REPORT["messagesLeft"] == 1201
    assert (REPORT["bytesLeft"], REPORT["secondsBehind"], REPORT["oldestEnqueuedTime"]) == (240_010, 5.0, 1_000_000)
    one = {"number": 281474976710700, "left": 1200, "bytes": 240_000, "seconds": 5.0}
    assert REPORT["entities"]["Orders"] == {"0": {"number": 17, "left": 0, "bytes": 0, "seconds": 0.0}, "1": one}


def test_the_lags_of_a_query_come_back_from_its_progress() -> None:
    for reported in (REPORT, json.dumps(REPORT)):
        found = lags_of(progress(reported, None, "17", '{"orders": {"0": 5}}', "[1]", {"entities": 5}))
        assert len(found) == 3
        assert EntityLag("capture", "Orders", 1, 281474976710700, 1200, 240_000, 5.0) in found
    assert lags_of(progress(REPORT, name=None))[0].query == "a-b-c"


def test_a_line_tells_what_is_left_of_each_entity() -> None:
    told: list[str] = []
    listener = ProgressListener(told.append)
    listener.note(progress(REPORT))
    listener.note(progress('{"0": 5}'))
    (line,) = told
    assert line == (
        "capture: 'invoices' 1 message (about 10 bytes), 1.0 s behind, "
        "'Orders' 1,200 messages (about 240,000 bytes), 5.0 s behind"
    )


def test_measures_name_the_query_the_entity_and_the_partition(tmp_path: Path) -> None:
    text = measures_of(lags_of(progress(REPORT)))
    assert 'sbredis_spark_messages_left{query="capture",entity="Orders",partition="1"} 1200\n' in text
    assert 'sbredis_spark_seconds_behind{query="capture",entity="Orders",partition="1"} 5.0\n' in text
    listener = ProgressListener(file=tmp_path / "lag.prom")
    listener.note(progress(REPORT))
    assert (tmp_path / "lag.prom").read_text("utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["lag.prom"]


@pytest.mark.long("Spark needs seconds for each query")
def test_spark_shows_the_lag_of_a_stream_to_the_listener(spark: SparkSession, emptied: str, tmp_path: Path) -> None:
    send(emptied, "orders", map(str, range(50)), partitioned=False)
    file = tmp_path / "lag.prom"
    listener = ProgressListener(file=file)
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format("sbredis").options(
            urlEnv="SBREDIS_SECRET_URL", queue="orders", maxMessagesPerTrigger=20
        )
        writer = stream.load().writeStream.queryName("watched").format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(900)
        found = [lag for each in query.recentProgress for lag in lags_of(json.loads(each.json))]
        assert [lag.messages for lag in found][:3] == [30, 10, 0]
        assert found[0].seconds > 0
        wait_until(file.exists)
        assert "sbredis_spark_messages_left" in file.read_text("utf-8")
    finally:
        spark.streams.removeListener(listener)
