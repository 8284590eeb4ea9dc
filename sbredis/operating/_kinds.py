"""The four kinds of entity, in one table: how they are named, which properties they have, and which calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sbredis.engine import entity_name, name_key, rule_name, subscription_name
from sbredis.model import (
    Described,
    Field,
    QueueProperties,
    RuleProperties,
    SubscriptionProperties,
    TopicProperties,
    property_docs,
)

__all__ = [
    "KINDS",
    "QUEUE",
    "RULE",
    "SUBSCRIPTION",
    "TOPIC",
    "EntityKind",
    "Existing",
    "Key",
    "Names",
    "first_sentence",
    "key_of",
    "path_of",
    "plain_text",
]

Names = tuple[str, ...]
"""The name of an entity, with those of its topic and its subscription before it."""
Key = tuple[str, Names]
"""The kind of an entity, and its names in small letters."""

_INFIXES = ("/subscriptions/", "/rules/")


@dataclass(frozen=True, slots=True, eq=False)
class EntityKind:
    """A kind of entity."""

    word: str
    plural: str
    properties: type[Described]
    parents: Names
    """The words for the names before its own name: those of the topic and the subscription."""
    counts: Mapping[str, str]
    """The columns of a list, and the fields of the counts that they show."""
    check: Callable[[str], object]
    """Raises :class:`ValueError` for a name that is not valid."""
    example: Names
    """The names of the entity in examples."""

    @property
    def arguments(self) -> Names:
        """The words for all of its names, as arguments of a command."""
        return (*self.parents, "name")

    def settable(self, *, new: bool) -> Mapping[str, Field[Any, Any]]:
        """Return the properties that can be set: for a new entity also those that cannot change later."""
        fields = self.properties.fields()
        return {name: each for name, each in fields.items() if not each.read_only and (new or not each.fixed)}

    def documentation(self, name: str) -> str:
        """Return what a property is, in plain text."""
        return plain_text(property_docs(self.properties.fields()[name].declared_in).get(name, name.replace("_", " ")))

    def call(self, administration: object, verb: str, *, of: str = "") -> Any:
        """Return the call of the administration client that does this with entities of this kind."""
        return getattr(administration, f"{verb}_{self.plural if verb == 'list' else self.word}{of}")


def path_of(names: Names) -> str:
    """Return the path of an entity in the namespace."""
    return "".join(f"{before}{name}" for before, name in zip(("", *_INFIXES), names, strict=False))


def key_of(names: Names) -> Names:
    """Return names that are equal if they name the same entity."""
    return tuple(map(name_key, names))


@dataclass(frozen=True, slots=True)
class Existing:
    """An entity on the server."""

    kind: EntityKind
    names: Names
    properties: Mapping[str, Any]

    @property
    def key(self) -> Key:
        """The word of the kind and the key of the names, which identify the entity."""
        return self.kind.word, key_of(self.names)

    @property
    def path(self) -> str:
        """The path of the entity in the namespace."""
        return path_of(self.names)


def plain_text(docs: str) -> str:
    """Return a docstring's text without markup, on one line."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", docs)
    return " ".join(text.replace("``", "").split())


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=[a-z0-9)])\. ", text, maxsplit=1)[0].rstrip(".")


_STORED = {"active": "active_message_count", "dead_letters": "dead_letter_message_count"}
_MOVED = {"transfers": "transfer_message_count"}

QUEUE = EntityKind(
    "queue",
    "queues",
    QueueProperties,
    (),
    {**_STORED, "scheduled": "scheduled_message_count", **_MOVED, "bytes": "size_in_bytes"},
    entity_name,
    ("orders",),
)
TOPIC = EntityKind(
    "topic",
    "topics",
    TopicProperties,
    (),
    {"subscriptions": "subscription_count", "scheduled": "scheduled_message_count", **_MOVED, "bytes": "size_in_bytes"},
    entity_name,
    ("news",),
)
SUBSCRIPTION = EntityKind(
    "subscription",
    "subscriptions",
    SubscriptionProperties,
    ("topic",),
    {**_STORED, **_MOVED},
    subscription_name,
    ("news", "sports"),
)
RULE = EntityKind(
    "rule", "rules", RuleProperties, ("topic", "subscription"), {}, rule_name, ("news", "sports", "urgent")
)

KINDS: Sequence[EntityKind] = (QUEUE, TOPIC, SUBSCRIPTION, RULE)
"""All kinds; one that belongs to another one comes after it."""
NESTED: Mapping[EntityKind, EntityKind] = {TOPIC: SUBSCRIPTION, SUBSCRIPTION: RULE}
"""The kind of what is inside an entity of a kind."""
