"""Tests of the options of the Spark format: names, values, and the operations in which each is legal."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.exceptions import SparkSetupError
from sbredis.spark import _values as values
from sbredis.spark._options import OPTIONS, QueryKind, QueryOptions, included, parse_options, parse_secret
from tests.offenders import for_each

QUEUE = {"url": "memory://x", "queue": "orders"}
CONSUME = {**QUEUE, "mode": "consume", "consumer": "capture"}
EXAMPLES = {
    "subQueue": "deadLetter",
    "consumer": "capture",
    "reserveTimeout": "5 min",
    "reservationStaleAfter": "20 min",
    "startingOffsets": "latest",
    "startingTimestamp": "2026-05-01",
    "endingOffsets": "latest",
    "endingTimestamp": "2026-05-02",
    "maxMessagesPerTrigger": "1000",
    "maxBytesPerTrigger": "1000000",
    "minMessagesPerTrigger": "10",
    "minBytesPerTrigger": "1000",
    "maxTriggerDelay": "10 s",
    "minPollIntervalMs": "50",
    "minPartitions": "2",
    "maxTasks": "4",
    "maxRecordsPerPartition": "100",
    "columns": "body,message_id",
    "pushFilters": "true",
    "pageMessages": "100",
    "pageBytes": "100000",
    "maxBytesPerSecond": "1000000",
    "readFrom": "replica",
    "failOnDataLoss": "false",
    "includeBody": "false",
    "includeProperties": "false",
    "writeId": "load-1",
    "writeVersion": "17",
    "tasks": "4",
    "taskColumn": "task",
    "idColumn": "order_id",
    "refusedPath": "/tmp/refused",
    "callTimeout": "30",
    "namespace": "shop",
}


NEEDED = {
    "writeId": {"tasks": "4"},
    "writeVersion": {"writeId": "load-1", "tasks": "4"},
    "tasks": {"writeId": "load-1"},
    "taskColumn": {"writeId": "load-1"},
}
"""What some options need beside them in a batch write."""


def parsed(kind: QueryKind, **more: str) -> QueryOptions:
    """Parse options as Spark gives them for this kind of query: with names in lower case."""
    given = {
        name.lower(): value for name, value in {**(CONSUME if kind is QueryKind.CONSUME else QUEUE), **more}.items()
    }
    stream = kind in (QueryKind.BROWSE_STREAM, QueryKind.CONSUME, QueryKind.WRITE_STREAM)
    return parse_options(given, stream=stream, write=kind in (QueryKind.WRITE, QueryKind.WRITE_STREAM))


@for_each("kind", list(QueryKind), ids=lambda kind: kind.name)
def test_an_option_is_accepted_exactly_where_it_is_legal(kind: QueryKind) -> None:
    for option in OPTIONS:
        if option.name not in EXAMPLES:
            continue
        if kind in option.legal:
            needed = NEEDED.get(option.name, {}) if kind is QueryKind.WRITE else {}
            assert parsed(kind, **{option.name: EXAMPLES[option.name]}, **needed).kind is kind
        else:
            with pytest.raises(SparkSetupError, match=f"The option {option.name} has no meaning for"):
                parsed(kind, **{option.name: EXAMPLES[option.name]})


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        SparkSetupError, match=r"no option 'maxmessagepertrigger': did you mean maxMessagesPerTrigger\?"
    ):
        parsed(QueryKind.CONSUME, maxMessagePerTrigger="5")
    with pytest.raises(SparkSetupError, match=r"no option 'zzzz': the names are url, urlEnv"):
        parsed(QueryKind.BROWSE, zzzz="5")
    with pytest.raises(SparkSetupError, match=r"has no path: name the entity by the option queue or topic"):
        parsed(QueryKind.BROWSE, path="orders")


@pytest.mark.parametrize(
    ("kind", "more", "text"),
    [
        (QueryKind.CONSUME, {"startingOffsets": "latest"}, "would discard the rest"),
        (QueryKind.BROWSE, {"topic": "events"}, "Both queue and topic are given"),
        (
            QueryKind.BROWSE,
            {"queues": "a,b", "queuePattern": "a"},
            "All of queue and queues and queueP",
        ),
        (QueryKind.BROWSE, {"subscription": "all"}, "The option subscription needs topic"),
        (QueryKind.BROWSE, {"queue": "a b"}, "The options name no entity"),
        (
            QueryKind.BROWSE,
            {"urlEnv": "BUS"},
            "comes from one of url, urlEnv, urlFile, urlProvider, but url and urlEnv are",
        ),
        (
            QueryKind.BROWSE,
            {"startingOffsets": "latest", "startingTimestamp": "5"},
            "Both startingOffsets and starting",
        ),
        (QueryKind.BROWSE, {"subQueue": "deadLetter", "startingTimestamp": "5"}, "has no meaning with subQueue"),
        (QueryKind.BROWSE, {"subQueue": "dead"}, "The option subQueue is wrong: it must be deadLetter or transferDead"),
        (QueryKind.BROWSE, {"minPartitions": "5", "maxTasks": "4"}, "minPartitions is greater than maxTasks"),
        (QueryKind.BROWSE, {"maxTasks": "0"}, "The option maxTasks is wrong: it must be a whole number from 1"),
        (QueryKind.BROWSE, {"includeBody": "maybe"}, "it must be true or false, not 'maybe'"),
        (QueryKind.BROWSE, {"startingOffsets": "[1]"}, "it must be earliest, latest, or JSON"),
        (QueryKind.BROWSE, {"startingOffsets": '{"0": -3}'}, "it must be earliest, latest, or JSON"),
        (QueryKind.BROWSE, {"startingOffsets": '{"0": 1, "a": {"0": 1}}'}, "it must be earliest, latest, or JSON"),
        (
            QueryKind.BROWSE,
            {"startingOffsets": '{"invoices": {"0": 1}}'},
            "names 'invoices', but the query reads 'orde",
        ),
        (QueryKind.BROWSE, {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest, or -2"),
        (QueryKind.BROWSE, {"endingOffsets": '{"0": -2}'}, "endingOffsets cannot be earliest, or -2"),
        (QueryKind.BROWSE, {"maxRecordsPerPartition": "0"}, "The option maxRecordsPerPartition is wrong"),
        (QueryKind.BROWSE, {"maxRecordsPerPartition": "9", "maxTasks": "2"}, "Both maxRecordsPerPartition and maxTas"),
        (QueryKind.BROWSE, {"startingOffsets": '{"0": 1, "00": 2}'}, "startingOffsets is wrong: it has '00' twice"),
        (QueryKind.BROWSE, {"endingOffsets": '{"0": 1, "0": 2}'}, "endingOffsets is wrong: it has '0' twice"),
        (QueryKind.BROWSE, {"startingOffsets": '{"o": {"0": 1}, "O": {"0": 2}}'}, "it has 'O' twice"),
        (QueryKind.BROWSE, {"startingOffsets": '{"o": {"0": 1, "0": 2}}'}, "it has '0' twice"),
        (
            QueryKind.BROWSE,
            {"pageMessages": "0"},
            "The option pageMessages is wrong: it must be a whole number",
        ),
        (QueryKind.CONSUME, {"pageMessages": "1001"}, "The option pageMessages is wrong: it must be a whole number"),
        (QueryKind.BROWSE, {"pageBytes": "0"}, "The option pageBytes is wrong: it must be a whole number from 1"),
        (QueryKind.BROWSE, {"maxBytesPerSecond": "0"}, "The option maxBytesPerSecond is wrong"),
        (QueryKind.BROWSE, {"readFrom": "slave"}, "The option readFrom is wrong: it must be master or replica"),
        (QueryKind.BROWSE_STREAM, {"readFrom": "replica"}, "miss them for good"),
        (QueryKind.CONSUME, {"readFrom": "replica"}, "it is for spark.read"),
        (QueryKind.BROWSE, {"columns": "body,"}, "The option columns is wrong: it must be names with commas"),
        (QueryKind.BROWSE, {"columns": "body,Body"}, "The option columns is wrong: it has 'Body' twice"),
        (QueryKind.BROWSE, {"columns": "body", "includeBody": "true"}, "Both columns and includeBody are given"),
        (QueryKind.BROWSE, {"startingTimestamp": "yesterday"}, "it must be a time like 2026-05-01T12:00:00Z"),
        (QueryKind.CONSUME, {"reserveTimeout": "soon"}, "it must be a time such as 90, 500 ms, 5 min or 1 h"),
        (
            QueryKind.CONSUME,
            {"minMessagesPerTrigger": "9", "maxMessagesPerTrigger": "8"},
            "minMessagesPerTrigger is greater",
        ),
        (QueryKind.WRITE, {"writeId": "load"}, r"writeId needs the option tasks: .*=8 for example\..*taskColumn"),
        (QueryKind.WRITE, {"tasks": "4"}, "tasks needs the option writeId"),
        (QueryKind.WRITE, {"taskColumn": "t"}, "taskColumn needs the option writeId"),
        (QueryKind.WRITE, {"writeId": "load", "tasks": "4", "taskColumn": "t"}, "Both tasks and taskColumn are given"),
        (QueryKind.WRITE_STREAM, {"idColumn": "id", "taskColumn": "t"}, "taskColumn has no meaning with idColumn"),
        (QueryKind.WRITE, {"writeVersion": "4"}, "writeVersion needs the option writeId"),
        (QueryKind.WRITE, {"writeId": "load", "tasks": "0"}, "The option tasks is wrong: it must be a whole number"),
        (QueryKind.WRITE, {"writeVersion": "-1"}, "The option writeVersion is wrong: it must be a whole number from 0"),
        (QueryKind.WRITE, {"writeId": "load", "idColumn": "id", "writeVersion": "1"}, "no meaning with idColumn"),
        (QueryKind.WRITE, {"writeId": "load", "idColumn": "id", "tasks": "1"}, "tasks has no meaning with idColumn"),
        (QueryKind.WRITE, {"writeId": "load", "idColumn": "id"}, "writeId has no meaning with idColumn"),
        (QueryKind.CONSUME, {"consumer": " "}, "The option consumer is wrong: it must not be empty"),
    ],
)
def test_options_that_contradict_each_other_or_cannot_be_read_are_refused(
    kind: QueryKind, more: dict[str, str], text: str
) -> None:
    with pytest.raises(SparkSetupError, match=text):
        parsed(kind, **more)


def test_an_entity_must_be_named_for_a_read_and_may_be_a_column_of_a_write() -> None:
    url = {"url": "memory://x"}
    with pytest.raises(SparkSetupError, match="Nothing says which messages to read: give the option queue, queues or"):
        parse_options(url, stream=False, write=False)
    with pytest.raises(SparkSetupError, match="The option subscription is missing"):
        parse_options({**url, "topic": "events"}, stream=False, write=False)
    assert parse_options(url, stream=False, write=True).entity is None
    read = parse_options({**url, "topic": "events", "subscription": "all"}, stream=False, write=False)
    assert read.entities.paths == ("events/subscriptions/all",)


def test_several_queues_are_listed_or_have_a_pattern() -> None:
    url = {"url": "memory://x"}
    listed = parse_options({**url, "queues": "orders, invoices"}, stream=False, write=False).entities
    assert listed.paths == ("orders", "invoices")
    assert [listed.includes(name) for name in ("Orders", "orders-1")] == [True, False]
    like = parse_options({**url, "queuePattern": "orders-[0-9]"}, stream=True, write=False).entities
    assert [like.includes(name) for name in ("ORDERS-1", "orders-12", "orders")] == [True, False, False]
    for wrong, said in (
        ({"queues": "orders,,invoices"}, "it must be names with commas between them"),
        ({"queues": "orders,Orders"}, "The option queues is wrong: it has 'Orders' twice"),
        ({"queues": "orders,a b"}, "The options name no entity"),
        ({"queuePattern": "orders["}, "The option queuePattern is wrong: it must be a regular expression, not 'orders"),
        ({"queues": "a,b", "startingOffsets": '{"0": 5}'}, "startingOffsets must name entities"),
        ({"queuePattern": "a.*", "endingOffsets": '{"b": {"0": 5}}'}, "endingOffsets names 'b', but the query reads"),
    ):
        with pytest.raises(SparkSetupError, match=re.escape(said)):
            parse_options({**url, **wrong}, stream=False, write=False)


def test_consuming_needs_a_stream_and_a_consumer() -> None:
    with pytest.raises(
        SparkSetupError, match=r"use spark.readStream with trigger\(availableNow=True\), or mode=browse"
    ):
        parse_options(CONSUME, stream=False, write=False)
    with pytest.raises(SparkSetupError, match="mode=consume needs the option consumer"):
        parse_options({**QUEUE, "mode": "consume"}, stream=True, write=False)


def test_options_of_sparks_own_writer_are_left_alone() -> None:
    assert parsed(QueryKind.WRITE_STREAM, checkpointLocation="/c", queryName="q").entity == "orders"


def test_the_columns_are_known_before_the_kind_of_the_query() -> None:
    assert included({**CONSUME, "includebody": "false"}) == (False, True, None)
    assert included({**CONSUME, "columns": "subject,body"}) == (True, True, ("subject", "body"))


def test_the_secret_is_one_option_and_the_namespace_goes_with_it() -> None:
    assert parse_secret({"urlenv": "BUS", "namespace": "shop", "queue": "q"}) == {"urlEnv": "BUS", "namespace": "shop"}
    with pytest.raises(SparkSetupError, match="but none is given"):
        parse_secret({"queue": "q"})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("500 ms", 0.5), ("5min", 300), ("5 minutes", 300), ("1 h", 3600), ("0.5s", 0.5)]
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert values.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "moment"), [("1000", 1000), ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:01+01:00", 1000)]
)
def test_a_time_without_a_zone_is_in_utc(text: str, moment: int) -> None:
    assert values.moment(text) == moment
    assert values.moment("1970-01-01T00:00:01") == 1000


def test_eight_digits_that_are_a_date_are_refused_because_they_may_be_milliseconds() -> None:
    with pytest.raises(ValueError, match=r"'20270501' may be .*: write 2027-05-01 or 1970-01-01T05:37:50.501\+00:00"):
        values.moment("20270501")
    assert values.moment("20279901") == 20279901
    assert values.moment("1212121212121") == 1212121212121
    assert values.moment("1970-01-01T05:37:50.501+00:00") == 20270501


@given(st.dictionaries(st.integers(0, 65535), st.integers(-2, (1 << 64) - 1)))
def test_offsets_by_partition_come_back(numbers: dict[int, int]) -> None:
    text = "{" + ", ".join(f'"{partition}": {number}' for partition, number in numbers.items()) + "}"
    assert values.offsets(text) == {"": numbers}
    assert values.offsets(f'{{"orders": {text}, "invoices": {{}}}}') == {"orders": numbers, "invoices": {}}


@given(st.text())
def test_a_value_that_cannot_be_read_is_refused_and_nothing_else_happens(text: str) -> None:
    for option in OPTIONS:
        with suppress(ValueError):
            option.parse(text)
