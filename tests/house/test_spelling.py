"""Tests that the spelling check of `make check` finds misspelt words in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_spelling import american_spellings, misspellings, prose

WRONG = "recie" + "ve"
"""A misspelling. The code composes it, so that the check does not find it in this file."""

TEXTS = {
    "page.md": f"Call it to {WRONG}.\n",
    "docstring.py": f'"""Wait to {WRONG}."""\n',
    "comment.py": f"a = 1  # {WRONG}\n",
    "message.py": f'raise ValueError("cannot {WRONG}")\n',
    "comment.lua": f"-- to {WRONG}\nlocal a = 1\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_misspelling_is_found(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("\n" + TEXTS[name], "utf-8")
    (found,) = misspellings([path])
    assert found == f"{path}:2: {WRONG} ==> receive"


def test_good_spelling_passes(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("Call it to receive.\n", "utf-8")
    assert misspellings([path]) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "\nThe behavior.\n"),
        ("module.py", '"""A module.\nIts Behavior.\n"""\n'),
        ("module.py", "color = 1\na = 1  # its behavior\n"),
        ("script.lua", "local color = 1\nlocal a -- its behavior\n"),
    ],
)
def test_an_american_spelling_in_prose_is_found(name: str, text: str) -> None:
    (found,) = american_spellings(prose(text, Path(name).suffix))
    assert found.lower() == "2: behavior ==> behaviour"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "The behaviour of `color`.\n```python\ncolor = 1\n```\n"),
        ("module.py", '"""The behaviour of ``color`` and :func:`serialize`."""\ncolor = "color"\n'),
        ("script.lua", "local color = 'color' -- its behaviour\n"),
        ("settings.toml", "color = 1\n"),
    ],
)
def test_american_spelling_in_names_of_code_passes(name: str, text: str) -> None:
    assert list(american_spellings(prose(text, Path(name).suffix))) == []
