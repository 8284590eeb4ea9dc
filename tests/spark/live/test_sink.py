"""Tests of the sink: rows become messages, once each, however often a task runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sbredis import ServiceBusClient
from sbredis.bulk import WriterKey
from sbredis.exceptions import (
    BatchConflictError,
    MessagingEntityNotFoundError,
    RowRefusedError,
    ServiceBusError,
    SparkSetupError,
)
from sbredis.spark._browse import BrowseReader
from sbredis.spark._options import parse_options
from sbredis.spark._query import Query
from sbredis.spark._refused import RefusedRows, prepare_folder
from sbredis.spark._schema import TYPED_MAP, SchemaColumn, arrow_schema, check_written
from sbredis.spark._sink import BatchSink, StreamSink, Written, _TaskIdentity, _WriteTask
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import bodies, query, rows_of, send

pytestmark = pytest.mark.slow
TYPES = {
    "body": ("binary", pa.binary()),
    "entity": ("string", pa.string()),
    "order_id": ("string", pa.string()),
    "task": ("int", pa.int32()),
    "message_id": ("string", pa.string()),
    "session_id": ("string", pa.string()),
    "subject": ("string", pa.string()),
    "time_to_live_ms": ("bigint", pa.int64()),
    "scheduled_enqueue_time": ("timestamp", pa.timestamp("us", tz="UTC")),
    "application_properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
    "typed_properties": (TYPED_MAP, arrow_schema([SchemaColumn("p", TYPED_MAP, "")]).field(0).type),
    "amqp": ("binary", pa.binary()),
    "correlation_id": ("string", pa.string()),
    "reply_to_session_id": ("string", pa.string()),
}


def batch(**columns: Iterable[Any]) -> pa.RecordBatch:
    arrays = [pa.array(list(values), TYPES[name][1]) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def write(
    url: str, *batches: pa.RecordBatch, writer: str = "w", number: int = 0, task: int = 0, **options: str
) -> Written:
    query, sent = writing(url, batches[0], **options)
    refused = prepare_folder(options["refusedPath"]) if "refusedPath" in options else None
    return _WriteTask(query, sent, _TaskIdentity(WriterKey(writer, number, task, "stream"), refused)).write(
        iter(batches)
    )


def writing(url: str, rows: pa.RecordBatch, **options: str) -> tuple[Query, tuple[str, ...]]:
    given = {"url": url, **options}
    parsed = parse_options(given, stream=True, write=True)
    return Query(given, parsed), check_written([(name, TYPES[name][0]) for name in rows.schema.names], parsed)


def read(url: str, queue: str = "orders") -> list[dict[str, Any]]:
    reader = BrowseReader(query(url, stream=False, queue=queue))
    return rows_of(reader, reader.partitions())


def test_rows_become_messages(url: str) -> None:
    send(url, "orders", [])
    due = datetime(2035, 1, 1, tzinfo=UTC)
    done = write(
        url,
        batch(
            body=[b"one", b"two"],
            message_id=["1", None],
            subject=[None, "s"],
            time_to_live_ms=[60_000, None],
            scheduled_enqueue_time=[None, due],
            application_properties=[[("a", "b"), ("c", None)], None],
        ),
        queue="orders",
    )
    assert (done.stored, done.known, done.refused) == (2, 0, 0)
    one, two = sorted(read(url), key=lambda row: row["body"])
    assert (one["message_id"], one["subject"], one["application_properties"]) == ("1", None, [("a", "b"), ("c", None)])
    assert one["expires_at"] - one["enqueued_time"] == timedelta(minutes=1)
    assert (two["subject"], two["state"], two["scheduled_enqueue_time"]) == ("s", "scheduled", due)


def test_a_task_that_runs_again_stores_nothing_twice(url: str) -> None:
    send(url, "orders", [])
    rows = [str(number).encode() for number in range(2500)]
    first = write(url, batch(body=rows[:1000]), batch(body=rows[1000:]), queue="orders")
    again = write(url, batch(body=rows[:7]), batch(body=rows[7:]), queue="orders")
    assert (first.stored, again.stored, again.known) == (2500, 0, 2500)
    other = write(url, batch(body=[b"next"]), queue="orders", number=1)
    assert other.stored == 1
    assert sorted(bodies(read(url))) == sorted([*rows, b"next"])


def test_each_row_may_name_its_entity(url: str) -> None:
    send(url, "orders", [])
    send(url, "invoices", [])
    write(url, batch(body=[b"1", b"2", b"3"], entity=["orders", "invoices", "orders"]))
    assert sorted(bodies(read(url))) == [b"1", b"3"]
    assert bodies(read(url, "invoices")) == [b"2"]


def test_spellings_of_one_entity_are_one_entity(url: str) -> None:
    """Otherwise the rows under the second spelling would look like rows of another run of the task."""
    send(url, "orders", [], partitioned=False)
    rows = [
        batch(body=[b"1", b"1", b"2"], entity=["Orders", "orders", "ORDERS"]),
        batch(body=[b"3"], entity=["oRDERS"]),
    ]
    assert write(url, *rows).stored == 4
    assert write(url, *rows).known == 4
    assert sorted(bodies(read(url))) == [b"1", b"1", b"2", b"3"]


def test_rows_of_unknown_and_invalid_entities_are_refused_like_others(url: str, tmp_path: Path) -> None:
    send(url, "orders", [])
    rows = batch(body=[b"1", b"2", b"3", b"4"], entity=["nosuch", "orders", "a b", "orders/subscriptions/x"])
    with pytest.raises(RowRefusedError, match=r"There is no entity 'nosuch'.*With the option refusedPath"):
        write(url, rows)
    assert read(url) == []
    done = write(url, rows, refusedPath=str(tmp_path))
    assert (done.stored, done.refused) == (1, 3)
    saved = {row["body"]: row["refused_because"] for row in parquet.read_table(str(tmp_path)).to_pylist()}
    assert list(saved) == [b"1", b"3", b"4"]
    assert "There is no entity" in saved[b"1"]
    assert "entity name 'a b'" in saved[b"3"]
    assert "it is the path of a subscription" in saved[b"4"]


def unique(url: str) -> None:
    """Create a queue that detects duplicates."""
    with ServiceBusClient(url) as client:
        client.ensure_queue("orders", requires_duplicate_detection=True)


def test_ids_need_an_entity_that_detects_duplicates(url: str) -> None:
    unique(url)
    send(url, "plain", [])
    rows = batch(body=[b"1", b"2"], order_id=["1", "2"], entity=["orders", "plain"])
    with pytest.raises(SparkSetupError, match=r"'plain' does not detect duplicates.*requires_duplicate_detection"):
        write(url, rows, idColumn="order_id")
    with pytest.raises(SparkSetupError, match="'plain' does not detect duplicates"):
        writing(url, rows, idColumn="order_id", queue="plain")[0].check_destination()
    assert read(url) + read(url, "plain") == []


def test_a_column_can_give_the_ids_for_duplicate_detection(url: str) -> None:
    unique(url)
    rows = batch(body=[b"1"], order_id=["o-1"])
    first, second = (write(url, rows, queue="orders", idColumn="order_id", writer=writer) for writer in ("a", "b"))
    assert (first.duplicates, second.duplicates) == (0, 1)
    assert [row["message_id"] for row in read(url)] == ["o-1"]


def test_rows_that_cannot_be_sent_fail_the_batch_or_are_saved(url: str, tmp_path: Path) -> None:
    send(url, "orders", [])
    rows = batch(body=[b"good", b"bad", b"good too"], message_id=["1", "x" * 200, "3"])
    with pytest.raises(ServiceBusError, match="message_id"):
        write(url, rows, queue="orders")
    assert read(url) == []
    for _ in range(2):
        done = write(url, rows, queue="orders", refusedPath=str(tmp_path / "refused"))
        assert done.refused == 1
    assert sorted(bodies(read(url))) == [b"good", b"good too"]
    (saved,) = parquet.read_table(str(tmp_path / "refused")).to_pylist()
    assert saved["body"] == b"bad"
    assert "message_id" in saved["refused_because"]


@pytest.mark.parametrize("folder", ["relative", "with a blank", "100% full", "file:{}/one", "{}/two/"])
def test_the_folder_of_refused_rows_is_any_local_path(url: str, tmp_path: Path, folder: str) -> None:
    send(url, "orders", [])
    rows = batch(body=[b"bad"], message_id=["x" * 200])
    with chdir(tmp_path):
        place = prepare_folder(folder.format(tmp_path))
    assert Path(place).is_absolute()
    (there,) = tmp_path.iterdir()
    query, sent = writing(url, rows, queue="orders")
    task = _TaskIdentity(WriterKey("w", 0, 0, "stream"), place)
    assert _WriteTask(query, sent, task).write(iter([rows])).refused == 1
    assert [file.name for file in there.iterdir()] == ["w-0-0.parquet"]


@pytest.mark.parametrize("folder", ["nosuch://bucket/x", "file:///with a blank", "{}/file/below"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_sent(url: str, tmp_path: Path, folder: str) -> None:
    send(url, "orders", [])
    (tmp_path / "file").touch()
    query, sent = writing(url, batch(body=[b"1"]), queue="orders", refusedPath=folder.format(tmp_path))
    with pytest.raises(SparkSetupError, match="refusedPath names, for rows that cannot be sent, cannot be made"):
        BatchSink(query, sent)


def test_a_slower_run_of_a_task_does_not_damage_the_file_of_refused_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = batch(body=[b"bad"])
    runs = [RefusedRows(str(tmp_path), "w-0-0") for _ in range(2)]
    for run in runs:
        run.add(rows, [0], "because")
    runs[0].save()

    def killed(_: pa.Table, where: str, **__: object) -> None:
        Path(where).write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "write_table", killed)
        with pytest.raises(KeyboardInterrupt):
            runs[1].save()
    for _ in range(2):
        assert [row["refused_because"] for row in parquet.read_table(str(tmp_path)).to_pylist()] == ["because"]
        assert [file.name for file in tmp_path.iterdir()] == ["w-0-0.parquet"]
        runs[1].save()


def test_a_run_that_refuses_nothing_removes_the_rows_that_an_earlier_run_has_refused(tmp_path: Path) -> None:
    """The entity may take larger messages now, so the rows are sent."""
    first = RefusedRows(str(tmp_path), "w-0-0")
    first.add(batch(body=[b"large"]), [0], "too large")
    first.save()
    for _ in range(2):
        RefusedRows(str(tmp_path), "w-0-0").save()
        assert list(tmp_path.iterdir()) == []


def test_a_row_without_an_entity_is_refused(url: str, tmp_path: Path) -> None:
    send(url, "orders", [])
    rows = batch(body=[b"1", b"2"], entity=["orders", None])
    with pytest.raises(ServiceBusError, match="the column entity has no value"):
        write(url, rows)
    done = write(url, rows, writer="other", refusedPath=str(tmp_path))
    assert (done.stored, done.refused) == (1, 1)


def test_a_missing_entity_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(MessagingEntityNotFoundError, match="nosuch"):
        write(url, batch(body=[b"1"]), queue="nosuch")
    given = {"url": url, "queue": "nosuch"}
    with pytest.raises(MessagingEntityNotFoundError, match="nosuch"):
        Query(given, parse_options(given, stream=False, write=True)).check_destination()


def test_a_queue_is_not_named_as_a_topic_and_a_topic_not_as_a_queue(url: str) -> None:
    send(url, "orders", [])
    with ServiceBusAdministrationClient(url) as administration:
        administration.create_topic("news")
    with pytest.raises(SparkSetupError, match="'orders' is a queue: name it by the option queue"):
        write(url, batch(body=[b"1"]), topic="orders")
    with pytest.raises(SparkSetupError, match="'news' is a topic: name it by the option topic"):
        write(url, batch(body=[b"1"]), queue="news")
    assert read(url) == []
    write(url, batch(body=[b"1", b"2"], entity=["news", "orders"]))
    assert bodies(read(url)) == [b"2"]


def test_a_write_without_an_id_may_be_forgotten_sooner(url: str) -> None:
    """Nobody knows its random name after the job, so it is not written again."""
    rows = batch(body=[b"1"])
    kinds = []
    named = {"writeId": "load-1", "tasks": "1"}
    for more in ({}, named, {**named, "writeVersion": "7"}):
        given = {"url": url, "queue": "orders", **more}
        query = Query(given, parse_options(given, stream=False, write=True))
        kinds.append(BatchSink(query, rows.schema.names)._key.kind)
    assert kinds == ["anonymous", "batch", "stream"]


def named_task(url: str, number: int, rows: pa.RecordBatch, **options: str) -> Written:
    """Run one task of a write that can be repeated."""
    given = {"url": url, "writeId": "load-1", **options}
    query = Query(given, parse_options(given, stream=False, write=True))
    sent = [name for name in rows.schema.names if name != "task"]
    key = replace(BatchSink(query, sent)._key, task=number)
    return _WriteTask(query, sent, _TaskIdentity(key)).write(iter([rows]))


@pytest.mark.parametrize("named", [True, False])
def test_a_write_that_was_killed_and_is_repeated_in_other_tasks_is_refused(url: str, named: bool) -> None:
    """Its first task has noted the number of tasks, and no other task was begun."""
    send(url, "orders", [])
    more = {"queue": "orders"} if named else {}
    rows = batch(body=[b"1", b"2"], entity=["orders", "orders"])
    named_task(url, 0, rows, tasks="2", **more)
    for task, tasks in ((0, 3), (1, 1), (1, 3), (2, 3)):
        with pytest.raises(BatchConflictError, match=f"task {task} of .*tasks"):
            named_task(url, task, rows, tasks=str(tasks), **more)
    with pytest.raises(BatchConflictError, match="this run has more tasks than 2, the number that it was given"):
        named_task(url, 2, rows, tasks="2", **more)
    assert bodies(read(url)) == [b"1", b"2"]
    again = [named_task(url, task, rows, tasks="2", **more) for task in range(2)]
    assert [(each.stored, each.known) for each in again] == [(0, 2), (2, 0)]


def test_a_task_without_rows_notes_the_number_of_tasks(url: str) -> None:
    send(url, "orders", [])
    nothing, rows = batch(body=[]), batch(body=[b"1"])
    named_task(url, 1, nothing, tasks="2", queue="orders")
    with pytest.raises(BatchConflictError, match="an earlier run had 2 tasks, and this one has 3"):
        named_task(url, 0, rows, tasks="3", queue="orders")
    assert read(url) == []


@pytest.mark.parametrize("named", [True, False])
def test_a_wrong_number_of_tasks_is_told_and_corrected_at_the_end(url: str, named: bool) -> None:
    """Spark tells the real number when all tasks have ended."""
    send(url, "orders", [])
    more = {"queue": "orders"} if named else {}
    rows = batch(body=[b"1", b"2"], entity=["orders", "orders"])
    done = named_task(url, 0, rows, tasks="2", **more)
    given = {"url": url, "writeId": "load-1", "tasks": "2", **more}
    sink = BatchSink(Query(given, parse_options(given, stream=False, write=True)), rows.schema.names)
    with pytest.raises(SparkSetupError, match=r"the DataFrame had 3 tasks, and .* says 2\. .* give tasks=3"):
        sink.commit([done, done, done])
    with pytest.raises(BatchConflictError, match="an earlier run had 3 tasks, and this one has 2"):
        named_task(url, 0, rows, tasks="2", **more)
    assert (named_task(url, 0, rows, tasks="3", **more).known) == 2


def test_a_failed_write_corrects_the_number_of_tasks_that_it_has_noted(url: str) -> None:
    """The number was too small: one task more was begun, and refused."""
    send(url, "orders", [])
    rows = batch(body=[b"1", b"2"])
    done = [named_task(url, task, rows, tasks="2", queue="orders") for task in range(2)]
    assert [each.noted for each in done] == [{"orders"}, set()]
    with pytest.raises(BatchConflictError, match=r"more tasks than 2, .* Run it again with the right number"):
        named_task(url, 2, rows, tasks="2", queue="orders")
    failed: list[Any] = [*done, None]
    named_sink(url, tasks="2").abort(failed)
    again = [named_task(url, task, rows, tasks="3", queue="orders") for task in range(3)]
    assert [(each.stored, each.known) for each in again] == [(0, 2), (0, 2), (2, 0)]
    assert len(read(url)) == 6


def test_a_failed_write_leaves_the_number_of_tasks_that_an_earlier_run_has_noted(url: str) -> None:
    send(url, "orders", [])
    rows = batch(body=[b"1", b"2"])
    named_task(url, 0, rows, tasks="2", queue="orders")
    repeated: list[Any] = [named_task(url, 0, rows, tasks="2", queue="orders"), None, None]
    named_sink(url, tasks="2").abort(repeated)
    named_sink(url, tasks="3").abort(repeated)
    assert named_task(url, 1, rows, tasks="2", queue="orders").stored == 2
    with pytest.raises(BatchConflictError, match=r"an earlier run had 2 tasks.* a stream goes on without the number"):
        named_task(url, 2, rows, tasks="3", queue="orders")


def named_sink(url: str, **options: str) -> BatchSink:
    given = {"url": url, "writeId": "load-1", "queue": "orders", **options}
    return BatchSink(Query(given, parse_options(given, stream=False, write=True)), ("body",))


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_stream_whose_number_of_tasks_was_wrong_goes_on_with_the_right_one(url: str, ends: str) -> None:
    send(url, "orders", [])
    rows = batch(body=[b"1", b"2"])
    done: list[Any] = [
        replace(write(url, rows, queue="orders", tasks="2", number=5, task=at), writer="w") for at in (0, 1)
    ]
    sink = StreamSink(*writing(url, rows, queue="orders", tasks="2"))
    if ends == "abort":
        sink.abort([*done, None], 5)
    else:
        with pytest.raises(SparkSetupError, match="the DataFrame had 3 tasks, and the option tasks says 2"):
            sink.commit([*done, Written(task=2, writer="w")], 5)
    again = [write(url, rows, queue="orders", tasks="3", number=5, task=at) for at in range(3)]
    assert [(each.stored, each.known) for each in again] == [(0, 2), (0, 2), (2, 0)]
    assert write(url, rows, queue="orders", tasks="3", number=6).stored == 2


def test_rows_that_say_their_task_are_stored_once_in_any_number_of_tasks(url: str) -> None:
    """The first run was killed. The next one has other tasks, but each row is in the same one."""
    send(url, "orders", [])
    given = {"queue": "orders", "taskColumn": "task"}
    rows = [batch(body=[b"%d of %d" % (row, task) for row in range(5)], task=[task] * 5) for task in range(3)]
    named_task(url, 0, rows[0], **given)
    for at, wrong in ((1, rows[2]), (0, batch(body=[b"x", b"y"], task=[0, None])), (3, rows[0])):
        with pytest.raises(
            SparkSetupError, match=rf"A row in task {at} says in the column task that it belongs to task"
        ):
            named_task(url, at, wrong, **given)
    assert len(read(url)) == 5
    done = [named_task(url, task, each, **given) for task, each in enumerate(rows)]
    assert [(each.stored, each.known) for each in done] == [(0, 5), (5, 0), (5, 0)]
    named_sink(url, taskColumn="task").commit([*done])
    with pytest.raises(BatchConflictError, match="the task has 5 rows in an earlier run, and more in this one"):
        named_task(url, 1, batch(body=[b"%d of 1" % row for row in range(6)], task=[1] * 6), **given)
    with pytest.raises(
        BatchConflictError, match="an earlier run had tasks that the rows say, and this one has 2 tasks"
    ):
        named_task(url, 0, rows[0], tasks="2", queue="orders")
    assert len(read(url)) == 15


def test_a_column_of_tasks_must_be_there_and_have_whole_numbers(url: str) -> None:
    options = parse_options({"url": url, "queue": "orders", "taskColumn": "task"}, stream=True, write=True)
    assert check_written([("body", "binary"), ("task", "bigint")], options) == ("body",)
    with pytest.raises(SparkSetupError, match="taskColumn names 'task', which is not a column of the DataFrame"):
        check_written([("body", "binary")], options)
    with pytest.raises(SparkSetupError, match="The column task has the type string, but taskColumn needs INT"):
        check_written([("body", "binary"), ("task", "string")], options)


def test_a_wrong_write_id_is_refused_before_anything_is_sent(url: str) -> None:
    given = {"url": url, "queue": "orders", "writeId": "load 1/2", "tasks": "1"}
    query = Query(given, parse_options(given, stream=False, write=True))
    with pytest.raises(SparkSetupError, match=r"option writeId is wrong: .*1 to 128 letters"):
        BatchSink(query, ("body",))
