"""Tests that the class, ``help()`` and the table in the guide state the default and the limits of every property."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from types import ModuleType
from typing import Any

from sbredis.management import QueueProperties, RuleProperties, SubscriptionProperties, TopicProperties
from sbredis.model import Choice, Described, Field, property_docs
from sbredis.model._fields import Neighbour, Text
from tests.offenders import for_each
from tools.repository import ROOT

KINDS: dict[str, type[Described]] = {
    "queues": QueueProperties,
    "topics": TopicProperties,
    "subscriptions": SubscriptionProperties,
    "rules": RuleProperties,
}
FIELDS = [(kind, name) for kind, cls in KINDS.items() for name in cls.fields()]
every_property = for_each(("kind", "name"), FIELDS)


def in_words(value: object) -> str:
    """Return a default or a limit in words."""
    match value:
        case timedelta():
            if value == timedelta.max:
                return "no limit"
            units = {"day": timedelta(days=1), "minute": timedelta(minutes=1), "second": timedelta(seconds=1)}
            number, unit = next((value // size, unit) for unit, size in units.items() if not value % size)
            return f"{number} {unit}{'s' * (number > 1)}"
        case None | []:
            return "none"
        case bool():
            return f"`{value}`"
        case int():
            return f"{value:,}"
        case Enum():
            return f"`{value.value}`"
        case _:
            return f"`{value!r}`"


def limits_in_words(field: Field[Any, Any]) -> Iterator[str]:
    """Yield each limit of a property in words."""
    if isinstance(field, Text) and not isinstance(field, Neighbour):
        yield f"{field.longest:,} characters"
    if isinstance(field, Choice):
        yield from map(in_words, field.settable)
    if field.least is not None:
        least, most = in_words(field.least), in_words(field.most)
        yield f"{least} at least" if most == "no limit" else f"from {least} to {most}"


def table() -> dict[str, tuple[str, str, str]]:
    """Return the properties in the guide, each with its entities, its default and its limits."""
    text = (ROOT / "docs/management.md").read_text("utf-8")
    section = text.partition("## The properties\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, str, str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            names, of, default, limits = (cell.strip() for cell in line.strip("|").split("|"))
            found |= dict.fromkeys(re.findall(r"`(\w+)`", names), (of, default, limits))
    return found


TABLE = table()


@every_property
def test_the_class_documents_the_true_facts_of_each_property(kind: str, name: str) -> None:
    field = KINDS[kind].fields()[name]
    said = " ".join((inspect.getdoc(getattr(KINDS[kind], name)) or "").replace("``", "`").split())
    if not field.read_only:
        assert f"{in_words(field.default)} by default".lower() in said.lower()
    assert [limit for limit in limits_in_words(field) if limit not in said] == []
    assert ("Cannot be changed." in said) is field.fixed
    assert ("is not sent." in said) is field.read_only


@every_property
def test_the_guide_documents_the_true_facts_of_each_property(kind: str, name: str) -> None:
    field = KINDS[kind].fields()[name]
    of, default, limits = TABLE[name]
    assert kind in of.split(", ")
    assert default == in_words(field.default)
    assert [limit for limit in limits_in_words(field) if limit not in limits] == []
    assert ("cannot be changed" in limits) is field.fixed
    assert ("read-only" in limits) is field.read_only
    assert ("no effect" in limits) is ("Kept and shown, without effect" in (getattr(KINDS[kind], name).__doc__ or ""))


def test_the_guide_names_no_unknown_property() -> None:
    assert {(kind, name) for name, (of, _, _) in TABLE.items() for kind in of.split(", ")} == set(FIELDS)


@for_each("cls", KINDS.values(), ids=lambda cls: cls.__name__)
def test_help_shows_the_meaning_of_each_property(cls: type[Described]) -> None:
    shown = pydoc.plain(pydoc.render_doc(cls))
    for name in cls.fields():
        first = (inspect.getdoc(getattr(cls, name)) or "").splitlines()[0]
        assert f"{name}\n |      {first}" in shown
    assert " object at 0x" not in shown.partition("Data and other attributes")[0]


def test_a_class_whose_source_is_not_available_has_no_property_docs() -> None:
    made: type = type("Made", (), {"__module__": ModuleType("nowhere").__name__})
    assert property_docs(made) == {}
    assert property_docs(int) == {}
