"""Tests of the decorator that turns a rule about many things into one test (tests/offenders.py)."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

import pytest

from tests.offenders import for_each


@for_each("number", [1, 2, pytest.param(3, id="three"), 4])
def even(number: int) -> None:
    assert number % 2 == 0, "odd"


@for_each(("word", "length"), [("a", 1), ("bc", 1), ("d", 0)])
def long_as_said(word: str, length: int, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    assert 1 / length == len(word)


def test_every_thing_that_breaks_the_rule_is_named_with_its_error() -> None:
    with pytest.raises(pytest.fail.Exception) as raised:
        even()
    where = r"\(test_offenders\.py, line \d+\)"
    expected = rf"2 of 4 break this rule:\n1: odd\n(    .+\n)*    .+ {where}\nthree: odd\n(    .+\n)*    .+ {where}"
    assert re.fullmatch(expected, str(raised.value))


def test_the_test_gets_its_fixtures_and_any_error_breaks_the_rule(tmp_path: Path) -> None:
    assert list(inspect.signature(long_as_said).parameters) == ["tmp_path"]
    with pytest.raises(pytest.fail.Exception) as raised:
        long_as_said(tmp_path=tmp_path)
    text = str(raised.value)
    assert "2 of 3" in text
    assert "bc, 1: assert" in text
    assert "d, 0: ZeroDivisionError: division by zero" in text


@for_each("number", [1, 2])
async def small(number: int) -> None:
    await asyncio.sleep(0)
    assert number == 1, "large"


async def test_an_asynchronous_rule_is_awaited() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)1 of 2 break this rule:\n2: large.*"):
        await small()


def test_a_rule_without_things_to_check_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="0 of 0"):
        for_each("number", [])(even)()
