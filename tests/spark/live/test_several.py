"""Tests of a query that reads several entities: a list of queues, or those whose names have a pattern."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from sbredis.exceptions import EntityReservedError, MessagesLostError, SparkSetupError
from sbredis.spark._browse import BrowseReader, BrowseStreamReader
from sbredis.spark._consume import ConsumeReader
from sbredis.spark._loop import run
from sbredis.spark._query import Followed
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import Row, bodies, query, rows_of, send

pytestmark = pytest.mark.slow
ALL = ReadAllAvailable()
BOTH: dict[str, str] = {"queues": "orders,invoices"}
LIKE = {"queuePattern": "(orders|invoices).*"}
CONSUME = {"mode": "consume", "consumer": "capture"}


def read(url: str, **options: str) -> list[Row]:
    reader = BrowseReader(query(url, stream=False, **options))
    return rows_of(reader, reader.partitions())


def fill(url: str) -> None:
    """Send 30 orders and 20 invoices, and one message to another queue."""
    send(url, "orders", [f"order {number}" for number in range(30)])
    send(url, "invoices", [f"invoice {number}" for number in range(20)], partitioned=False)
    send(url, "others", ["other"])


def stream(url: str, kind: type[BrowseStreamReader | ConsumeReader], **options: str) -> Any:
    given = {**options, **(CONSUME if kind is ConsumeReader else {})}
    return kind(query(url, stream=True, **given))


def drained(reader: DataSourceStreamReader, start: dict[str, Any] | None = None, limit: ReadLimit = ALL) -> list[Row]:
    """Run batches until there is nothing new. The end of each goes through JSON, as in a checkpoint."""
    rows: list[Row] = []
    begun: dict[str, Any] = start or reader.initialOffset()
    while (end := json.loads(json.dumps(reader.latestOffset(begun, limit)))) != begun:
        rows += rows_of(reader, reader.partitions(begun, end))
        begun = end
    return rows


def by_entity(rows: list[Row]) -> dict[str, int]:
    return {name: sum(row["entity"] == name for row in rows) for name in {row["entity"] for row in rows}}


@pytest.mark.parametrize("which", [BOTH, LIKE], ids=["list", "pattern"])
def test_a_batch_has_the_messages_of_all_entities(url: str, which: dict[str, str]) -> None:
    fill(url)
    for tasks in ({}, {"maxTasks": "1"}, {"maxRecordsPerPartition": "7"}):
        rows = read(url, **which, **tasks)
        assert by_entity(rows) == {"orders": 30, "invoices": 20}
        assert len(set(bodies(rows))) == 50


def test_a_task_has_no_more_rows_than_the_option_allows(url: str) -> None:
    fill(url)
    reader = BrowseReader(query(url, stream=False, **BOTH, maxRecordsPerPartition="7"))
    sizes = [len(rows_of(reader, [task])) for task in reader.partitions()]
    assert sum(sizes) == 50
    assert max(sizes) <= 7


def test_offsets_are_those_of_the_rows_and_may_name_some_partitions_only(url: str) -> None:
    fill(url)
    rows = [row for row in read(url, **BOTH) if row["entity"] == "invoices"]
    numbers, (partition,) = sorted(row["sequence_number"] for row in rows), {row["partition"] for row in rows}
    some = {"Invoices": {partition: numbers[5]}, "orders": {}}
    to = {"invoices": {partition: numbers[8]}}
    found = read(url, **BOTH, startingOffsets=json.dumps(some), endingOffsets=json.dumps(to))
    assert by_entity(found) == {"orders": 30, "invoices": 3}
    assert sorted(row["sequence_number"] for row in found if row["entity"] == "invoices") == numbers[5:8]
    for end, count in ((-1, 0), (-2, 20)):
        starting = json.dumps({"invoices": {partition: end}})
        assert by_entity(read(url, **BOTH, startingOffsets=starting)).get("invoices", 0) == count


@pytest.mark.parametrize("kind", [BrowseStreamReader, ConsumeReader])
@pytest.mark.parametrize("which", [BOTH, LIKE], ids=["list", "pattern"])
@pytest.mark.parametrize("most", [{}, {"maxMessagesPerTrigger": "8"}, {"maxBytesPerTrigger": "900"}], ids=str)
def test_a_stream_has_each_message_of_all_entities_once(
    url: str, kind: type[BrowseStreamReader | ConsumeReader], which: dict[str, str], most: dict[str, str]
) -> None:
    fill(url)
    reader = stream(url, kind, **which, **most, minPollIntervalMs="0")
    rows = drained(reader, limit=reader.getDefaultReadLimit())
    assert by_entity(rows) == {"orders": 30, "invoices": 20}
    assert len(set(bodies(rows))) == 50
    lag = reader.reportLatestOffset()
    assert (lag["messagesLeft"], lag["bytesLeft"], lag["secondsBehind"]) == (0, 0, 0.0)
    assert set(lag["entities"]) == {"orders", "invoices"}
    with ServiceBusAdministrationClient(url) as admin:
        left = {queue.name: queue.active_message_count for queue in admin.list_queues_runtime_properties()}
        assert left == {"others": 1, **dict.fromkeys(("orders", "invoices"), 0)} or kind is BrowseStreamReader
        reserved = sorted(each.path for each in admin.list_reservations())
    assert reserved == (["invoices", "orders"] if kind is ConsumeReader else [])


@pytest.mark.parametrize("kind", [BrowseStreamReader, ConsumeReader])
def test_a_query_that_is_started_again_reads_a_new_queue_that_its_pattern_matches(
    url: str, kind: type[BrowseStreamReader | ConsumeReader]
) -> None:
    fill(url)
    reader = stream(url, kind, **LIKE)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert len(rows_of(reader, reader.partitions(start, end))) == 50
    send(url, "orders-2", ["new 1", "new 2"])
    send(url, "orders", ["more"])
    later = stream(url, kind, **LIKE)
    assert sorted(bodies(drained(later, end))) == [b"more", b"new 1", b"new 2"]


@pytest.mark.parametrize("kind", [BrowseStreamReader, ConsumeReader])
@pytest.mark.parametrize("which", [{"queue": "orders"}, {"queues": "orders,invoices,others"}, {"queuePattern": "o.*"}])
def test_a_checkpoint_of_other_entities_is_refused_and_nothing_is_reserved(
    url: str, kind: type[BrowseStreamReader | ConsumeReader], which: dict[str, str]
) -> None:
    fill(url)
    reader = stream(url, kind, **BOTH)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with ServiceBusAdministrationClient(url) as admin:
        for path in ("orders", "invoices"):
            admin.release_reservation(path)
        for accepts in ("true", "false"):
            with pytest.raises(SparkSetupError, match=r"The checkpoint belongs to '\w+' and '\w+', but the query"):
                stream(url, kind, **which, failOnDataLoss=accepts).latestOffset(end, ALL)
        assert list(admin.list_reservations()) == []


@pytest.mark.parametrize("kind", [BrowseStreamReader, ConsumeReader])
def test_a_matched_queue_that_is_deleted_is_a_loss(url: str, kind: type[BrowseStreamReader | ConsumeReader]) -> None:
    fill(url)
    reader = stream(url, kind, **LIKE)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with ServiceBusAdministrationClient(url) as admin:
        for each in admin.list_reservations():
            admin.release_reservation(each.path)
        admin.delete_queue("invoices")
    with pytest.raises(MessagesLostError, match="'invoices' was deleted since the last batch"):
        stream(url, kind, **LIKE).latestOffset(end, ALL)
    send(url, "orders", ["more"])
    assert b"more" in bodies(drained(stream(url, kind, **LIKE, failOnDataLoss="false"), end))


def test_an_entity_that_is_reserved_for_another_consumer_refuses_the_query(url: str) -> None:
    fill(url)
    first = stream(url, ConsumeReader, queue="invoices")
    first.latestOffset(first.initialOffset(), ALL)
    other = ConsumeReader(query(url, stream=True, **BOTH, mode="consume", consumer="another"))
    with pytest.raises(EntityReservedError, match="invoices"):
        other.latestOffset(other.initialOffset(), ALL)


def test_a_pattern_that_matches_nothing_is_refused(url: str) -> None:
    fill(url)
    with pytest.raises(SparkSetupError, match=r"queuePattern matches no queue: .* like 'order'\. The pattern is a"):
        read(url, queuePattern="order")
    for kind in (BrowseStreamReader, ConsumeReader):
        with pytest.raises(SparkSetupError, match="queuePattern matches no queue"):
            drained(stream(url, kind, queuePattern="order"))


def test_a_topic_among_queues_is_refused(url: str) -> None:
    fill(url)
    with ServiceBusAdministrationClient(url) as admin:
        admin.create_topic("events")
    with pytest.raises(SparkSetupError, match="'events' is a topic, which holds no messages"):
        read(url, queues="orders,events")
    assert by_entity(read(url, queuePattern="orders|events")) == {"orders": 30}


def test_a_stream_looks_for_new_queues_once_a_minute(url: str) -> None:
    fill(url)
    now = 0.0
    followed = Followed(query(url, stream=True, **LIKE), clock=lambda: now)
    assert run(followed.paths()) == ("invoices", "orders")
    send(url, "orders-2", [])
    assert run(followed.paths()) == ("invoices", "orders")
    now = 60.0
    assert run(followed.paths()) == ("invoices", "orders", "orders-2")
