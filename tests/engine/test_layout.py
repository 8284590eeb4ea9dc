"""The layout of a partition's data, and what calls do with data of another one."""

from __future__ import annotations

import hashlib
import re

import pytest

from sbredis.engine._lua_files import read_source
from sbredis.engine._state import FIELD_LISTS
from sbredis.exceptions import DataLayoutError
from tests.engine.bench import Bench

FORMS = {"2": "987cde220955724b"}
"""For each layout the digest of the names and the order of all stored fields."""
LONG = ("parse_marks", "parse_credit", "open_credit", "words_of")
"""The fragments that read a stored text of several parts."""


def source_of(fragment: str) -> str:
    return read_source(f"includes/{fragment}") or ""


def parts_of(fragment: str) -> list[tuple[list[str], str]]:
    """Return the names of the parts of each stored text that a fragment reads, with the pattern of the text."""
    found = re.findall(r"local ([\w,\s]+) =\s+string\.match\([^']*'(\^[^']+\$)'\)", source_of(fragment))
    return [(re.split(r",\s*", names), pattern) for names, pattern in found if names.count(",") > 1]


def stored_fields() -> str:
    """Return the names of the fields of ``state`` and ``store``, those of their parts, and the flags of a word."""
    parts = [parts_of(fragment) for fragment in LONG]
    flags = re.findall(r"has\.(\w)\b", source_of("words_of"))
    assert [len(found) for found in parts] == [1] * len(LONG)
    assert flags
    return repr((sorted(FIELD_LISTS.items()), parts, flags))


def test_another_form_of_the_data_has_another_layout() -> None:
    """A change of the stored fields needs the next layout, or a new digest as long as no release has this layout."""
    [layout] = re.findall(r"\[1\] ~= '(\d+)'", source_of("begin"))
    assert FORMS[layout] == hashlib.sha256(stored_fields().encode()).hexdigest()[:16]


async def test_data_that_lack_a_field_are_refused(bench: Bench) -> None:
    await bench.send(b"x")
    state = bench.partition.keys[0]
    marks = await bench.transport.command("HGET", state, "marks", key=state)
    await bench.transport.command("HDEL", state, "marks", key=state)
    with pytest.raises(DataLayoutError):
        await bench.send(b"x")
    await bench.transport.command("HSET", state, "marks", marks, key=state)
    await bench.send(b"x")
    await bench.transport.command("HDEL", state, "marks", key=state)
    with pytest.raises(DataLayoutError):
        await bench.change(lock_duration=20_000)
