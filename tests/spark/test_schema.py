"""Tests of the columns that a query reads and writes."""

from __future__ import annotations

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import QueryOptions, parse_options
from sbredis.spark._schema import READ_COLUMNS, WRITE_COLUMNS, check_read_schema, check_written, ddl, read_columns

READ = [(column.name, column.type) for column in READ_COLUMNS]


def options(**more: str) -> QueryOptions:
    return parse_options({"url": "memory://x", "queue": "orders", **more}, stream=False, write=True)


def reading(**more: str) -> QueryOptions:
    return parse_options({"url": "memory://x", "queue": "orders", **more}, stream=False, write=False)


def test_the_large_columns_can_be_left_out() -> None:
    names = [column.name for column in read_columns(body=False, properties=False)]
    assert "body" not in names
    assert not {"application_properties", "typed_properties", "amqp"} & set(names)
    assert len(names) == len(READ_COLUMNS) - 4


def test_the_schema_is_written_in_sparks_language() -> None:
    assert ddl(READ_COLUMNS[2:4]) == "`partition` INT, `sequence_number` BIGINT"


def test_a_schema_that_the_user_gives_must_be_that_of_the_format() -> None:
    check_read_schema([(name, kind.lower().replace(", ", ",")) for name, kind in READ], reading())
    check_read_schema([each for each in READ if each[0] != "body"], reading(includeBody="false"))
    with pytest.raises(
        SparkSetupError, match=r"has a fixed schema: leave out schema\(…\), and choose columns with the option"
    ):
        check_read_schema(READ[:3], reading())


def test_what_was_read_can_be_written() -> None:
    sent = check_written([(name, kind.lower()) for name, kind in READ], options())
    assert set(sent) <= {column.name for column in WRITE_COLUMNS}
    assert {"body", "session_id", "application_properties"} <= set(sent)
    assert "sequence_number" not in sent


@pytest.mark.parametrize(
    ("columns", "more", "text"),
    [
        ([("message_id", "string")], {}, "The column body is missing"),
        ([("body", "int")], {}, "The column body has the type int, but must be BINARY: cast it"),
        (
            [("body", "string"), ("sesion_id", "string")],
            {},
            r"no part for the column 'sesion_id': did you mean session_id\?",
        ),
        ([("body", "string"), ("time_to_live_ms", "string")], {}, "must be BIGINT"),
        ([("body", "string")], {"idColumn": "order"}, "idColumn names 'order', which is not a column"),
        ([("body", "string"), ("order", "int")], {"idColumn": "order"}, "has the type int, but idColumn needs STRING"),
    ],
)
def test_columns_that_cannot_be_sent_are_refused(
    columns: list[tuple[str, str]], more: dict[str, str], text: str
) -> None:
    with pytest.raises(SparkSetupError, match=text):
        check_written(columns, options(**more))


def test_rows_may_name_their_entity_if_no_option_does() -> None:
    free = parse_options({"url": "memory://x"}, stream=False, write=True)
    assert check_written([("body", "binary"), ("entity", "string")], free) == ("body", "entity")
    with pytest.raises(SparkSetupError, match="Nothing says where to send"):
        check_written([("body", "binary")], free)
