"""Tests of the picture of the demonstration: it shows the demonstration of today, and loads nothing."""

from __future__ import annotations

import html
import re

import pytest

from tools.picture import DEMO, PICTURE, drawn, shortened

TITLE = re.compile(r'^ *say\(f?"(\d\. [^:"]+)', re.MULTILINE)


def text_of(picture: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", picture)).replace("\N{NO-BREAK SPACE}", " ")


def test_the_committed_picture_has_all_parts_of_the_demonstration() -> None:
    titles = TITLE.findall(DEMO.read_text("utf-8"))
    shown = text_of(PICTURE.read_text("utf-8"))
    assert len(titles) > 5
    assert [title for title in titles if title not in shown] == []
    assert "Everything worked." in shown


def test_the_picture_loads_nothing_from_other_servers() -> None:
    picture = drawn(["1. A part", "   well"])
    assert re.findall(r"url\((?!#)[^)]*\)|href=|src=", picture) == []
    assert "1. A part" in text_of(picture)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a 1", "a 22", "a  3"], ["a 1", "a 22", "a  3"]),
        (["  a 1", "  a 2", "  a 3", "  a 4", "b"], ["  a 1", "  …", "  a 4", "b"]),
        ([], []),
    ],
)
def test_similar_lines_are_left_out_in_the_middle(lines: list[str], expected: list[str]) -> None:
    assert list(shortened(lines)) == expected
