"""The registry of a namespace: every operation on its entities as a request, typed, and checked before it is sent.

The whole registry is in one slot of its own, and only scripts change it. A request that is sent again is recognised: a
creation by the entity's incarnation, a change by the stamp of its record. Names are compared in lower case; the records
contain the names as they were given. The operations on rules are in ``_rulebook.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sbredis._quoting import quoted
from sbredis.engine import Request, name_key, registry_keys, require_slots
from sbredis.registry._entity import (
    EntityDescription,
    EntityRecord,
    Head,
    decode,
    decode_again,
    encode,
    split_path,
)
from sbredis.registry._rules import encode_rule, kind_of, place_of
from sbredis.registry._unreadable import Unreadable, onward_of, read_all
from sbredis.rules import Rule

__all__ = [
    "LIMITS",
    "LONGEST_PAGE",
    "JudgedRecord",
    "JudgedUnreadable",
    "Limits",
    "Listing",
    "NamespaceFacts",
    "Page",
    "Registry",
    "Revised",
    "SeenEntity",
    "TopicFacts",
    "Unregistered",
    "read_namespace",
    "refuse_former",
    "register_namespace",
    "require_bounds",
]

T = TypeVar("T")

LONGEST_PAGE = 1000
"""The largest number of records in one page."""

_FORMER_SALT = "fjl"
"""The salt of every registry of data layout 1."""

_SHARE = 1000
"""The number of rules that one call to remove a subscription deletes."""


class Limits(NamedTuple):
    """The limits of a topic, with Azure's numbers. The scripts enforce them."""

    subscriptions: int
    sql_filters: int
    """The largest number of SQL filters; a filter that is always true or always false is not counted."""
    correlation_filters: int


LIMITS = Limits(subscriptions=2_000, sql_filters=2_000, correlation_filters=100_000)


class NamespaceFacts(NamedTuple):
    """The facts about a namespace."""

    slots: int
    created_at: int
    entities: int
    """The number of queues and topics."""
    subscriptions: int
    megabytes: int
    """The sum of the sizes that queues and topics may have, in all their partitions."""
    most_entities: int | None
    """The largest number of queues, topics and subscriptions, if it is limited."""
    most_megabytes: int | None


class SeenEntity(NamedTuple):
    """An entity that was read. For a topic or a subscription, this includes the counts of the topic."""

    record: EntityRecord
    behind: bool = False
    """Whether some of the topic's partitions may still lack the topic's version."""
    forsaken: bool = False
    """Whether the entity is a subscription whose topic is being deleted."""
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0


class TopicFacts(NamedTuple):
    """A topic and its counts. Subscriptions that are being deleted are not counted, but their rules are."""

    record: EntityRecord
    subscriptions: int
    sql_filters: int
    """The number of rules without a correlation filter. Filters that are always true or false count here, but not for
    the limit.
    """
    correlation_filters: int


class Revised(NamedTuple):
    """A subscription's record, and its topic's record."""

    record: EntityRecord
    topic: EntityRecord | None


class Unregistered(NamedTuple):
    """The result of removing an entity."""

    there: bool
    more: bool
    """Whether the entity still exists, because it may have more rules than one call deletes."""


class JudgedRecord(NamedTuple):
    """A subscription's record, and an edition that differs after each change of its rules."""

    record: EntityRecord
    edition: str


class JudgedUnreadable(NamedTuple):
    """A subscription whose record cannot be read, and the edition of its rules; empty if it is being deleted."""

    subscription: Unreadable
    edition: str


class Page(NamedTuple):
    """A page of a topic's subscriptions."""

    topic: str
    """Incarnation and version of the topic, or an empty text if it is being deleted or its record cannot be read."""
    more: bool
    subscriptions: tuple[JudgedRecord, ...]
    unreadable: tuple[JudgedUnreadable, ...] = ()
    onward: str | None = None
    """The name after which the next page begins, if there may be one."""


class Listing(NamedTuple, Generic[T]):
    """A page of a list of entities or rules."""

    records: tuple[T, ...]
    unreadable: tuple[Unreadable, ...]
    """Those whose records cannot be read."""
    onward: str | None
    """The name after which the next page begins, if there may be one."""


def read_namespace(namespace: str, slots: int | None = None) -> Request[NamespaceFacts | None]:
    """Read the facts of a namespace, if it exists. With ``slots``, it must have this number of slots."""

    def read(reply: list[Any] | None) -> NamespaceFacts | None:
        return None if reply is None else _facts(reply)

    keys = registry_keys(namespace)
    return Request.of("read_namespace", keys, ("" if slots is None else slots,), read)


def refuse_former(namespace: str) -> Request[None]:
    """Refuse a namespace of data layout 1, whose registry is in another slot."""
    return Request.of("read_namespace", registry_keys(namespace, _FORMER_SALT), ("",), lambda _: None)


