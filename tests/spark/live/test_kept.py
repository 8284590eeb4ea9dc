"""What is read and written again is the same: each part of a message survives, and each property keeps its type."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.bulk import WriterKey
from sbredis.exceptions import RowRefusedError
from sbredis.model import SqlRuleFilter
from sbredis.spark._browse import BrowseReader
from sbredis.spark._options import parse_options
from sbredis.spark._query import Query
from sbredis.spark._refused import prepare_folder
from sbredis.spark._schema import READ_COLUMNS, TYPED_MAP, SchemaColumn, arrow_schema, check_written
from sbredis.spark._sink import Written, _TaskIdentity, _WriteTask
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.engine.test_codec import typed
from tests.spark.live.kept import contents_of, send_random
from tests.spark.live.reading import query, send

pytestmark = pytest.mark.slow


def forward(url: str, source: str, target: str) -> Written:
    """Read a queue, and write its rows to another one, as Spark does it with a DataFrame that was read."""
    reader = BrowseReader(query(url, stream=False, queue=source))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    given = {"url": url, "topic" if target == "news" else "queue": target}
    options = parse_options(given, stream=True, write=True)
    sent = check_written([(column.name, column.type) for column in READ_COLUMNS], options)
    task = _TaskIdentity(WriterKey("w", 0, 0, "stream"))
    return _WriteTask(Query(given, options), sent, task).write(iter(batches))


@pytest.mark.parametrize("seed", range(4))
def test_every_part_of_a_message_survives_reading_and_writing(url: str, seed: int) -> None:
    send_random(url, "source", 60, seed)
    send(url, "target", [])
    done = forward(url, "source", "target")
    assert (done.stored, done.refused) == (60, 0)
    before, after = contents_of(url, "source"), contents_of(url, "target")
    for one, other in zip(before, after, strict=True):
        assert one == other


def test_a_rule_matches_the_same_messages_after_reading_and_writing(url: str) -> None:
    """Text is never greater than a number."""
    with ServiceBusAdministrationClient(url) as administration:
        administration.create_topic("news")
        administration.create_subscription("news", "large")
        administration.delete_rule("news", "large", "$Default")
        administration.create_rule("news", "large", "rule", filter=SqlRuleFilter("v > 2"))
    values = [1, 2, 3, 4.5, "3", Decimal(7)]
    with ServiceBusClient(url) as client, client.get_queue_sender("source", create_if_missing={}) as sender:
        sender.send_messages([ServiceBusMessage(b"", application_properties={"v": value}) for value in values])
    forward(url, "source", "news")
    with ServiceBusClient(url) as client, client.get_subscription_receiver("news", "large") as receiver:
        found = [message.application_properties for message in receiver.peek_messages(10)]
    assert sorted(map(repr, found)) == ["{'v': 3}", "{'v': 4.5}", "{'v': Decimal('7')}"]


TYPED = arrow_schema([SchemaColumn("p", TYPED_MAP, "")]).field(0).type
NAMES = ("type", "boolean", "integer", "number", "time", "bytes", "text")


def write(url: str, *, refused: str | None = None, **columns: list[Any]) -> Written:
    """Write rows whose properties and other parts a user has made."""
    types = {"typed_properties": TYPED, "application_properties": pa.map_(pa.string(), pa.string())}
    given = {"url": url, "queue": "target"}
    options = parse_options(given, stream=True, write=True)
    arrays = [pa.array(values, types.get(name, pa.binary())) for name, values in columns.items()]
    task = _TaskIdentity(WriterKey("w", 0, 0, "stream"), refused)
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return _WriteTask(Query(given, options), list(columns), task).write(iter([batch]))


def one(**fields: Any) -> list[tuple[str, Any]]:
    """Return a row that has a single property."""
    return [("p", None if not fields else {name: fields.get(name) for name in NAMES})]


def sent_properties(url: str) -> list[dict[Any, Any] | None]:
    with ServiceBusClient(url) as client, client.get_queue_receiver("target") as receiver:
        return [message.application_properties for message in receiver.peek_messages(100)]


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"type": "text", "text": "é"}, "é"),
        ({"type": "boolean", "boolean": True}, True),
        ({"type": "integer", "integer": -5}, -5),
        ({"type": "integer", "text": str(2**64 - 1)}, 2**64 - 1),
        ({"type": "float", "number": 0.5}, 0.5),
        ({"type": "decimal", "text": "1.50"}, Decimal("1.50")),
        ({"type": "bytes", "bytes": b"\xff"}, b"\xff"),
        ({"type": "time", "time": datetime(2026, 5, 1, tzinfo=UTC)}, datetime(2026, 5, 1, tzinfo=UTC)),
        ({"type": "uuid", "text": str(UUID(int=1))}, UUID(int=1)),
        ({"type": "none"}, None),
        ({}, None),
    ],
)
def test_a_property_has_the_type_that_its_row_says(url: str, fields: dict[str, Any], value: Any) -> None:
    send(url, "target", [], partitioned=False)
    assert write(url, body=[b"1"], typed_properties=[one(**fields)]).stored == 1
    (found,) = sent_properties(url)
    assert typed(found) == typed({"p": value})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"type": "boolean"}, "no value in its field boolean"),
        ({"type": "text"}, "no value in its field text"),
        ({"type": "integer", "text": "seven"}, "invalid literal"),
        ({"type": "integer", "text": str(2**64)}, "does not fit into 64 bits"),
        ({"type": "decimal", "text": "1e9999"}, "does not fit into 128 bits"),
        ({"type": "decimal", "text": "x"}, "a value that cannot be read"),
        ({"type": "uuid", "text": "x"}, "badly formed"),
        ({"type": "list", "text": "[1]"}, "no type that a message can have; the types are text, none, boolean"),
        ({"text": "x"}, "no type that a message can have"),
        ({"type": "time", "time": 2**62}, "a value that cannot be read"),
    ],
)
def test_a_property_that_cannot_be_sent_is_refused(url: str, tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    send(url, "target", [], partitioned=False)
    rows: dict[str, Any] = {"body": [b"1", b"2"], "typed_properties": [one(**fields), one(type="text", text="good")]}
    with pytest.raises(RowRefusedError, match=rf"its property 'p' of the type .* has .*{why}"):
        write(url, **rows)
    assert sent_properties(url) == []
    done = write(url, refused=prepare_folder(str(tmp_path)), **rows)
    assert (done.stored, done.refused) == (1, 1)
    assert sent_properties(url) == [{"p": "good"}]


def test_a_row_without_typed_properties_sends_the_others(url: str) -> None:
    send(url, "target", [], partitioned=False)
    integer = [("n", {**dict.fromkeys(NAMES), "type": "integer", "integer": 1})]
    write(
        url,
        body=[b"1", b"2", b"3", b"4"],
        typed_properties=[integer, None, None, []],
        application_properties=[[("n", "no")], [("t", "2")], None, [("t", "no")]],
    )
    assert sent_properties(url) == [{"n": 1}, {"t": "2"}, None, None]


@pytest.mark.parametrize(
    "value", [b"", b"\x02\x00", b"\x01\x0d\x05abc", b"\x01\x00more", b"garbage", b"\x01\x0e\x01x\x00"]
)
def test_a_column_amqp_that_no_read_gave_is_refused(url: str, value: bytes) -> None:
    send(url, "target", [])
    with pytest.raises(RowRefusedError, match="its column amqp is not one that a read gave"):
        write(url, body=[b"1"], amqp=[value])
    assert sent_properties(url) == []


def test_an_id_that_was_changed_is_text(url: str) -> None:
    """The column for ids counts, and not what the column amqp remembers of the id that was read."""
    with ServiceBusClient(url) as client, client.get_queue_sender("source", create_if_missing={}) as sender:
        sender.send_messages([ServiceBusMessage(b"1", message_id=17), ServiceBusMessage(b"2", message_id=18)])
    send(url, "target", [])
    reader = BrowseReader(query(url, stream=False, queue="source"))
    (rows,) = [batch for task in reader.partitions() for batch in reader.read(task)]
    write(url, body=[b"1", b"2"], message_id=[b"17", b"other"], amqp=rows.column("amqp").to_pylist())
    with ServiceBusClient(url) as client, client.get_queue_receiver("target") as receiver:
        assert {message.message_id for message in receiver.peek_messages(9)} == {17, "other"}
