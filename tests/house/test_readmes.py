"""Each room has a README: its modules, and its words. A word has one meaning, so one README defines it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.modules import PLACES
from tests.offenders import for_each
from tools.repository import ROOT

ONLY_REEXPORTS = {"amqp", "management", "jobs"}
ROOMS = sorted(
    folder.parent
    for place in PLACES.values()
    for folder in place.glob("*/__init__.py")
    if folder.parent.name not in ONLY_REEXPORTS and not folder.parent.is_symlink()
)
READMES = [path / "README.md" for path in [*ROOMS, ROOT / "workers", ROOT / "lua"]]


def table(readme: Path, column: str) -> list[str]:
    """Return the first cells of the table whose first column has this name."""
    found = re.search(rf"^\| {column} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", readme.read_text("utf-8"), re.MULTILINE)
    return [line.split("|")[1].strip() for line in found[1].splitlines()] if found else []


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@for_each("room", ROOMS, ids=name_of)
def test_the_readme_of_a_room_names_each_of_its_modules(room: Path) -> None:
    named = {name for cell in table(room / "README.md", "modules?") for name in re.findall(r"`(?:\w+/)?(\w+)", cell)}
    named -= {path.parent.name for path in room.glob("*/__init__.py")}
    inside = {path.stem for path in room.rglob("*.py")}
    assert named - inside == set()
    assert {path.stem for path in room.glob("*.py")} - {"__init__", "__main__"} - named == set()


def test_a_word_is_defined_in_one_readme() -> None:
    owners: dict[str, list[str]] = {}
    for readme in READMES:
        for word in table(readme, "word"):
            owners.setdefault(word, []).append(name_of(readme))
    assert {word: where for word, where in owners.items() if len(where) > 1} == {}
    assert len(owners) > 80


def test_the_glossary_says_which_room_owns_each_word() -> None:
    glossary = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## Glossary")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \| (.+) \|$", glossary, re.MULTILINE))
    assert listed == {name_of(readme): ", ".join(words) for readme in READMES if (words := table(readme, "word"))}
