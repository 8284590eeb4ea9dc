"""Tables on narrow terminals: numbers and names stay whole, texts are cut, and columns are left out."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from os import terminal_size
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sbredis.cli._output import GAP, Output, TableColumn, broken, fitted
from tests.cli.conftest import Bus

# -- which columns fit -------------------------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[TableColumn], dict[str, int]]:
    """Columns, and the widths of their contents."""
    ranks = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    columns = [
        TableColumn(f"c{at}", rank, draw(st.none() | st.integers(4, 20)) if rank else None)
        for at, rank in enumerate(ranks)
    ]
    return columns, {each.name: draw(st.integers(1, 60)) for each in columns}


def taken(widths: dict[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


@given(tables(), st.integers(1, 300))
def test_what_is_shown_fits_and_only_texts_are_cut(table: tuple[list[TableColumn], dict[str, int]], room: int) -> None:
    columns, whole = table
    found = fitted(columns, whole, room)
    assert list(found) == [each.name for each in columns if each.name in found], "the order stays"
    always = {each.name: whole[each.name] for each in columns if not each.rank}
    assert always.items() <= found.items()
    assert not found or taken(found) <= max(room, taken(always))
    for each in columns:
        if each.name in found and each.shortest is None:
            assert found[each.name] == whole[each.name]
        elif each.name in found:
            assert min(each.shortest or 0, whole[each.name]) <= found[each.name] <= whole[each.name]


@given(tables(), st.integers(1, 300))
def test_nothing_is_left_out_or_cut_without_need(table: tuple[list[TableColumn], dict[str, int]], room: int) -> None:
    columns, whole = table
    found = fitted(columns, whole, room)
    if taken(whole) <= room:
        assert found == whole
    shortest = {each.name: min(whole[each.name], each.shortest or whole[each.name]) for each in columns}
    for each in columns:
        if each.name not in found:
            kept = {
                other.name: shortest[other.name] for other in columns if other.name in found and other.rank <= each.rank
            }
            assert taken({**kept, each.name: shortest[each.name]}) > room, "it does not fit beside the more important"
    if any(found[name] < whole[name] for name in found):
        assert taken(found) >= room, "no room is left beside a text that is cut"


@given(tables(), st.integers(1, 300))
def test_a_wide_terminal_shows_all(table: tuple[list[TableColumn], dict[str, int]], more: int) -> None:
    columns, whole = table
    assert fitted(columns, whole, taken(whole) + more) == whole


@given(st.text("ab 茶-", max_size=60).map(str.strip), st.integers(2, 30))
def test_a_broken_text_keeps_all_its_words_and_fits(text: str, room: int) -> None:
    lines = broken(text, room)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(line) <= room for line in lines)
    if max((cell_len(word) for word in text.split()), default=0) <= room:
        assert " ".join(lines).split() == text.split(), "no word is broken without need"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("ten chars!", ["ten chars!"]),
        ("two teapots and a piano", ["two", "teapots", "and a", "piano"]),
        ("  indented text", ["  indented", "text"]),
        ("redis://server-17.example", ["redis://se", "rver-17.ex", "ample"]),
        ("one\ntwo", ["one", "two"]),
    ],
)
def test_where_a_text_is_broken(text: str, lines: list[str]) -> None:
    assert broken(text, 10) == lines


# -- what is printed ---------------------------------------------------------------------------------------------------


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen:
    """A terminal of some width as stdout."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.shown = _Terminal()
        patch.setenv("NO_COLOR", "1")

    def resize(self, width: int) -> None:
        """Empty the terminal, and give it this width."""
        self.shown = _Terminal()
        self._patch.setattr(sys, "stdout", self.shown)
        self._patch.setattr(shutil, "get_terminal_size", lambda *_: terminal_size((width, 24)))

    def lines(self) -> list[str]:
        """Return what is shown."""
        return self.shown.getvalue().splitlines()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    with monkeypatch.context() as patch:
        yield Screen(patch)


COLUMNS = [TableColumn("name"), TableColumn("count", 1), TableColumn("text", 2, shortest=8), TableColumn("other", 3)]
ROWS: list[dict[str, Any]] = [
    {"name": "orders", "count": 1_234_567, "text": "two teapots and a piano", "other": "x" * 10}
]


