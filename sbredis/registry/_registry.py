"""The registry of a namespace: every operation on its entities as a request, typed, and checked before it is sent.

All of it lies in one slot of its own and is changed by scripts only. A request that is sent again is recognised: a
creation by the entity's incarnation, a change by the stamp of its record. The names that are compared are small
letters; the records hold them as they were given. What is asked about rules is in ``_rulebook.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sbredis._quoting import quoted
from sbredis.engine import Request, load, name_key, registry_keys, registry_salt
from sbredis.registry._entity import EntityDescription, EntityRecord, decode, decode_again, encode, split_path
from sbredis.registry._limits import LIMITS
from sbredis.registry._rules import encode_rule, kind_of, place_of
from sbredis.rules import Rule

__all__ = [
    "LONGEST_PAGE",
    "JudgedRecord",
    "NamespaceFacts",
    "Page",
    "Registry",
    "Revised",
    "SeenEntity",
    "Unregistered",
    "register_namespace",
    "require_bounds",
]

LONGEST_PAGE = 1000
"""How many records are read at once, at most."""

_SHARE = 1000
"""How many rules go with one call that takes a subscription out."""


class NamespaceFacts(NamedTuple):
    """What a namespace is."""

    partitions: int
    created_at: int


class SeenEntity(NamedTuple):
    """An entity, and what is counted of its topic, if it is one or belongs to one."""

    record: EntityRecord
    behind: bool = False
    """Whether the topic's partitions may not have been told the topic's version."""
    forsaken: bool = False
    """Whether it is a subscription whose topic is being deleted."""
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0


class Revised(NamedTuple):
    """A subscription's record, and its topic's."""

    record: EntityRecord
    topic: EntityRecord | None


class Unregistered(NamedTuple):
    """What became of an entity that was taken out."""

    there: bool
    more: bool
    """Whether it still is, because it had more rules than go with one call."""


class JudgedRecord(NamedTuple):
    """A subscription's record, and a mark that is another one after each change of its rules."""

    record: EntityRecord
    mark: str


