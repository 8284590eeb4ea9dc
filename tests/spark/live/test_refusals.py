"""Tests of jobs that are given something wrong: each says in one line what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sbredis import ServiceBusClient
from sbredis.exceptions import SparkSetupError
from sbredis.spark import _jobs_run as jobs
from sbredis.spark._commands import SETUP_FAILED, read_command
from sbredis.spark.jobs import partitioned_by_time
from sbredis.spark.jobs._capture import MANIFEST
from sbredis.spark.jobs._files import told
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.frames import messages
from tests.spark.live.reading import send
from tests.spark.live.running import captured, run, waiting

pytestmark = pytest.mark.slow

UNKNOWN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column named `bogus` cannot be resolved. SQLSTATE: 42703; line 1;
'Filter ('bogus = 1)
+- Relation [body#0]
"""


def test_a_sentence_of_spark_is_told_without_its_plan() -> None:
    assert told(UNKNOWN) == "A column named `bogus` cannot be resolved."
    assert told("\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1)") == (
        "Syntax error at or near 'x'."
    )
    assert told("") == "Spark does not say why."


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> str:
    """A folder of captured files."""
    folder = str(tmp_path / "captured")
    rows = messages(spark, {"body": b"a"}, {"body": b"b"})
    partitioned_by_time(rows).write.partitionBy("entity", "date", "hour").parquet(folder)
    return folder


def refused(spark: SparkSession, *arguments: str) -> str:
    with pytest.raises(SparkSetupError) as raised:
        run(spark, *arguments)
    assert "\n" not in raised.value.message
    return raised.value.message


@pytest.mark.long("Spark needs seconds for each query")
def test_files_that_cannot_be_read_are_refused(spark: SparkSession, emptied: str, tmp_path: Path, files: str) -> None:
    send(emptied, "orders", ["1"])
    to = str(tmp_path / "to")
    nowhere, nothing, texts, others = (str(tmp_path / name) for name in ("nowhere", "nothing", "texts", "others"))
    Path(nothing).mkdir()
    Path(texts).mkdir()
    Path(texts, "notes.parquet").write_text("no parquet", "utf-8")
    spark.range(3).write.parquet(others)
    for source, said in ((nowhere, "nowhere."), (nothing, "schema"), (texts, "notes.parquet")):
        for job in (["replay", "orders"], ["compact", "--to", to]):
            message = refused(spark, *job, "--source", source)
            assert message.startswith(f"The files in '{source}' cannot be read: ")
            assert said in message
    assert refused(spark, "compact", "--source", others, "--to", to) == (
        "The files are not those of a capture: they have no column entity."
    )
    assert "has no part for the column 'id'" in refused(spark, "replay", "orders", "--source", others)
    Path(to).mkdir()
    assert "is there already: name a new one" in refused(spark, "compact", "--source", files, "--to", to)


@pytest.mark.long("Spark needs seconds for each query")
def test_a_replay_that_is_refused_says_nothing_of_rows_that_were_sent(
    spark: SparkSession, emptied: str, files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send(emptied, "orders", ["1"], partitioned=False)
    line = ["replay", "orders", "--source", files]
    message = refused(spark, *line, "--where", "bogus = 1")
    assert message.startswith("The condition 'bogus = 1' is wrong: ")
    assert "`bogus`" in message
    assert "The condition 'subject =' is wrong: " in refused(spark, *line, "--where", "subject =")
    run(spark, *line, "--tasks", "2")
    assert waiting(emptied, "orders") == (3, 0)
    capsys.readouterr()
    assert "Run it with 2 tasks" in refused(spark, *line, "--tasks", "3")
    assert capsys.readouterr().out == ""


@pytest.mark.long("Spark needs seconds for each query")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mode": "consume"}, "mode=consume needs the option consumer"),
        ({"maxTasks": "2", "maxRecordsPerPartition": "3"}, "Both maxRecordsPerPartition and maxTasks are given"),
    ],
    ids=["alone", "pair"],
)
def test_a_stream_that_is_refused_ends_with_the_reason(
    spark: SparkSession, emptied: str, tmp_path: Path, wrong: dict[str, str], said: str
) -> None:
    """PySpark has an error of its own if no reader is made, and shows it last."""
    send(emptied, "orders", ["1"], partitioned=False)
    rows = spark.readStream.format("sbredis").options(urlEnv="SBREDIS_URL", queue="orders", **wrong).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    assert said in str(raised.value).splitlines()[0]
    assert "UnboundLocalError" not in str(raised.value)
    assert waiting(emptied, "orders") == (1, 0)