def register_namespace(namespace: str, slots: int, *, exact: bool) -> Request[NamespaceFacts]:
    """Create a namespace if it does not exist, and read its facts.

    With ``exact``, it must have this number of slots.
    """
    keys = registry_keys(namespace)
    return Request.of("register_namespace", keys, (slots, int(exact)), _facts)


def _facts(reply: list[Any]) -> NamespaceFacts:
    *numbers, entities, megabytes = reply
    facts = NamespaceFacts(*numbers, *(int(each) if each else None for each in (entities, megabytes)))
    require_slots(facts.slots)
    return facts


def _megabytes(description: EntityDescription) -> int:
    """Return the largest size of the messages of a queue or topic in all partitions, in megabytes."""
    return -(-description.settings.quota * len(description.partitions) // 2**20)


class Registry:
    """The registry, for a caller that knows the namespace's number of slots."""

    __slots__ = ("keys", "slots")

    def __init__(self, namespace: str, slots: int) -> None:
        self.keys = registry_keys(namespace)
        self.slots = slots

    def limit(self, entities: int | None, megabytes: int | None) -> Request[NamespaceFacts]:
        """Limit the number of entities and their size in megabytes; ``None`` is no limit."""
        limits = ("" if each is None else each for each in (entities, megabytes))
        return Request.of("limit_namespace", self.keys, (self.slots, *limits), _facts)

    def register(self, description: EntityDescription, incarnation: str) -> Request[EntityRecord]:
        """Add a new queue or topic and give it an id; ``incarnation`` is chosen at random for this creation."""
        topic = int(description.kind == "topic")
        size, text = _megabytes(description), encode(description)
        arguments = (self.slots, name_key(description.path), incarnation, topic, size, text)
        return Request.of("register_entity", self.keys, arguments, decode)

    def register_subscription(
        self, topic: EntityRecord, description: EntityDescription, incarnation: str, rules: Sequence[Rule]
    ) -> Request[EntityRecord]:
        """Add a new subscription of a topic with its rules."""
        arguments: list[str | int] = [
            self.slots,
            name_key(topic.path),
            topic.incarnation,
            name_key(description.path),
            incarnation,
            encode(description),
            *LIMITS,
        ]
        for rule in rules:
            arguments += (place_of(description.path, rule.name), kind_of(rule), encode_rule(rule))
        return Request.of("register_subscription", self.keys, tuple(arguments), decode)

    def revise(self, record: EntityRecord, stamp: str, *, kept: bool = False) -> Request[EntityRecord]:
        """Replace the record of a queue or topic: ``record`` is the new record, but with the stamp that was read.

        ``stamp`` is chosen at random for this change. The new record has the same version, or the next version if the
        settings differ. With ``kept``, a removal is taken back: the version rises, but the settings do not differ.
        """
        arguments = (
            self.slots,
            name_key(record.path),
            record.incarnation,
            record.stamp,
            stamp,
            record.version,
            2 if kept else int(record.state == "deleting"),
            _megabytes(record),
            encode(record),
        )
        return Request.of("revise_entity", self.keys, arguments, decode)

    def revise_subscription(
        self, record: EntityRecord, stamp: str, *, judging: bool = False, kept: bool = False
    ) -> Request[Revised]:
        """Replace the record of a subscription as :meth:`revise` does.

        The script also raises the topic's version if the subscription is to be deleted, or if ``judging`` says that the
        change affects how the topic's messages are judged.
        """

        def read(reply: list[bytes]) -> Revised:
            return Revised(decode(reply[0]), decode(reply[1]) if reply[1] else None)

        arguments = (
            self.slots,
            name_key(record.parent or ""),
            name_key(record.path),
            record.incarnation,
            record.stamp,
            stamp,
            record.version,
            int(judging),
            2 if kept else int(record.state == "deleting"),
            encode(record),
        )
        return Request.of("revise_subscription", self.keys, arguments, read)

    def unregister(self, record: EntityRecord) -> Request[Unregistered]:
        """Remove an entity, and the rules of a subscription. If there are many rules, this takes more than one call."""

        def read(reply: list[int]) -> Unregistered:
            return Unregistered(*map(bool, reply))

        arguments = (self.slots, name_key(record.path), record.incarnation, record.stamp, _SHARE)
        return Request.of("unregister_entity", self.keys, arguments, read)

    def mark_told(self, topic: EntityRecord) -> Request[bool]:
        """Record in the registry that all partitions of a topic have been told the version in this record."""
        arguments = (self.slots, name_key(topic.path), topic.incarnation, topic.version)
        return Request.of("mark_told", self.keys, arguments, bool)

    def look(self, path: str) -> Request[SeenEntity | None]:
        """Read an entity, if it exists. For a topic or a subscription, also read the counts of the topic."""

        def read(reply: list[Any] | None) -> SeenEntity | None:
            if reply is None:
                return None
            record, behind, subscriptions, sql, correlation = reply
            return SeenEntity(decode(record, path), behind == 1, behind == 2, subscriptions, sql, correlation)

        return Request.of("read_entity", self.keys, self._read(path), read)

    def read(self, path: str) -> Request[EntityRecord | None]:
        """Read the record of an entity, if it exists."""

        def read(reply: list[Any] | None) -> EntityRecord | None:
            return None if reply is None else decode(reply[0], path)

        return Request.of("read_entity", self.keys, self._read(path), read)

    def text(self, path: str) -> Request[bytes | None]:
        """Read the record of an entity as it is, if the entity exists; empty if the record is missing."""

        def read(reply: list[Any] | None) -> bytes | None:
            return None if reply is None else reply[0]

        return Request.of("read_entity", self.keys, self._read(path), read)

    def condemn(
        self, path: str, seen: bytes, head: Head, description: EntityDescription, stamp: str
    ) -> Request[EntityRecord]:
        """Begin to delete an entity whose record ``seen`` cannot be read.

        ``head`` is the beginning of the record; its id is empty if it could not be read. ``stamp`` is chosen at random
        for this change.
        """
        arguments = (
            self.slots,
            name_key(split_path(path)[0]),
            name_key(path),
            seen,
            head.id,
            head.incarnation,
            head.version,
            stamp,
            encode(description),
        )
        return Request.of("condemn_entity", self.keys, arguments, decode)

    def _read(self, path: str) -> tuple[str | int, ...]:
        return (self.slots, name_key(path), name_key(split_path(path)[0]))

    def listed(self, after: str, limit: int) -> Request[Listing[EntityRecord]]:
        """List queues and topics after ``after``, in the order of their names in lower case.

        ``after`` is any text; an entity of that name need not exist.
        """
        require_bounds("an entity", after, limit)

        def read(reply: list[bytes]) -> Listing[EntityRecord]:
            found = read_all(reply, lambda name, text: decode(text, name))
            onward = onward_of(reply[-2]) if len(found) == limit else None
            return Listing(*_divided(found), onward)

        return Request.of("list_entities", self.keys, (self.slots, name_key(after), limit), read)

    def subscriptions(self, topic: str, after: str, limit: int = LONGEST_PAGE) -> Request[Page]:
        """List subscriptions of a topic after the name ``after``, in the order of their names in lower case.

        A page has up to ``limit`` subscriptions, and no more than fit into a reply of 1 MB.
        """
        require_bounds("a subscription", after, limit)

        def read(reply: list[Any]) -> Page:
            edition, more, *rest = reply
            paths, texts, marks = rest[::3], rest[1::3], [each.decode() for each in rest[2::3]]
            named = [each for pair in zip(paths, texts, strict=True) for each in pair]
            pairs = list(zip(read_all(named, decode_again), marks, strict=True))
            return Page(
                edition.decode(),
                bool(more),
                tuple(JudgedRecord(each, of) for each, of in pairs if isinstance(each, EntityRecord)),
                tuple(JudgedUnreadable(each, of) for each, of in pairs if isinstance(each, Unreadable)),
                _name_in(paths[-1]) if more and paths else None,
            )

        key = name_key(topic)
        # The byte "0" follows the byte "/", so the range ends after the last subscription of the topic.
        arguments = (
            self.slots,
            key,
            f"{key}/subscriptions/{name_key(after)}",
            f"{key}/subscriptions0",
            limit,
        )
        return Request.of("list_subscriptions", self.keys, arguments, read)


def _divided(
    found: Sequence[EntityRecord | Unreadable],
) -> tuple[tuple[EntityRecord, ...], tuple[Unreadable, ...]]:
    return (
        tuple(each for each in found if isinstance(each, EntityRecord)),
        tuple(each for each in found if isinstance(each, Unreadable)),
    )


def _name_in(path: bytes) -> str:
    """Return the name of a subscription in its path."""
    return path.decode().rpartition("/")[2]


def require_bounds(what: str, after: str, limit: int) -> None:
    """Raise if a list cannot begin after ``after``, or cannot have the length ``limit``."""
    if not isinstance(after, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"after must be the name of {what}, or '' for the beginning, not {type(after).__name__}")
    if not _expressible(after):
        raise ValueError(f"the argument after has half a surrogate pair, which UTF-8 cannot encode: {after!a}")
    if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
        raise ValueError(f"limit must be a whole number from 1 to {LONGEST_PAGE}, not {quoted(limit)}")


def _expressible(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
