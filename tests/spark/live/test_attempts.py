"""Tests with Spark itself running tasks more than once, or in another number."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sbredis import ServiceBusClient
from tests.spark.live.attempts import always_dying, dying_once
from tests.spark.live.running import waiting

ROWS = 50_000
"""The rows of two tasks. A task has several of Spark's batches, so some of its rows are stored before it ends."""


def numbered(spark: SparkSession, tasks: int, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, tasks).selectExpr("CONCAT(id, REPEAT('x', 50)) AS body", "STRING(id) AS order_id")


def write(rows: DataFrame, queue: str, **options: str) -> None:
    rows.write.format("sbredis").options(urlEnv="SBREDIS_URL", queue=queue, **options).mode("append").save()


def different(spark: SparkSession, queue: str) -> int:
    rows = spark.read.format("sbredis").options(urlEnv="SBREDIS_URL", queue=queue).load()
    return rows.select("body").distinct().count()


def test_a_task_that_spark_runs_again_stores_each_row_once(spark: SparkSession, emptied: str) -> None:
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("retried")
    rows = numbered(spark, 2).drop("order_id")
    write(rows.mapInArrow(dying_once(emptied, "retried", ROWS), rows.schema), "retried")
    assert waiting(emptied, "retried") == (ROWS, 0)
    assert different(spark, "retried") == ROWS


@pytest.mark.long("Spark needs seconds for each query")
def test_a_task_that_spark_runs_again_in_another_order_stores_each_row_once_by_its_id(
    spark: SparkSession, emptied: str
) -> None:
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("unique", requires_duplicate_detection=True)
    rows = numbered(spark, 2)
    feed = dying_once(emptied, "unique", ROWS, turned=True)
    write(rows.mapInArrow(feed, rows.schema), "unique", idColumn="order_id")
    assert waiting(emptied, "unique") == (ROWS, 0)
    assert different(spark, "unique") == ROWS


@pytest.mark.long("Spark needs seconds for each query")
def test_a_frame_in_another_number_of_tasks_is_refused(spark: SparkSession, emptied: str) -> None:
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("tasks")
    few = 2000
    write(numbered(spark, 4, few).drop("order_id"), "tasks", writeId="load", tasks="4")
    for tasks in (5, 2):
        with pytest.raises(Exception, match=rf"an earlier run had 4 tasks, and this one has {tasks}"):
            write(numbered(spark, tasks, few).drop("order_id"), "tasks", writeId="load", tasks=str(tasks))
        assert waiting(emptied, "tasks") == (few, 0)
    write(numbered(spark, 4, few).drop("order_id"), "tasks", writeId="load", tasks="4")
    assert waiting(emptied, "tasks") == (few, 0)


@pytest.mark.long("Spark needs seconds for each query")
def test_a_frame_knows_the_number_of_its_tasks(spark: SparkSession, emptied: str, tmp_path: Path) -> None:
    """A write with another number fails at its end. The number of tasks of a shuffle follows from the sizes of rows."""
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("counted")
    rows = numbered(spark, 3, 100).drop("order_id")
    rows.write.parquet(str(tmp_path / "files"))
    grouped = rows.groupBy("body").count().select("body")
    files = spark.read.parquet(str(tmp_path / "files"))
    frames = [rows, rows.repartition(5, "body"), rows.coalesce(2), rows.union(rows), grouped, files]
    for number, frame in enumerate(frames):
        write(frame, "counted", writeId=f"load-{number}", tasks=str(frame.rdd.getNumPartitions()))
    assert waiting(emptied, "counted") == (700, 0)


@pytest.mark.long("Spark needs seconds for each query")
def test_rows_that_say_their_task_are_stored_once_though_the_number_of_tasks_was_wrong(
    spark: SparkSession, emptied: str
) -> None:
    """The first run is in three tasks and dies, and the second one is in five."""
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("placed")
    rows = spark.range(0, ROWS, 1, 2).selectExpr("CONCAT(id, REPEAT('x', 50)) AS body", "CAST(id % 3 AS INT) AS task")
    three = rows.repartitionById(3, "task").sortWithinPartitions("body")
    feed = always_dying(emptied, "placed", 10_000)
    with pytest.raises(Exception, match="the executor is killed"):
        write(three.mapInArrow(feed, three.schema), "placed", writeId="load", taskColumn="task")
    five = rows.repartitionById(5, "task").sortWithinPartitions("body")
    write(five, "placed", writeId="load", taskColumn="task")
    assert waiting(emptied, "placed") == (ROWS, 0)
    assert different(spark, "placed") == ROWS
    with pytest.raises(Exception, match="says in the column task that it belongs to task"):
        write(rows.coalesce(1), "placed", writeId="load", taskColumn="task")
    assert waiting(emptied, "placed") == (ROWS, 0)


@pytest.mark.long("Spark needs seconds for each query")
def test_a_write_that_died_and_is_repeated_with_more_tasks_stores_nothing(spark: SparkSession, emptied: str) -> None:
    with ServiceBusClient(emptied) as client:
        client.ensure_queue("died")
    rows = numbered(spark, 2).drop("order_id")
    with pytest.raises(Exception, match="the executor is killed"):
        write(rows.mapInArrow(always_dying(emptied, "died", ROWS), rows.schema), "died", writeId="load", tasks="2")
    stored = waiting(emptied, "died")
    for tasks in (3, 8):
        with pytest.raises(Exception, match=rf"an earlier run had 2 tasks, and this one has {tasks}"):
            write(numbered(spark, tasks).drop("order_id"), "died", writeId="load", tasks=str(tasks))
        assert waiting(emptied, "died") == stored
    write(rows, "died", writeId="load", tasks="2")
    assert waiting(emptied, "died") == (ROWS, 0)
    assert different(spark, "died") == ROWS