@pytest.mark.long("Spark needs seconds for each query")
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_fingerprint_that_no_dead_letter_has_is_refused(spark: SparkSession, emptied: str, dry: list[str]) -> None:
    send(emptied, "orders", ["1"], partitioned=False)
    with ServiceBusClient(emptied) as client, client.get_queue_receiver("orders") as receiver:
        receiver.dead_letter_message(receiver.receive_messages(1)[0], reason="Invalid")
    message = refused(spark, "dlq-resubmit", "orders", "--fingerprint", "nope", *dry)
    assert message.startswith("No dead letter of 'orders' has the fingerprint 'nope', and none was moved.")
    assert waiting(emptied, "orders") == (0, 1)


@pytest.mark.long("Spark needs seconds for each query")
def test_what_a_query_refuses_ends_a_job_as_wrong_arguments_do(
    spark: SparkSession, emptied: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if Spark reports it."""
    send(emptied, "orders", ["1"])
    monkeypatch.setattr(jobs, "_session", lambda _: spark)
    monkeypatch.setattr("sbredis.spark._endings.stop", lambda _: None)
    assert jobs.run_job(read_command(["latency", "orders"])) == SETUP_FAILED
    assert "'orders' is not audited, so it has no settlements to read: set audit=True" in capsys.readouterr().err


def occupied(folder: Path) -> Path:
    """Put a file where a capture into the folder ``out`` writes its manifests, so that its first batch fails."""
    out = folder / "out"
    out.mkdir()
    file = out / MANIFEST
    file.touch()
    return file


@pytest.mark.long("Spark needs seconds for each query")
def test_another_error_of_spark_is_told_in_a_sentence_before_its_traceback(
    spark: SparkSession,
    emptied: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(emptied, "orders", ["1"], partitioned=False)
    monkeypatch.setattr(jobs, "_session", lambda _: spark)
    monkeypatch.setattr("sbredis.spark._endings.stop", lambda _: None)
    occupied(tmp_path)
    line = ["capture", "orders", "--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint")]
    with pytest.raises(StreamingQueryException, match=MANIFEST):
        jobs.run_job(read_command(line))
    assert capsys.readouterr().err.startswith("sbredis: Query [id = ")


@pytest.mark.long("Spark needs seconds for each query")
def test_a_server_in_memory_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBREDIS_URL", "memory://orders")
    assert "Spark cannot use a server in memory" in refused(spark, "skew", "orders")
    with pytest.raises(Exception, match="Spark cannot use a server in memory"):
        spark.read.format("sbredis").options(url="memory://orders", queue="orders").load().count()


@pytest.mark.long("Spark needs seconds for each query")
def test_a_capture_refuses_the_checkpoint_of_another_entity_although_a_batch_is_planned(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    """It is the first batch, for which Spark asks where the stream begins before it shows its end."""
    send(emptied, "orders", ["1", "2"], partitioned=False)
    send(emptied, "invoices", ["3"], partitioned=False)
    line = ["--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint"), "--consumer", "capture"]
    file = occupied(tmp_path)
    with pytest.raises(StreamingQueryException, match=MANIFEST):
        run(spark, "capture", "orders", *line)
    file.unlink()
    for accepts in ([], ["--accept-loss"]):
        with pytest.raises(StreamingQueryException, match="belongs to 'orders', but the query reads 'invoices'"):
            run(spark, "capture", "invoices", *line, *accepts)
        with ServiceBusAdministrationClient(emptied) as admin:
            assert [each.path for each in admin.list_reservations()] == ["orders"]
    run(spark, "capture", "orders", *line)
    assert captured(tmp_path / "out") == [b"1", b"2"]
    assert [waiting(emptied, queue) for queue in ("orders", "invoices")] == [(0, 0), (1, 0)]
