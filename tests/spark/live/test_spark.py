"""Tests with a whole Spark: it finds the format, plans, runs tasks in its own processes, and keeps checkpoints.

The server has a password that occurs nowhere else. The last test looks for it in everything that Spark has written.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from traceback import format_exception

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sbredis.servers import free_port
from sbredis.spark import register
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import send


@pytest.fixture(scope="module")
def url(secured: str) -> str:
    """The connection string of the server."""
    return secured


@pytest.fixture(scope="module")
def bus(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The option that leads to the server."""
    path = tmp_path_factory.mktemp("secret") / "url"
    path.write_text(url, "utf-8")
    return {"urlFile": str(path)}


def read(spark: SparkSession, bus: dict[str, str], queue: str, **options: str) -> DataFrame:
    return spark.read.format("sbredis").options(**bus, queue=queue, **options).load()


def consume(spark: SparkSession, bus: dict[str, str], queue: str, **options: str) -> DataFrame:
    given = {**bus, "queue": queue, "mode": "consume", "consumer": f"{queue} query", **options}
    return spark.readStream.format("sbredis").options(**given).load()


def finished(query: StreamingQuery) -> StreamingQuery:
    """Wait until a query has ended, and raise its error."""
    assert query.awaitTermination(900)
    return query


def active(url: str, queue: str) -> int:
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        return administration.get_queue_runtime_properties(queue).active_message_count


def test_spark_finds_the_format_and_reads_a_queue(spark: SparkSession, bus: dict[str, str], url: str) -> None:
    send(url, "browsed", map(str, range(200)), application_properties={"kind": "even"})
    frame = read(spark, bus, "browsed")
    found = frame.selectExpr("CAST(body AS STRING) AS text", "application_properties['kind'] AS kind").collect()
    assert sorted(int(row["text"]) for row in found) == list(range(200))
    assert {row["kind"] for row in found} == {"even"}
    register(spark)
    assert read(spark, bus, "browsed", maxTasks="1").count() == 200


@pytest.mark.long("Spark needs seconds for each query")
def test_messages_are_read_by_the_pandas_api(spark: SparkSession, bus: dict[str, str], url: str) -> None:
    pytest.importorskip("pandas")
    send(url, "table", map(str, range(20)))
    messages = read(spark, bus, "table").selectExpr("INT(STRING(body)) AS number", "entity").pandas_api()
    assert len(messages) == 20
    assert int(messages["number"].sum()) == sum(range(20))
    assert messages.groupby("entity")["number"].max().to_dict() == {"table": 19}


def test_a_queue_goes_through_a_stream_into_another_queue_exactly_once(
    spark: SparkSession, bus: dict[str, str], url: str, tmp_path: Path
) -> None:
    send(url, "source", map(str, range(300)))
    send(url, "target", [])
    for more in (0, 50):
        send(url, "source", map(str, range(300, 300 + more)))
        frame = consume(spark, bus, "source", maxMessagesPerTrigger="200")
        writer = frame.select("body", "message_id").writeStream.format("sbredis").options(**bus, queue="target")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        finished(query)
        assert query.lastProgress.json.count("messagesLeft") == 1
    texts = read(spark, bus, "target").selectExpr("INT(STRING(body)) AS text").collect()
    assert sorted(row["text"] for row in texts) == list(range(350))
    assert active(url, "source") == 0


def test_a_frame_that_is_written_again_under_its_id_is_stored_once(
    spark: SparkSession, bus: dict[str, str], url: str
) -> None:
    send(url, "written", [])
    frame = spark.range(0, 1000, 1, 4).selectExpr("CAST(id AS STRING) AS body")
    for _ in range(2):
        frame.write.format("sbredis").options(**bus, queue="written", writeId="load-1", tasks="4").mode("append").save()
    assert active(url, "written") == 1000


@pytest.mark.long("Spark needs seconds for each query")
def test_bad_input_is_a_clear_error(spark: SparkSession, bus: dict[str, str], url: str) -> None:
    send(url, "plain", ["1"])
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    writer = frame.write.format("sbredis").options(**bus, queue="plain")
    with pytest.raises(Exception, match=r"no option 'maxtask': did you mean maxTasks\?"):
        read(spark, bus, "plain", maxTask="1")
    with pytest.raises(Exception, match=r"use spark.readStream with trigger\(availableNow=True\)"):
        read(spark, bus, "plain", mode="consume", consumer="c").count()
    with pytest.raises(Exception, match="There is no entity 'nosuch'"):
        read(spark, bus, "nosuch").count()
    with pytest.raises(Exception, match=r"only appends, because overwriting would discard the messages"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="The column body is missing"):
        spark.range(3).selectExpr("CAST(id AS STRING) AS message_id").write.format("sbredis").options(
            **bus, queue="plain"
        ).mode("append").save()
    assert active(url, "plain") == 1


@pytest.mark.long("Spark needs seconds for each query")
def test_the_password_is_in_nothing_that_spark_writes(
    spark: SparkSession, bus: dict[str, str], url: str, folder: Path, tmp_path: Path
) -> None:
    """It comes from a file, and from a variable that a setting of Spark gives to the executors."""
    by_variable = {"urlEnv": "SBREDIS_SECRET_URL"}
    send(url, "secretive", ["1", "2"])
    with redirect_stdout(io.StringIO()) as plan:
        read(spark, bus, "secretive").explain("extended")
        assert read(spark, by_variable, "secretive").count() == 2
    frame = consume(spark, by_variable, "secretive")
    query = frame.writeStream.foreachBatch(lambda rows, _: rows.count())
    done = finished(query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
    with pytest.raises(Exception, match="another query") as refused:
        finished(
            consume(spark, bus, "secretive", consumer="another query")
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "other"))
            .trigger(availableNow=True)
            .start()
        )
    password = url.partition("@")[0].rpartition(":")[2]
    assert password.startswith("planted")
    written = [path for place in (folder / "events", tmp_path) for path in place.rglob("*") if path.is_file()]
    assert len(written) > 5
    texts = {path: path.read_text("utf-8", errors="replace") for path in written}
    assert [path for path, text in texts.items() if password in text] == []
    assert any('"spark.executorEnv.SBREDIS_SECRET_URL":"*********(redacted)"' in text for text in texts.values())
    assert password not in plan.getvalue() + done.lastProgress.json + str(refused.value)


@pytest.mark.long("Spark needs seconds for each query")
def test_an_error_of_the_connection_shows_no_password(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """Spark shows the whole stack trace of the process in which the error was raised."""
    _, _, server = url.partition("@")
    for address, said in ((server, "Authentication"), (f"127.0.0.1:{free_port()}", "was not ready in time")):
        (tmp_path / "url").write_text(f"redis://:hunter2@{address}", "utf-8")
        with pytest.raises(Exception, match=said) as raised:
            read(spark, {"urlFile": str(tmp_path / "url")}, "any", callTimeout="2s").count()
        assert "hunter2" not in str(raised.value)
        assert "hunter2" not in "".join(format_exception(raised.value))