def test_a_table_on_a_terminal_is_cut_to_its_width(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    printed: dict[int, list[str]] = {}
    for width in (60, 52, 30, 20, 4):
        screen.resize(width)
        Output().table(COLUMNS, ROWS)
        printed[width] = screen.lines()
    assert printed == {
        60: ["NAME        COUNT  TEXT                     OTHER",
             "orders  1,234,567  two teapots and a piano  xxxxxxxxxx"],
        52: ["NAME        COUNT  TEXT                   OTHER",
             "orders  1,234,567  two teapots and a pi…  xxxxxxxxxx"],
        30: ["NAME        COUNT  TEXT",
             "orders  1,234,567  two teapot…"],
        20: ["NAME        COUNT",
             "orders  1,234,567"],
        4: ["NAME",
            "orders"],
    }  # fmt: skip
    assert capsys.readouterr().err.splitlines() == [
        "left out: other; a wider terminal or --output json shows all",
        "left out: text, other; a wider terminal or --output json shows all",
        "left out: count, text, other; a wider terminal or --output json shows all",
    ]


def test_wide_characters_are_counted_as_they_are_shown(screen: Screen) -> None:
    screen.resize(12)
    Output().table([TableColumn("text", shortest=4), TableColumn("n")], [{"text": "茶壺茶壺茶壺", "n": 1}])
    assert screen.lines() == ["TEXT       N", "茶壺茶壺…  1"]


def test_long_values_of_a_record_are_broken_on_a_terminal(screen: Screen) -> None:
    fields = {"name": "orders", "a_long_name": "two teapots and a piano", "none": None}
    printed: dict[int, list[str]] = {}
    for width in (80, 35, 9):
        screen.resize(width)
        Output().record(fields)
        printed[width] = screen.lines()
    assert printed[80] == ["name         orders", "a long name  two teapots and a piano", "none         -"]
    assert printed[35] == printed[9] == [
        "name         orders",
        "a long name  two teapots and a",
        "             piano",
        "none         -",
    ]  # fmt: skip
    screen.resize(35)
    Output().record(fields, whole=True)
    assert screen.lines() == printed[80]


def test_a_record_in_a_pipe_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    Output().record({"text": "x " * 900 + "x"})
    assert capsys.readouterr().out == f"text  {'x ' * 900}x\n"


def test_a_table_in_a_pipe_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(COLUMNS, [{**ROWS[0], "text": "x" * 9000}])
    assert "x" * 9000 in capsys.readouterr().out


# -- the commands ------------------------------------------------------------------------------------------------------


def shown_at(bus: Bus, screen: Screen, width: int, *words: str) -> list[str]:
    screen.resize(width)
    code = bus.run(*words).code
    assert code == 0
    return screen.lines()


@pytest.mark.parametrize("size", [37, 200_000])
def test_messages_keep_their_numbers_and_states_on_a_narrow_terminal(bus: Bus, screen: Screen, size: int) -> None:
    bus.queue()
    bus.did("send", "orders", "--subject", "tea", stdin=b"an order for two teapots and a piano" + b"." * (size - 36))
    (message,) = bus.peek()
    screen_lines = {width: shown_at(bus, screen, width, "peek", "orders") for width in (80, 40, 30)}
    for width, lines in screen_lines.items():
        assert all(len(line) <= width for line in lines)
        assert lines[0].split()[:2] == ["NUMBER", "STATE"]
        assert lines[1].split()[:2] == [str(message["sequence_number"]), "active"]
        assert len(lines) == 2
    assert screen_lines[80][0].split() == ["NUMBER", "STATE", "ENQUEUED", "DELIVERIES", "SUBJECT", "BODY"]
    assert "an order for" in screen_lines[80][1]
    bus.did("message", "dead-letter", "orders", str(message["sequence_number"]), "--reason", "AddressUnknown")
    lines = shown_at(bus, screen, 80, "dlq", "list", "orders")
    assert lines[1].split()[:2] == [str(message["sequence_number"]), "active"]
    assert "AddressUnknown" in lines[1]


def test_entities_keep_their_names_and_numbers_on_a_narrow_terminal(bus: Bus, screen: Screen) -> None:
    bus.queue("letters-of-the-whole-company")
    bus.did("send", "letters-of-the-whole-company", "x" * 1000, "--count", "5")
    for width, heading in (
        (100, "NAME STATUS ACTIVE DEAD LETTERS SCHEDULED TRANSFERS BYTES"),
        (60, "NAME STATUS ACTIVE DEAD LETTERS"),
        (40, "NAME ACTIVE"),
    ):
        lines = shown_at(bus, screen, width, "queue", "list")
        assert " ".join(lines[0].split()) == heading
        assert lines[1].split()[0] == "letters-of-the-whole-company"
        assert "…" not in lines[1]
        assert len(lines[1]) <= width
    table = shown_at(bus, screen, 80, "queue", "show", "letters-of-the-whole-company")[-2:]
    assert table[0].split()[:2] == ["PARTITION", "SERVER"]
    assert table[1].split()[2] == "5"
    table = shown_at(bus, screen, 40, "queue", "show", "letters-of-the-whole-company")[-2:]
    assert table[0].split()[:2] == ["PARTITION", "ACTIVE"]
    assert max(map(len, table)) <= 40
    assert "…" not in "".join(table)


def test_long_properties_are_broken_on_a_narrow_terminal_and_a_body_is_whole(bus: Bus, screen: Screen) -> None:
    metadata = " ".join(["teapots for the whole company"] * 5)
    bus.queue("orders", user_metadata=metadata)
    bus.did("send", "orders", metadata)
    (message,) = bus.peek()
    lines = shown_at(bus, screen, 80, "queue", "show", "orders")
    assert max(map(len, lines)) <= 80
    at = next(at for at, line in enumerate(lines) if line.startswith("  user metadata"))
    below = lines[at + 1]
    assert below.startswith(" " * 20)
    assert " ".join(" ".join(lines[at : at + 4]).split()).startswith(f"user metadata {metadata}")
    lines = shown_at(bus, screen, 80, "message", "show", "orders", str(message["sequence_number"]))
    assert lines[-1].endswith(f"  {metadata}")