class Page(NamedTuple):
    """Subscriptions of a topic."""

    topic: str
    """Incarnation and version of the topic, or nothing if it is being deleted."""
    more: bool
    subscriptions: tuple[JudgedRecord, ...]


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
        """Take in a new queue or topic and give it an id; ``incarnation`` is drawn for this creation."""
        topic = int(description.kind == "topic")
        arguments = (self.partitions, name_key(description.path), incarnation, topic, encode(description))
        return Request(load("register_entity"), self.keys, arguments, decode)

    def register_subscription(
        self, topic: EntityRecord, description: EntityDescription, incarnation: str, rules: Sequence[Rule]
    ) -> Request[EntityRecord]:
        """Take in a new subscription of a topic with its rules."""
        arguments: list[str | int] = [
            self.partitions,
            name_key(topic.path),
            topic.incarnation,
            name_key(description.path),
            incarnation,
            encode(description),
            *LIMITS,
        ]
        for rule in rules:
            arguments += (place_of(description.path, rule.name), kind_of(rule), encode_rule(rule))
        return Request(load("register_subscription"), self.keys, tuple(arguments), decode)

    def revise(self, record: EntityRecord, stamp: str) -> Request[EntityRecord]:
        """Replace the record of a queue or topic: what is to be, with the stamp of what was seen.

        ``stamp`` is drawn for this. The version is as before, or the next if the settings are others.
        """
        arguments = (
            self.partitions,
            name_key(record.path),
            record.incarnation,
            record.stamp,
            stamp,
            record.version,
            int(record.state == "deleting"),
            encode(record),
        )
        return Request(load("revise_entity"), self.keys, arguments, decode)

    def revise_subscription(self, record: EntityRecord, stamp: str, *, judging: bool = False) -> Request[Revised]:
        """Replace the record of a subscription as :meth:`revise` does.

        The topic's version rises with it, if the subscription is to be deleted, or ``judging`` says that the topic's
        messages are judged by something else from then on.
        """

        def read(reply: list[bytes]) -> Revised:
            return Revised(decode(reply[0]), decode(reply[1]) if reply[1] else None)

        arguments = (
            self.partitions,
            name_key(record.parent or ""),
            name_key(record.path),
            record.incarnation,
            record.stamp,
            stamp,
            record.version,
            int(judging),
            int(record.state == "deleting"),
            encode(record),
        )
        return Request(load("revise_subscription"), self.keys, arguments, read)

    def unregister(self, record: EntityRecord) -> Request[Unregistered]:
        """Take an entity out; a subscription with its rules, for which more than one call may be needed."""

        def read(reply: list[int]) -> Unregistered:
            return Unregistered(*map(bool, reply))

        arguments = (self.partitions, name_key(record.path), record.incarnation, record.stamp, _SHARE)
        return Request(load("unregister_entity"), self.keys, arguments, read)

    def mark_told(self, topic: EntityRecord) -> Request[bool]:
        """Note that all partitions of a topic have been told its version, as it is in the record given."""
        arguments = (self.partitions, name_key(topic.path), topic.incarnation, topic.version)
        return Request(load("mark_told"), self.keys, arguments, bool)

    def look(self, path: str) -> Request[SeenEntity | None]:
        """An entity, if there is one, and what is counted of its topic."""

        def read(reply: list[Any] | None) -> SeenEntity | None:
            if reply is None:
                return None
            record, behind, subscriptions, sql, correlation = reply
            return SeenEntity(decode(record), behind == 1, behind == 2, subscriptions, sql, correlation)

        return Request(load("read_entity"), self.keys, self._read(path), read)

    def read(self, path: str) -> Request[EntityRecord | None]:
        """The record of an entity, if there is one."""

        def read(reply: list[Any] | None) -> EntityRecord | None:
            return None if reply is None else decode(reply[0])

        return Request(load("read_entity"), self.keys, self._read(path), read)

    def _read(self, path: str) -> tuple[str | int, ...]:
        return (self.partitions, name_key(path), name_key(split_path(path)[0]))

    def listed(self, after: str, limit: int) -> Request[tuple[EntityRecord, ...]]:
        """Records of queues and topics in the order of their names in small letters, from after ``after`` on.

        ``after`` is any text, whether there is an entity of that name or not.
        """
        require_bounds("an entity", after, limit)

        def read(reply: list[bytes]) -> tuple[EntityRecord, ...]:
            return tuple(map(decode, reply))

        return Request(load("list_entities"), self.keys, (self.partitions, name_key(after), limit), read)

    def subscriptions(self, topic: str, after: str, limit: int = LONGEST_PAGE) -> Request[Page]:
        """Subscriptions of a topic in the order of their names in small letters, from after the name ``after`` on.

        As many as ``limit`` and as fit into a reply of a MB.
        """
        require_bounds("a subscription", after, limit)

        def read(reply: list[Any]) -> Page:
            mark, more, *rest = reply
            pairs = zip(rest[::2], rest[1::2], strict=True)
            return Page(
                mark.decode(), bool(more), tuple(JudgedRecord(decode_again(one), two.decode()) for one, two in pairs)
            )

        key = name_key(topic)
        # Behind the stroke, in the order of bytes, stands the zero.
        arguments = (
            self.partitions,
            key,
            f"{key}/subscriptions/{name_key(after)}",
            f"{key}/subscriptions0",
            limit,
        )
        return Request(load("list_subscriptions"), self.keys, arguments, read)


def require_bounds(what: str, after: str, limit: int) -> None:
    """Raise for what cannot be the beginning or the length of a list."""
    if not isinstance(after, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"after is the name of {what}, or '' for the beginning, not {type(after).__name__}")
    if not _expressible(after):
        raise ValueError(f"after is {after!a}, which has half a surrogate pair: UTF-8 cannot express it")
    if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
        raise ValueError(f"limit must be a whole number from 1 to {LONGEST_PAGE}, not {quoted(limit)}")


def _expressible(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
