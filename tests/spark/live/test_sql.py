"""Tests of SQL over the format, and of what the errors of a query begin with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sbredis.spark import register
from tests.spark.live.reading import send
from tests.spark.live.running import waiting

OPTIONS = "USING sbredis OPTIONS (urlEnv 'SBREDIS_SECRET_URL', queue 'orders')"


@pytest.mark.long("Spark needs seconds for each query")
def test_a_view_is_read_and_written_by_sql(spark: SparkSession, emptied: str) -> None:
    send(emptied, "orders", map(str, range(20)), subject="first")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders {OPTIONS}")
    assert spark.sql("SELECT subject, count(*) FROM orders GROUP BY subject").collect() == [("first", 20)]
    spark.sql("INSERT INTO orders (body, subject) VALUES (CAST('x' AS BINARY), 'second')")
    assert waiting(emptied, "orders") == (21, 0)
    assert spark.table("orders").count() == 20  # Spark has planned the view before
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders {OPTIONS}")
    assert spark.table("orders").count() == 21
    with pytest.raises(Exception, match="only appends, because overwriting would discard the messages"):
        spark.sql("INSERT OVERWRITE orders SELECT * FROM orders LIMIT 1")
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    options = {"urlEnv": "SBREDIS_SECRET_URL", "queue": "orders"}
    frame.writeTo("created").using("sbredis").options(**options).create()
    assert waiting(emptied, "orders") == (24, 0)
    spark.sql("DROP TABLE created")
    spark.sql("DROP VIEW orders")


@pytest.mark.long("Spark needs seconds for each query")
def test_tables_are_refused_because_spark_loses_their_options(spark: SparkSession, emptied: str) -> None:
    send(emptied, "orders", ["1"])
    with pytest.raises(Exception, match=r"options of a table only when it is created.* Use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders {OPTIONS}")
    assert not spark.catalog.tableExists("orders")
    spark.sql(f"CREATE TABLE typed (body STRING) {OPTIONS}")
    for statement in ("SELECT * FROM typed", "INSERT INTO typed VALUES ('x')"):
        with pytest.raises(Exception, match=r"The query has no options\. If it is of a table .* CREATE TEMPORARY VIEW"):
            spark.sql(statement).collect()
    spark.sql("DROP TABLE typed")
    assert waiting(emptied, "orders") == (1, 0)


@pytest.mark.long("Spark needs seconds for each query")
def test_an_error_begins_with_its_sentence(spark: SparkSession, emptied: str, tmp_path: Path) -> None:
    """Spark shows the text of the traceback of the Python process, after a few words of its own."""
    send(emptied, "orders", ["1"])
    given = {"urlEnv": "SBREDIS_SECRET_URL"}
    first = r"^[^\n]*: sbredis\.exceptions\.(\w+): "
    reading, streaming = spark.read.format("sbredis"), spark.readStream.format("sbredis")
    with pytest.raises(Exception, match=f"{first}The Spark format sbredis has no option 'maxtask': did you mean"):
        reading.options(**given, queue="orders", maxTask="1").load()
    with pytest.raises(Exception, match=f"{first}There is no entity 'nosuch'") as raised:
        spark.read.format("sbredis").options(**given, queue="nosuch").load().count()
    assert "Traceback (most recent call last)" in str(raised.value)
    stream = streaming.options(**given, queue="nosuch").load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r"There is no entity 'nosuch'") as raised:
        query.awaitTermination()
    begin = re.search(r"sbredis\.exceptions\.\w+: There is no entity 'nosuch'", str(raised.value))
    assert begin is not None
    assert "Traceback" not in str(raised.value)[: begin.start()]


@pytest.mark.long("Spark needs seconds for each query")
def test_a_read_follows_the_cores_of_the_session_where_the_format_is_registered(
    spark: SparkSession, emptied: str
) -> None:
    """The session of the tests has two cores; the machine may have more."""
    send(emptied, "orders", map(str, range(400)))
    register(spark)
    frame = spark.read.format("sbredis").options(urlEnv="SBREDIS_SECRET_URL", queue="orders").load()
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 400
