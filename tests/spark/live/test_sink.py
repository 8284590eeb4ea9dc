"""Tests of the sink: rows become messages, once each, however often a task runs."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sbredis import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.spark._browse import BrowseReader
from sbredis.spark._options import parse_options
from sbredis.spark._query import Query
from sbredis.spark._schema import check_written
from sbredis.spark._sink import Written, _Output, _Task
from tests.spark.live.reading import bodies, query, rows_of, send

pytestmark = pytest.mark.slow
TYPES = {
    "body": ("binary", pa.binary()),
    "entity": ("string", pa.string()),
    "order_id": ("string", pa.string()),
    "message_id": ("string", pa.string()),
    "session_id": ("string", pa.string()),
    "subject": ("string", pa.string()),
    "time_to_live_ms": ("bigint", pa.int64()),
    "scheduled_enqueue_time": ("timestamp", pa.timestamp("us", tz="UTC")),
    "application_properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
}


def batch(**columns: Iterable[Any]) -> pa.RecordBatch:
    arrays = [pa.array(list(values), TYPES[name][1]) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def write(
    url: str, *batches: pa.RecordBatch, writer: str = "w", number: int = 0, task: int = 0, **options: str
) -> Written:
    given = {"url": url, **options}
    parsed = parse_options(given, stream=True, write=True)
    sent = check_written([(name, TYPES[name][0]) for name in batches[0].schema.names], parsed)
    return _Task(Query(given, parsed), sent, _Output(writer, number, task, "stream")).write(iter(batches))


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


def test_a_task_that_died_in_the_middle_goes_on_where_it_was(url: str) -> None:
    send(url, "orders", [])
    rows = [str(number).encode() for number in range(3000)]

    def dying() -> Iterable[pa.RecordBatch]:
        yield batch(body=rows[:2000])
        raise RuntimeError("the executor is killed")

    with pytest.raises(RuntimeError, match="is killed"):
        write_all(url, dying())
    done = write(url, batch(body=rows), queue="orders")
    assert done.stored + done.known == 3000
    assert sorted(bodies(read(url))) == sorted(rows)


def write_all(url: str, batches: Iterable[pa.RecordBatch]) -> Written:
    given = {"url": url, "queue": "orders"}
    options = parse_options(given, stream=True, write=True)
    return _Task(Query(given, options), ("body",), _Output("w", 0, 0, "stream")).write(iter(batches))


def test_a_task_with_other_rows_is_refused(url: str) -> None:
    """This happens if the input of a batch is not deterministic, or if its number of tasks has changed."""
    send(url, "orders", [])
    write(url, batch(body=[b"one", b"two"]), queue="orders")
    with pytest.raises(ServiceBusError, match="batch 0"):
        write(url, batch(body=[b"other", b"two"]), queue="orders")
    assert len(read(url)) == 2


def test_a_task_that_runs_twice_at_the_same_time_stores_each_row_once(url: str) -> None:
    """Spark does this speculatively if a task is slow."""
    send(url, "orders", [])
    rows = [str(number).encode() for number in range(5000)]
    pieces = [batch(body=rows[at : at + 1000]) for at in range(0, 5000, 1000)]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: write(url, *pieces, queue="orders"), range(2)))
    assert sum(each.stored for each in done) == 5000
    assert sorted(bodies(read(url))) == sorted(rows)


def test_a_batch_in_another_number_of_tasks_is_refused(url: str) -> None:
    send(url, "orders", [])
    rows = [str(number).encode() for number in range(100)]
    write(url, batch(body=rows), queue="orders")
    with pytest.raises(ServiceBusError, match="batch 0"):
        write(url, batch(body=rows[:50]), queue="orders")
    assert sorted(bodies(read(url))) == sorted(rows)


def test_each_row_may_name_its_entity(url: str) -> None:
    send(url, "orders", [])
    send(url, "invoices", [])
    write(url, batch(body=[b"1", b"2", b"3"], entity=["orders", "invoices", "orders"]))
    assert sorted(bodies(read(url))) == [b"1", b"3"]
    assert bodies(read(url, "invoices")) == [b"2"]


def test_a_column_can_give_the_ids_for_duplicate_detection(url: str) -> None:
    with ServiceBusClient(url) as client:
        client.get_queue_sender("orders", create_if_missing={"requires_duplicate_detection": True}).send_messages([])
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
