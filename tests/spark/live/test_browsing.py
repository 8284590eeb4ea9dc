"""Tests of browsing: a batch and a stream of the messages in an entity, which stay there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import _parse_datatype_json_string

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.exceptions import MessagesLostError, MessagingEntityNotFoundError, SparkSetupError
from sbredis.spark._browse import BrowseReader, BrowseStreamReader
from sbredis.spark._loop import run
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import Row, bodies, query, rows_of, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def read(url: str, **options: str) -> list[Row]:
    reader = BrowseReader(query(url, stream=False, **options))
    return rows_of(reader, reader.partitions())


def test_a_batch_has_every_message_once_and_leaves_it_there(url: str) -> None:
    send(url, "orders", map(str, range(95)))
    for _ in range(2):
        assert sorted(map(int, bodies(read(url, queue="orders")))) == list(range(95))


NO_FIELDS = dict.fromkeys(("type", "boolean", "integer", "number", "time", "bytes", "text"))
"""The fields of a property with its type."""


def test_a_row_says_what_the_message_says(url: str) -> None:
    send(url, "first", [])
    due = datetime(2035, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    with ServiceBusClient(url) as client, client.get_queue_sender("first") as sender:
        sender.send_messages(
            ServiceBusMessage(
                b"body",
                message_id="id-1",
                session_id=None,
                partition_key="key",
                correlation_id="c",
                subject="s",
                content_type="text/plain",
                reply_to="r",
                to="t",
                time_to_live=timedelta(days=1),
                application_properties={"a": 1, "b": "x", "c": True},
            )
        )
        sender.schedule_messages(ServiceBusMessage("later"), due)
        with client.get_queue_receiver("first") as receiver:
            (peeked,) = (each for each in receiver.peek_messages(5) if each.body == b"body")
    now, later = sorted(read(url, queue="first"), key=lambda row: str(row["state"]))
    assert now == {
        "entity": "first",
        "incarnation": later["incarnation"],
        "partition": peeked.sequence_number >> 48,
        "sequence_number": peeked.sequence_number,
        "enqueued_sequence_number": peeked.sequence_number,
        "message_id": "id-1",
        "session_id": None,
        "partition_key": "key",
        "correlation_id": "c",
        "subject": "s",
        "content_type": "text/plain",
        "reply_to": "r",
        "reply_to_session_id": None,
        "to": "t",
        "enqueued_time": peeked.enqueued_time_utc,
        "scheduled_enqueue_time": None,
        "time_to_live_ms": 86_400_000,
        "expires_at": peeked.expires_at_utc,
        "delivery_count": 0,
        "state": "active",
        "dead_letter_reason": None,
        "dead_letter_description": None,
        "dead_letter_source": None,
        "application_properties": [("a", "1"), ("b", "x"), ("c", "true")],
        "typed_properties": [
            ("a", {**NO_FIELDS, "type": "integer", "integer": 1, "number": 1.0, "text": "1"}),
            ("b", {**NO_FIELDS, "type": "text", "text": "x"}),
            ("c", {**NO_FIELDS, "type": "boolean", "boolean": True, "text": "true"}),
        ],
        "amqp": None,
        "body": b"body",
    }
    assert (later["state"], later["scheduled_enqueue_time"], later["enqueued_time"]) == ("scheduled", due, None)


def test_dead_letters_have_their_reasons(url: str) -> None:
    send(url, "orders", ["bad", "good"], partitioned=False)
    with ServiceBusClient(url) as client, client.get_queue_receiver("orders") as receiver:
        (bad,) = receiver.receive_messages(1)
        receiver.dead_letter_message(bad, reason="torn", error_description="the letter is torn")
    (row,) = read(url, queue="orders", subQueue="deadLetter")
    assert (row["body"], row["dead_letter_reason"], row["dead_letter_description"]) == (
        b"bad",
        "torn",
        "the letter is torn",
    )
    assert bodies(read(url, queue="orders")) == [b"good"]


def test_large_columns_can_be_left_out(url: str) -> None:
    send(url, "orders", ["one"], application_properties={"a": "b"})
    (row,) = read(url, queue="orders", includeBody="false", includeProperties="false")
    assert row.keys().isdisjoint({"body", "application_properties"})


def test_a_batch_begins_and_ends_where_the_options_say(url: str) -> None:
    send(url, "orders", map(str, range(50)), partitioned=False)
    (partition,) = {row["partition"] for row in read(url, queue="orders")}
    offsets = {"startingOffsets": json.dumps({partition: 11}), "endingOffsets": json.dumps({partition: 21})}
    assert sorted(map(int, bodies(read(url, queue="orders", **offsets)))) == list(range(10, 20))
    assert read(url, queue="orders", startingOffsets="latest") == []
    assert read(url, queue="orders", endingTimestamp="2001-01-01") == []
    assert len(read(url, queue="orders", startingTimestamp="2001-01-01", minPartitions="4")) == 50
    with pytest.raises(SparkSetupError, match=r"startingOffsets names the partitions \[99\], but 'orders' has"):
        read(url, queue="orders", startingOffsets='{"99": 1}')


def test_offsets_are_sequence_numbers_as_a_row_has_them(url: str) -> None:
    """A partition of a partitioned entity has numbers of its own range."""
    send(url, "orders", map(str, range(95)))
    rows = read(url, queue="orders")
    partition = max(row["partition"] for row in rows)
    numbers = sorted(row["sequence_number"] for row in rows if row["partition"] == partition)
    assert numbers[0] > 1 << 48
    begun = read(url, queue="orders", startingOffsets=json.dumps({partition: numbers[3]}))
    assert sorted(row["sequence_number"] for row in begun if row["partition"] == partition) == numbers[3:]
    assert len(begun) == 95 - 3
    ended = read(url, queue="orders", endingOffsets=json.dumps({partition: numbers[3]}))
    assert len(ended) == 95 - len(numbers) + 3
    assert len(read(url, queue="orders", endingOffsets=json.dumps({partition: numbers[-1] + 1000}))) == 95
    reader = BrowseStreamReader(
        query(url, stream=True, queue="orders", startingOffsets=json.dumps({partition: numbers[3]}))
    )
    start = reader.initialOffset()
    assert len(rows_of(reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))) == 95 - 3
    with pytest.raises(SparkSetupError, match=rf"gives 17 for the partition {partition}, but the sequence numbers of"):
        read(url, queue="orders", startingOffsets=json.dumps({partition: 17}))


@pytest.mark.parametrize("scheduled", [True, False])
def test_only_the_columns_that_an_option_names_are_read(url: str, scheduled: bool) -> None:
    send(url, "orders", ["one"], subject="s", application_properties={"a": "b"})
    if scheduled:
        schedule(url, "orders", ["two"], datetime(2035, 1, 1, tzinfo=UTC))
    rows = read(url, queue="orders", columns="body, Subject,partition")
    assert [list(row) for row in rows] == [["body", "subject", "partition"]] * (1 + scheduled)
    assert {row["body"]: row["subject"] for row in rows}[b"one"] == "s"
    reader = BrowseStreamReader(query(url, stream=True, queue="orders", columns="message_id"))
    start = reader.initialOffset()
    (row,) = rows_of(reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))
    assert list(row) == ["message_id"]


def test_a_page_has_no_more_messages_and_bytes_than_the_options_say(url: str) -> None:
    send(url, "orders", ["x" * 1000] * 40, partitioned=False)

    async def sizes(**options: str) -> list[int]:
        browser = await query(url, stream=False, queue="orders", **options).browser("orders")
        return [len(page.names) async for page in browser.pages(browser.partitions[0], 0, 1 << 40)]

    assert run(sizes()) == [40]
    assert run(sizes(pageMessages="16")) == [16, 16, 8]
    assert set(run(sizes(pageBytes="5500"))) == {5}
    assert run(sizes(pageBytes="1")) == [1] * 40
    for options in ({"pageMessages": "7"}, {"pageBytes": "5500"}, {"maxBytesPerSecond": "1_000_000_000"}):
        assert len(read(url, queue="orders", **options)) == 40


def test_a_stream_waits_for_the_messages_or_bytes_that_an_option_asks_for(url: str) -> None:
    send(url, "orders", ["1"] * 5)
    for least in ({"minMessagesPerTrigger": "6"}, {"minBytesPerTrigger": "600"}):
        given = {"queue": "orders", "minPollIntervalMs": "0", **least}
        for patience, rows in (("1 h", 0), ("0", 5)):
            reader = BrowseStreamReader(query(url, stream=True, **given, maxTriggerDelay=patience))
            start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
            end = reader.latestOffset(start, limit)
            assert len(rows_of(reader, reader.partitions(start, end))) == rows
            lag = reader.reportLatestOffset()
            assert lag is not None
            assert lag["messagesLeft"] == 5 - rows
            assert (lag["oldestEnqueuedTime"] > 0) is (rows == 0)
    send(url, "orders", ["2"])
    reader = BrowseStreamReader(query(url, stream=True, queue="orders", minMessagesPerTrigger="6"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(rows_of(reader, reader.partitions(start, end))) == 6


def schedule(url: str, queue: str, texts: Iterable[str], due: datetime) -> None:
    with ServiceBusClient(url) as client, client.get_queue_sender(queue) as sender:
        sender.schedule_messages([ServiceBusMessage(text) for text in texts], due)


def test_a_batch_begins_and_ends_at_a_time_although_messages_are_scheduled(url: str) -> None:
    """A scheduled message has a number among those that were sent then, but no enqueued time."""
    send(url, "orders", ["1", "2"], partitioned=False)
    before = max(row["enqueued_time"] for row in read(url, queue="orders"))
    wait_until(lambda: datetime.now(UTC) > before + timedelta(milliseconds=2))
    send(url, "orders", ["3", "4"], partitioned=False)
    schedule(url, "orders", map(str, range(10, 60)), datetime(2035, 1, 1, tzinfo=UTC))
    send(url, "orders", ["5"], partitioned=False)
    at = min(row["enqueued_time"] for row in read(url, queue="orders") if row["body"] == b"3").isoformat()
    assert bodies(read(url, queue="orders", startingTimestamp=at)) == [b"3", b"4", b"5"]
    assert bodies(read(url, queue="orders", endingTimestamp=at)) == [b"1", b"2"]
    assert len(read(url, queue="orders")) == 55


def test_a_stream_takes_each_message_once_while_many_scheduled_ones_become_due(url: str) -> None:
    """A look shows up to 500 overdue messages as enqueued, but a send enqueues only some of them before its own."""
    send(url, "orders", [], partitioned=False)
    due = datetime.now(UTC) + timedelta(milliseconds=400)
    schedule(url, "orders", map(str, range(300)), due)
    reader = BrowseStreamReader(query(url, stream=True, queue="orders"))
    start = reader.initialOffset()
    wait_until(lambda: datetime.now(UTC) > due + timedelta(milliseconds=10))
    middle = reader.latestOffset(start, ReadAllAvailable())
    rows = rows_of(reader, reader.partitions(start, middle))
    send(url, "orders", ["300"], partitioned=False)
    end = reader.latestOffset(middle, ReadAllAvailable())
    rows += rows_of(reader, reader.partitions(middle, end))
    assert sorted(map(int, bodies(rows))) == list(range(301))


def test_partitions_take_turns_in_batches_that_are_too_small_for_all_of_them(url: str) -> None:
    send(url, "orders", map(str, range(400)))
    reader = BrowseStreamReader(query(url, stream=True, queue="orders", maxMessagesPerTrigger="1"))
    start, turns = reader.initialOffset(), list[int]()
    for _ in range(3):
        end = reader.latestOffset(start, ReadMaxRows(1))
        turns += [row["partition"] for row in rows_of(reader, reader.partitions(start, end))]
        start = end
    assert turns == sorted(turns)
    assert len(set(turns)) == 3


def test_what_cannot_be_browsed_is_refused(url: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.create_topic("events")
    with pytest.raises(MessagingEntityNotFoundError, match="nosuch"):
        read(url, queue="nosuch")
    with pytest.raises(SparkSetupError, match="'events' is a topic, which holds no messages: read one of its subscri"):
        read(url, queue="events")


def test_a_stream_takes_each_message_once_in_limited_batches(url: str) -> None:
    send(url, "orders", map(str, range(60)))
    reader = BrowseStreamReader(query(url, stream=True, queue="orders", maxMessagesPerTrigger="25"))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(25)
    start, taken = reader.initialOffset(), []
    assert start == reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        rows = rows_of(reader, reader.partitions(start, end))
        assert len(rows) <= 25
        taken += rows
        start = end
    assert sorted(map(int, bodies(taken))) == list(range(60))
    send(url, "orders", ["new"])
    assert bodies(rows_of(reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))) == [b"new"]


def test_a_first_batch_that_is_repeated_begins_where_it_began(url: str) -> None:
    send(url, "orders", ["old"])
    options = {"queue": "orders", "startingOffsets": "latest"}
    reader = BrowseStreamReader(query(url, stream=True, **options))
    start = reader.initialOffset()
    send(url, "orders", ["new"])
    end = reader.latestOffset(start, ReadAllAvailable())
    again = BrowseStreamReader(query(url, stream=True, **options))
    assert bodies(rows_of(again, again.partitions(again.initialOffset(), end))) == [b"new"]


def test_a_draining_stream_ends_with_the_messages_that_were_there(url: str) -> None:
    send(url, "orders", map(str, range(20)))
    reader = BrowseStreamReader(query(url, stream=True, queue="orders"))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    send(url, "orders", ["too late"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sorted(map(int, bodies(rows_of(reader, reader.partitions(start, end))))) == list(range(20))
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_an_entity_that_was_made_again_is_a_loss(url: str) -> None:
    send(url, "orders", ["one"])
    reader = BrowseStreamReader(query(url, stream=True, queue="orders"))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.delete_queue("orders")
    send(url, "orders", ["two"])
    for option in ("true", "false"):
        later = BrowseStreamReader(query(url, stream=True, queue="orders", failOnDataLoss=option))
        if option == "true":
            with pytest.raises(MessagesLostError, match="was deleted and created again since the last batch"):
                later.latestOffset(end, ReadAllAvailable())
        else:
            after = later.latestOffset(end, ReadAllAvailable())
            assert bodies(rows_of(later, later.partitions(end, after))) == [b"two"]


def test_the_arrow_schema_is_the_one_that_spark_makes_of_the_columns(url: str) -> None:
    """Spark refuses a RecordBatch whose schema differs in any way."""
    del url
    from sbredis.spark._schema import READ_COLUMNS, arrow_schema

    fields = [_json_field(column.name, column.type) for column in READ_COLUMNS]
    spark = _parse_datatype_json_string(json.dumps({"type": "struct", "fields": fields}))
    assert to_arrow_schema(spark, timezone="UTC").equals(arrow_schema(READ_COLUMNS))


def _json_field(name: str, kind: str) -> object:
    return {"name": name, "type": _json_type(kind), "nullable": True, "metadata": {}}


def _json_type(kind: str) -> object:
    if kind.startswith("MAP<STRING, "):
        inner = _json_type(kind.removeprefix("MAP<STRING, ").removesuffix(">"))
        return {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    if kind.startswith("STRUCT<"):
        fields = (field.split(": ") for field in kind.removeprefix("STRUCT<").removesuffix(">").split(", "))
        return {"type": "struct", "fields": [_json_field(*field) for field in fields]}
    simple = {"STRING": "string", "INT": "integer", "BIGINT": "long", "TIMESTAMP": "timestamp", "BINARY": "binary"}
    return {**simple, "BOOLEAN": "boolean", "DOUBLE": "double"}[kind]
