"""The rows of a bulk writer: the refused ones are those that no message can be made of, and each has its partition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.bulk import Refusal
from sbredis.bulk._rows import Backlog, RowBlock, RowOptions, encoded, partitions_of, refusals_of, too_large
from sbredis.engine import NEVER, Outbound, Outgoing, PropertyColumns, decode, partition_for_key
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, moment, outgoing

SIZES = st.sampled_from([0, 1, 127, 128, 129, 8192, 8193, 32 * 1024, 32 * 1024 + 1, 40_000])
TEXT = st.builds(lambda size, letter: (letter * size).encode(), SIZES, st.sampled_from(["a", "é", "𝄞"]))
MAYBE = st.none() | TEXT | st.just(b"same")
COLUMNS = ("message_id", "session_id", "partition_key", "correlation_id", "content_type", "subject", "to", "reply_to")


class Table(NamedTuple):
    """Rows that may be large. Hypothesis does not show large values."""

    rows: Outbound

    def __repr__(self) -> str:
        return f"<Table {str(self.rows)[:300]}>"


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 3))
    chosen: dict[str, Any] = {
        name: draw(st.lists(MAYBE, min_size=count, max_size=count))
        for name in draw(st.sets(st.sampled_from(COLUMNS), max_size=4))
    }
    if draw(st.booleans()):
        chosen["time_to_live"] = draw(
            st.lists(st.none() | st.sampled_from([-1, 0, 1, NEVER, 1 << 62]), min_size=count, max_size=count)
        )
    if draw(st.booleans()):
        chosen["scheduled"] = draw(
            st.lists(st.none() | st.sampled_from([-1, 0, 1, NEVER - 1, NEVER, 1 << 62]), min_size=count, max_size=count)
        )
    if draw(st.booleans()):
        sizes = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        offsets = [sum(sizes[:row]) for row in range(count + 1)]
        names = [b"%d" % place for place in range(offsets[-1])]
        values = draw(st.lists(st.none() | TEXT, min_size=len(names), max_size=len(names)))
        chosen["properties"] = PropertyColumns(offsets, names, values)
    bodies = draw(st.lists(st.binary(max_size=3), min_size=count, max_size=count))
    return Table(Outbound(bodies, **chosen))


def message_of(rows: Outbound, row: int) -> ServiceBusMessage:
    """Make a message as an application does."""
    texts: dict[str, Any] = {
        name: value.decode() for name, column in rows.texts() if (value := column[row]) is not None
    }
    if rows.time_to_live is not None and (life := rows.time_to_live[row]) is not None:
        texts["time_to_live"] = timedelta(milliseconds=min(life, NEVER))
    if rows.scheduled is not None and (due := rows.scheduled[row]) is not None:
        texts["scheduled_enqueue_time_utc"] = moment(due)
    if rows.properties is not None:
        texts["application_properties"] = rows.properties.of(row)
    return ServiceBusMessage(rows.bodies[row], **texts)


def made_here(rows: Outbound, *, detects_duplicates: bool) -> list[Outgoing]:
    """Return what a bulk writer sends."""
    made = encoded(rows)
    return RowBlock(made.payloads, made.options(detects_duplicates=detects_duplicates)).outgoing()


def made_of(rows: Outbound, row: int) -> Outgoing | Exception:
    """Return what an application would send, or its error."""
    try:
        return outgoing(message_of(rows, row), detects_duplicates=False)
    except (TypeError, ValueError, OverflowError, ServiceBusError) as error:
        return error


@pytest.mark.slow
@given(tables())
def test_refused_rows_are_those_of_which_no_message_can_be_made(table: Table) -> None:
    rows = table.rows
    refused = refusals_of(rows, 100, needs_session=False)
    for row in range(len(rows)):
        made = made_of(rows, row)
        if not isinstance(made, Outgoing):
            assert row in refused
            assert refused[row].row == 100 + row
            assert refused[row].reason
            continue
        assert row not in refused
        (mine,) = made_here(rows.rows([row]), detects_duplicates=False)
        expected = decode(made.payload)
        if rows.message_id is None or rows.message_id[row] is None:
            expected.message_id = None  # the client gives a message an id, which would differ in the next run
        assert decode(mine.payload) == expected
        assert (mine.time_to_live, mine.due) == (made.time_to_live or mine.time_to_live, made.due)


WRONG: dict[str, tuple[Outbound, str]] = {
    "no body": (Outbound([b"x", None]), "the row has no body"),
    "long id": (Outbound([b"x", b"x"], [b"1", b"1" * 129]), "has 129 characters"),
    "empty id": (Outbound([b"x", b"x"], [b"1", b""]), "message_id is empty"),
    "two keys": (Outbound([b"x", b"x"], None, [b"a", b"a"], [b"a", b"b"]), "is not the session_id"),
    "not UTF-8": (Outbound([b"x", b"x"], subject=[b"a", b"\xff"]), "is not in UTF-8"),
    "no life": (Outbound([b"x", b"x"], time_to_live=[1, 0]), "must be longer than zero"),
    "no time": (Outbound([b"x", b"x"], scheduled=[1, 1 << 62]), "outside the years"),
    "large": (Outbound([b"x", b"x"], subject=[b"x", b"x" * 40_000]), "has 40000 bytes"),
    "large property": (
        Outbound([b"x", b"x"], properties=PropertyColumns([0, 0, 1], [b"p"], [b"x" * 40_000])),
        "application property 'p' has",
    ),
    "large properties": (
        Outbound([b"x", b"x"], properties=PropertyColumns([0, 0, 9], [b"%d" % n for n in range(9)], [b"x" * 8000] * 9)),
        "together they may have",
    ),
    "property not in UTF-8": (
        Outbound([b"x", b"x"], properties=PropertyColumns([0, 0, 1], [b"\xff"], [b"1"])),
        "is not in UTF-8",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_row_is_refused_with_its_reason(wrong: str) -> None:
    rows, reason = WRONG[wrong]
    refused = refusals_of(rows, 7, needs_session=False)
    assert list(refused) == [1]
    assert refused[1].row == 8
    assert reason in refused[1].reason


def test_a_row_without_a_session_is_refused_if_it_needs_one() -> None:
    rows = Outbound([b"x"] * 3, session_id=[b"s", None, b""])
    assert list(refusals_of(rows, 0, needs_session=True)) == [1]
    assert list(refusals_of(Outbound([b"x"] * 2), 0, needs_session=True)) == [0, 1]
    assert refusals_of(rows, 0, needs_session=False) == {}


def test_rows_without_an_id_are_refused_if_they_are_recognised_by_it() -> None:
    rows = Outbound([b"x"] * 2, message_id=[b"1", None])
    refused = refusals_of(rows, 5, needs_session=False, needs_id=True)
    assert refused == {1: Refusal(6, "the row has no message_id, by which it would be recognised if it is sent again")}
    assert list(refusals_of(Outbound([b"x"] * 2), 0, needs_session=False, needs_id=True)) == [0, 1]


def test_a_row_that_is_too_large_is_refused() -> None:
    made = encoded(Outbound([b"x", b"x" * 100, b"x" * 98]))
    assert list(too_large(made, 100)) == [1]
    assert too_large(made, 102) == {}


def test_the_engine_gets_what_a_partition_needs_to_know() -> None:
    rows = Outbound([b"a", b"b"], [b"1", None], time_to_live=[None, NEVER + 1], scheduled=[-5, None])
    assert [one._replace(payload=b"") for one in made_here(rows, detects_duplicates=True)] == [
        Outgoing(b"", None, 0, b"1", 0),
        Outgoing(b"", NEVER, 0, b"", None),
    ]
    assert made_here(Outbound([b"a"]), detects_duplicates=True) == [Outgoing(b"\x01\x00a")]
    assert encoded(Outbound([b"a"], [b"1"])).options(detects_duplicates=False) is None


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(["add", "add", "drop", "next"]), st.integers(0, 5), st.booleans()), max_size=20)
)
def test_a_backlog_keeps_rows_and_their_options_together(steps: list[tuple[str, int, bool]]) -> None:
    backlog, rows, number = Backlog(), list[Outgoing](), 0
    for step, count, optional in steps:
        if step == "add":
            payloads = [b"x" * (number + at) for at in range(count)]
            number += count
            options = [RowOptions(len(payload), b"id", 7) for payload in payloads] if optional else None
            backlog.add(payloads, options)
            rows += RowBlock(payloads, options).outgoing()
        elif step == "drop":
            backlog.drop(count)
            del rows[:count]
        else:
            some = backlog.next(count + 1, 20).outgoing()
            assert some == rows[: len(some)]
            assert bool(some) == bool(rows)
            assert len(some) <= 1 or sum(len(one.payload) for one in some) <= 20
            more = rows[: len(some) + 1]
            assert len(some) == min(count + 1, len(rows)) or sum(len(one.payload) for one in more) > 20
        assert (len(backlog), backlog.size) == (len(rows), sum(len(one.payload) for one in rows))


def test_rows_without_a_key_take_turns() -> None:
    rows = Outbound([b"x"] * 7)
    assert [list(places) for places in partitions_of(rows, 0, 3, detects_duplicates=False)] == [
        [0, 3, 6],
        [1, 4],
        [2, 5],
    ]
    assert [list(places) for places in partitions_of(rows, 4, 3, detects_duplicates=False)] == [
        [2, 5],
        [0, 3, 6],
        [1, 4],
    ]
    assert [list(places) for places in partitions_of(rows, 4, 1, detects_duplicates=False)] == [[*range(7)]]


@pytest.mark.slow
@given(
    st.lists(st.tuples(*[st.none() | st.sampled_from([b"a", b"b", "é".encode(), b""])] * 3), max_size=9),
    st.integers(0, 9),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_key_decides_the_partition(
    rows: list[tuple[bytes | None, ...]], first: int, count: int, detects: bool
) -> None:
    """The keys are those of every sender, in the same order. The place of a row does not depend on its call."""
    columns: list[Any] = [[row[at] for row in rows] for at in range(3)]
    table = Outbound([b"x"] * len(rows), columns[2], columns[0], columns[1])
    found = partitions_of(table, first, count, detects_duplicates=detects)
    assert sorted(row for places in found for row in places) == list(range(len(rows)))
    for place, places in enumerate(found):
        assert list(places) == sorted(places)
        for row in places:
            session, key, message_id = rows[row]
            chosen = session if session is not None else key
            if chosen is None and detects:
                chosen = message_id
            expected = (first + row) % count if chosen is None else partition_for_key(chosen.decode(), count)
            assert place == expected
