"""Replays: which rows are sent in which order, and each of them once, however the replay is repeated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from sbredis import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError, SparkSetupError
from sbredis.spark.jobs import Replay, partitioned_by_time, replayable
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.frames import NOON, messages
from tests.spark.live.reading import send
from tests.spark.live.running import captured, run, waiting

pytestmark = pytest.mark.slow


@pytest.mark.long("Spark needs seconds for each query")
def test_a_replay_has_the_same_rows_in_the_same_tasks(spark: SparkSession) -> None:
    """The order and the partitions of the given rows do not matter."""
    rows = messages(spark, *({"session_id": f"s{number % 3}", "body": b"%d" % number} for number in range(30)))

    def by_task(given: DataFrame) -> list[list[bytes]]:
        placed = replayable(given, tasks=4, where="body <> '7'")
        found: dict[int, list[bytes]] = {number: [] for number in range(4)}
        for row in placed.selectExpr("spark_partition_id() AS task", "body").collect():
            found[row["task"]].append(bytes(row["body"]))
        return list(found.values())

    first = by_task(rows)
    assert first == by_task(rows.repartition(7).orderBy(rows["sequence_number"].desc()))
    assert sorted(int(body) for task in first for body in task) == [number for number in range(30) if number != 7]
    for task in first:
        for session in range(3):
            own = [int(body) for body in task if int(body) % 3 == session]
            assert own == sorted(own)


def test_the_name_of_a_replay_follows_from_what_it_sends() -> None:
    one = Replay.named({}, "a", "b")
    assert one.write_id == Replay.named({}, "a", "b").write_id
    assert one.write_id != Replay.named({}, "ab", "").write_id


@pytest.mark.parametrize("name", ["a/b", "x" * 129])
def test_a_wrong_write_id_is_refused(name: str) -> None:
    with pytest.raises(SparkSetupError, match=r"The write id is wrong: .*1 to 128 letters"):
        Replay({}, name).check()


@pytest.mark.long("Spark needs seconds for each query")
def test_rows_that_differ_only_in_their_properties_have_an_order(spark: SparkSession) -> None:
    listed = [(b"same", {"n": str(number), "kind": "k"}, f"to {number % 3}") for number in range(20)]
    schema = "body binary, application_properties map<string,string>, `to` string"

    def sent(rows: list[tuple[bytes, dict[str, str], str]]) -> list[str]:
        ready = replayable(spark.createDataFrame(rows, schema).repartition(5), tasks=1)
        return [row["application_properties"]["n"] for row in ready.collect()]

    assert sent(listed) == sent(listed[::-1])


@pytest.mark.long("Spark needs seconds for each query")
def test_columns_of_a_read_are_left_out_and_unknown_columns_are_refused(spark: SparkSession) -> None:
    rows = partitioned_by_time(messages(spark, {})).selectExpr("*", "'one' AS batch_id")
    sent = replayable(rows, tasks=1).columns
    assert {"body", "scheduled_enqueue_time", "application_properties"} <= set(sent)
    assert not {"entity", "sequence_number", "state", "enqueued_time", "date", "hour", "batch_id"} & set(sent)
    wrong = rows.withColumnRenamed("session_id", "sesion_id")
    with pytest.raises(SparkSetupError, match=r"no part for the column 'sesion_id': did you mean session_id\?"):
        replayable(wrong, tasks=1)
    assert set(sent) - {"session_id"} == set(replayable(wrong, tasks=1, drop=["sesion_id"]).columns)


@pytest.mark.long("Spark needs seconds for each query")
def test_a_replay_with_a_rate_sends_the_same_rows(spark: SparkSession) -> None:
    rows = messages(spark, *({"body": b"%d" % number} for number in range(20)))
    slow = Replay({}, "id", tasks=2, rate=10_000.0).build(rows)
    assert sorted(row["body"] for row in slow.collect()) == sorted(row["body"] for row in rows.collect())


# -- over a server -----------------------------------------------------------------------------------------------------


def write_rows(folder: Path, count: int) -> None:
    """Write a file whose rows have no part that says where they are from."""
    folder.mkdir()
    bodies = [b"%d" % number for number in range(count)]
    due = [None, datetime(2035, 1, 1, tzinfo=UTC), NOON, *[None] * (count - 3)]
    columns = {"body": bodies, "scheduled_enqueue_time": pa.array(due, pa.timestamp("us", tz="UTC"))}
    parquet.write_table(pa.table(columns), folder / "rows.parquet")


@pytest.mark.long("Spark needs seconds for each query")
def test_a_replay_is_the_same_however_its_folder_and_its_entity_are_spelled(
    spark: SparkSession,
    emptied: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_rows(tmp_path / "rows", 20)
    send(emptied, "again", [])
    monkeypatch.chdir(tmp_path)
    spellings = [(f"{tmp_path}/rows", "again"), (f"{tmp_path}/./rows/", "Again"), (f"file://{tmp_path}/rows", "AGAIN")]
    for source, entity in spellings:
        run(spark, "replay", entity, "--source", source, "--tasks", "2")
        assert f"sent 20 rows of {source} to '{entity}' under the write id replay-" in capsys.readouterr().out
    assert waiting(emptied, "again") == (19, 0)  # and one that is scheduled


@pytest.mark.long("Spark needs seconds for each query")
def test_rows_keep_their_schedule(spark: SparkSession, emptied: str, tmp_path: Path) -> None:
    """A time that has passed lets the message be received at once."""
    write_rows(tmp_path / "rows", 3)
    send(emptied, "again", [])
    before = datetime.now(UTC) - timedelta(minutes=1)
    run(spark, "replay", "again", "--source", str(tmp_path / "rows"), "--tasks", "1")
    with ServiceBusClient(emptied) as client, client.get_queue_receiver("again") as receiver:
        found = {bytes(each.body): each for each in receiver.peek_messages(10)}
    assert {body: each.state.name for body, each in found.items()} == {
        b"0": "ACTIVE",
        b"1": "SCHEDULED",
        b"2": "ACTIVE",
    }
    assert found[b"2"].enqueued_time_utc > before


@pytest.mark.long("Spark needs seconds for each query")
def test_a_replay_with_another_number_of_tasks_is_refused_before_anything_is_sent(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    """Rows would be in other places, and the tasks that are new would send theirs."""
    write_rows(tmp_path / "rows", 20)
    send(emptied, "again", [])
    given = ("replay", "again", "--source", str(tmp_path / "rows"))
    for name in ((), ("--write-id", "mine")):
        run(spark, *given, *name, "--tasks", "2")
        before = waiting(emptied, "again")
        for more in ((), ("--dry-run",)):
            with pytest.raises(SparkSetupError, match=r"with 2 tasks, and this one has 3, .*Run it with 2 tasks, or"):
                run(spark, *given, *name, "--tasks", "3", *more)
        assert waiting(emptied, "again") == before
    run(spark, *given, "--write-id", "other", "--tasks", "3")


@pytest.mark.long("Spark needs seconds for each query")
def test_rows_are_replayed_into_a_topic_but_not_into_a_subscription(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    write_rows(tmp_path / "rows", 3)
    with ServiceBusAdministrationClient(emptied) as administration:
        administration.create_topic("news")
        administration.create_subscription("news", "all")
        given = ("--source", str(tmp_path / "rows"), "--tasks", "1")
        try:
            run(spark, "replay", "news", *given)
            found = administration.get_subscription_runtime_properties("news", "all")
            assert found.active_message_count == 2
            with pytest.raises(SparkSetupError, match="'news/subscriptions/all' is a subscription"):
                run(spark, "replay", "news/subscriptions/all", *given)
            with pytest.raises(MessagingEntityNotFoundError, match="nosuch"):
                run(spark, "replay", "nosuch", *given)
        finally:
            administration.delete_topic("news")


@pytest.mark.long("Spark needs seconds for each query")
def test_entities_whose_names_are_numbers_are_compacted_and_replayed(
    spark: SparkSession, emptied: str, tmp_path: Path
) -> None:
    """Spark's own reading makes numbers of 007 and 1e3, and writes times in a form that is deprecated."""
    out, fewer = tmp_path / "out", tmp_path / "fewer"
    names = ["007", "1e3"]
    rows = partitioned_by_time(messages(spark, *({"entity": name, "body": name.encode()} for name in names)))
    rows.selectExpr("*", "'1' AS batch_id").write.partitionBy("entity", "date", "hour", "batch_id").parquet(str(out))
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(setting)
    run(spark, "compact", "--source", str(out), "--to", str(fewer))
    assert sorted(each.name for each in fewer.glob("entity=*")) == ["entity=007", "entity=1e3"]
    assert captured(fewer) == [b"007", b"1e3"]
    file = next(fewer.rglob("*.parquet"))
    assert parquet.read_schema(file).field("enqueued_time").type == pa.timestamp("us", tz="UTC")
    assert spark.conf.get(setting) == before
    send(emptied, "again", [])
    run(spark, "replay", "again", "--source", str(fewer), "--where", "entity = '007' AND hour = 12", "--tasks", "1")
    with ServiceBusClient(emptied) as client, client.get_queue_receiver("again") as receiver:
        assert [bytes(each.body) for each in receiver.peek_messages(10)] == [b"007"]
