"""Tests of the filters that a batch read gets from Spark: they narrow what is read, and never leave out a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from sbredis.spark._browse import FilteringReader
from sbredis.spark._filters import Bounds, bounds_of
from tests.spark.live.reading import Row, query, rows_of, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MS = round(NOON.timestamp() * 1000)


def on(kind: Any, column: str, value: object) -> Filter:
    made: Filter = kind((column,), value)
    return made


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([on(EqualTo, "subject", "x"), on(GreaterThan, "delivery_count", 3)], Bounds()),
        ([on(EqualTo, "partition", 3)], Bounds(partitions=frozenset({3}))),
        ([on(In, "partition", (1, 2, 3)), on(In, "partition", (2, 3, 4))], Bounds(partitions=frozenset({2, 3}))),
        ([on(EqualTo, "partition", None)], Bounds(partitions=frozenset())),
        ([on(GreaterThan, "sequence_number", 5), on(LessThanOrEqual, "sequence_number", 9)], Bounds(least=5, most=9)),
        ([on(EqualTo, "sequence_number", 5), on(LessThan, "sequence_number", 9)], Bounds(least=5, most=5)),
        ([on(GreaterThan, "sequence_number", "5")], Bounds()),
        ([on(GreaterThanOrEqual, "enqueued_time", NOON)], Bounds(since=MS)),
        ([on(LessThan, "enqueued_time", NOON + timedelta(microseconds=7))], Bounds(until=MS)),
        ([on(GreaterThan, "enqueued_time", NOON.replace(tzinfo=None)), on(In, "partition", (1,))], None),
    ],
)
def test_filters_become_bounds(filters: list[Filter], bounds: Bounds | None) -> None:
    assert bounds_of(filters) == (bounds or Bounds(partitions=frozenset({1}), since=MS))


def read(url: str, *filters: Filter, **options: str) -> list[Row]:
    reader = FilteringReader(query(url, stream=False, queue="orders", pushFilters="true", **options))
    assert reader.pushFilters(list(filters)) == list(filters)  # Spark applies them as well
    return rows_of(reader, reader.partitions())


def test_a_read_has_only_what_the_filters_leave(url: str) -> None:
    send(url, "orders", map(str, range(60)))
    before = max(row["enqueued_time"] for row in read(url))
    wait_until(lambda: datetime.now(UTC) > before + timedelta(milliseconds=2))
    send(url, "orders", map(str, range(60, 100)))
    rows = read(url)
    assert len(rows) == 100
    partition = rows[0]["partition"]
    assert {row["partition"] for row in read(url, on(EqualTo, "partition", partition))} == {partition}
    assert read(url, on(EqualTo, "partition", -1)) == []
    numbers = sorted(row["sequence_number"] for row in rows)
    found = read(url, on(GreaterThanOrEqual, "sequence_number", numbers[10]), on(LessThan, "sequence_number", 1 << 62))
    assert sorted(row["sequence_number"] for row in found) == numbers[10:]
    assert len(read(url, on(EqualTo, "sequence_number", numbers[50]))) == 1
    late = read(url, on(GreaterThan, "enqueued_time", before))
    assert {row["body"] for row in rows if row["enqueued_time"] > before} <= {row["body"] for row in late}
    early = read(url, on(LessThanOrEqual, "enqueued_time", before))
    assert len(early) == 60
    limited = read(url, on(LessThanOrEqual, "enqueued_time", before), startingTimestamp="2001-01-01", maxTasks="1")
    assert len(limited) == 60


def test_a_warning_says_that_spark_keeps_a_narrowed_plan(url: str, caplog: pytest.LogCaptureFixture) -> None:
    send(url, "orders", ["1"])
    read(url)
    read(url, on(EqualTo, "subject", "x"))
    assert "pushFilters" not in caplog.text
    read(url, on(GreaterThan, "sequence_number", 1))
    assert "Load the DataFrame again for each query." in caplog.text


@pytest.mark.long("Spark needs seconds for each query")
def test_spark_offers_its_filters_if_a_setting_and_an_option_say_so(spark: SparkSession, emptied: str) -> None:
    send(emptied, "orders", map(str, range(50)))
    frame = spark.read.format("sbredis").options(urlEnv="SBREDIS_SECRET_URL", queue="orders", pushFilters="true").load()
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        frame.count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert frame.count() == 50
        partition = frame.collect()[0]["partition"]
        some = frame.where(f"partition = {partition} AND sequence_number > 0 AND enqueued_time > '2001-01-01'")
        assert 0 < some.count() <= 50
        assert {row["partition"] for row in some.collect()} == {partition}
        assert frame.where("enqueued_time < '2001-01-01'").count() == 0
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
