"""Plain messages that Arrow cuts: their columns are those that a loop over the records makes, or there are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import LOST_RECORD, Content, Rows, columns_of, encode
from sbredis.exceptions import DataLayoutError
from sbredis.spark._plain import plain_columns
from tests.engine.test_columns import DAMAGED, PLAIN, records, replies

NEW = b"a0%013d" % 1795951398433
EXPIRING = b"x0%013d%013d" % (1795951398433, 1795951398999)


def rows(*made: bytes, states: str = "") -> list[Rows]:
    """Return records in two replies."""
    names = [b"%d" % number for number in range(7, 7 + len(made))]
    half = len(made) // 2
    return [
        Rows(names[:half], list(made[:half]), [], states[:half]),
        Rows(names[half:], list(made[half:]), [], states[half:]),
    ]


@pytest.mark.parametrize("head", [NEW, EXPIRING])
@pytest.mark.parametrize(
    "contents",
    [
        [Content(b"a"), Content(b""), Content(b"abc")],
        [Content(b""), Content(b"")],
        [Content(b"a", message_id="é1"), Content(b"", message_id="x12"), Content(b"\x00", message_id="abc")],
        [Content(b"a", message_id="1"), Content(b"b", message_id="22"), Content(b"", message_id="3")],
        [Content(b"a", message_id="i" * 127), Content(b"b", message_id="")],
    ],
)
@pytest.mark.parametrize("body", [True, False])
def test_plain_messages_are_cut(head: bytes, contents: list[Content], body: bool) -> None:
    found = rows(*(head + encode(each) for each in contents), states="a" * len(contents))
    made = plain_columns(found, body=body)
    assert made is not None
    assert made == columns_of(found, body=body)


@pytest.mark.parametrize(
    "made",
    [
        [],
        [NEW + encode(Content(b"a")), EXPIRING + encode(Content(b"a"))],
        [NEW + encode(Content(b"a")), NEW + encode(Content(b"a", message_id="1"))],
        [NEW + encode(Content(b"a")), NEW + encode(Content(b"a", subject="1"))],
        [NEW + encode(Content(b"a", message_id="1")), NEW + encode(Content(b"a", message_id="1", subject="s"))],
        [NEW + encode(Content(b"a", message_id="i" * 128))],
        [NEW + encode(Content(b"a", message_id="i" * size)) for size in range(17)],
        [NEW + encode(Content(b"a")), LOST_RECORD],
        [b"s0%013d" % 1 + encode(Content(b"a"))],
        [b"x0%013d%013d" % (1, 9_999_999_999_999) + encode(Content(b"a"))],
    ],
)
def test_other_messages_are_left(made: list[bytes]) -> None:
    assert plain_columns(rows(*made), body=True) is None


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize("beside", [Content(b"x"), Content(b"x", message_id="abcde")])
@pytest.mark.parametrize("first", [True, False])
def test_damaged_messages_are_left(damaged: bytes, beside: Content, first: bool) -> None:
    whole = NEW + encode(beside)
    found = rows(damaged, whole) if first else rows(whole, damaged)
    assert plain_columns(found, body=True) is None
    with pytest.raises(DataLayoutError):
        columns_of(found)


def test_a_reply_with_too_few_names_is_left() -> None:
    made = NEW + encode(Content(b"x"))
    assert plain_columns([Rows([b"1"], [made, made])], body=True) is None


@pytest.mark.slow
@given(replies(records() | records(PLAIN)) | replies(records(PLAIN)), st.booleans())
def test_columns_are_the_same_or_there_are_none(given: list[Rows], body: bool) -> None:
    made = plain_columns(given, body=body)
    assert made is None or made == columns_of(given, body=body)
