"""The registry of a namespace: every operation on it as a request, typed, and checked before it is sent.

All of it lies in one slot of its own and is changed by scripts only. A request that is sent again is recognised: a
creation by the entity's incarnation, a change by the stamp of its record. The names that are compared are small
letters; the records hold them as they were given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sbredis.engine import Request, load, name_key, registry_keys, registry_salt
from sbredis.registry._entity import EntityDescription, EntityRecord, decode, encode

__all__ = ["LONGEST_PAGE", "NamespaceFacts", "Registry", "register_namespace"]

LONGEST_PAGE = 1000
"""How many records are read at once, at most."""


class NamespaceFacts(NamedTuple):
    """What a namespace is."""

    partitions: int
    created_at: int


def register_namespace(namespace: str, partitions: int, *, exact: bool) -> Request[NamespaceFacts]:
    """Make a namespace where there is none, and say what it is; ``exact`` refuses another number of partitions."""

    def read(reply: list[Any]) -> NamespaceFacts:
        return NamespaceFacts(*reply)

    keys = registry_keys(namespace, registry_salt())
    return Request(load("register_namespace"), keys, (partitions, int(exact)), read)


class Registry:
    """The registry, as one who knows the number of the namespace's partitions asks it."""

    __slots__ = ("keys", "partitions")

    def __init__(self, namespace: str, partitions: int) -> None:
        self.keys = registry_keys(namespace, registry_salt())
        self.partitions = partitions

    def register(self, description: EntityDescription, incarnation: str) -> Request[EntityRecord]:
        """Take in a new entity and give it an id; ``incarnation`` is drawn for this creation."""
        arguments = (self.partitions, name_key(description.path), incarnation, encode(description))
        return Request(load("register_entity"), self.keys, arguments, decode)

    def revise(self, record: EntityRecord, stamp: str) -> Request[EntityRecord]:
        """Replace a record: what is to be is given with the stamp of what was seen; ``stamp`` is drawn for this.

        The version is as before, or the next if the settings are others.
        """
        arguments = (
            self.partitions,
            name_key(record.path),
            record.incarnation,
            record.stamp,
            stamp,
            record.version,
            encode(record),
        )
        return Request(load("revise_entity"), self.keys, arguments, decode)

    def unregister(self, record: EntityRecord) -> Request[bool]:
        """Take an entity out; the result says whether it was there."""
        arguments = (self.partitions, name_key(record.path), record.incarnation, record.stamp)
        return Request(load("unregister_entity"), self.keys, arguments, bool)

    def read(self, path: str) -> Request[EntityRecord | None]:
        """The record of an entity, if there is one."""

        def read(reply: bytes | None) -> EntityRecord | None:
            return None if reply is None else decode(reply)

        return Request(load("read_entity"), self.keys, (self.partitions, name_key(path)), read)

    def listed(self, after: str, limit: int) -> Request[tuple[EntityRecord, ...]]:
        """Records in the order of their names in small letters, from after ``after`` on.

        ``after`` is any text, whether there is an entity of that name or not.
        """
        if not isinstance(after, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise TypeError(f"after is the name of an entity, or '' for the beginning, not {type(after).__name__}")
        if not _expressible(after):
            raise ValueError(f"after is {after!a}, which has half a surrogate pair: UTF-8 cannot express it")
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise ValueError(f"limit must be a whole number from 1 to {LONGEST_PAGE}, not {limit!r}")

        def read(reply: list[bytes]) -> tuple[EntityRecord, ...]:
            return tuple(map(decode, reply))

        return Request(load("list_entities"), self.keys, (self.partitions, name_key(after), limit), read)


def _expressible(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
