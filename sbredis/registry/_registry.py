"""The registry of a namespace: every operation on its entities as a request, typed, and checked before it is sent.

The registry lies in *buckets*, one in each slot of the namespace. The name of a queue or topic chooses its bucket,
which also has the topic's subscriptions and rules. So each operation on an entity is one script in one slot. Only
scripts change the registry. A request that is sent again is recognised: a creation by the entity's incarnation, a
change by the stamp of its record. Names are compared in lower case; the records contain the names as they were given.
The operations on rules are in ``_rulebook.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from sbredis._quoting import quoted
from sbredis.engine import (
    Request,
    bucket_keys,
    bucket_word,
    due_channel,
    head_keys,
    name_key,
    require_slots,
    slot_for_name,
    slot_salt,
)
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
from sbredis.registry._unreadable import Unreadable, read_all, shown_name

if TYPE_CHECKING:
    from sbredis.rules import Rule

__all__ = [
    "LIMITS",
    "LONGEST_PAGE",
    "BucketChanges",
    "BucketCounts",
    "JudgedRecord",
    "JudgedUnreadable",
    "Limits",
    "Listing",
    "NamespaceFacts",
    "NamespaceHead",
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


class NamespaceHead(NamedTuple):
    """The facts about a namespace that concern all its entities."""

    slots: int
    created_at: int
    most_entities: int | None
    """The largest number of queues, topics and subscriptions, if it is limited."""
    most_megabytes: int | None

    @property
    def limited(self) -> bool:
        """Whether there are limits."""
        return self.most_entities is not None or self.most_megabytes is not None


class BucketCounts(NamedTuple):
    """How much a bucket contains."""

    entities: int
    subscriptions: int
    megabytes: int


class NamespaceFacts(NamedTuple):
    """The facts about a namespace, and the sums of what its buckets contain."""

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
    unreachable: tuple[int, ...]
    """The numbers of the slots whose buckets could not be read, and do not count."""


class BucketChanges(NamedTuple):
    """A part of the changes of a bucket."""

    life: str
    """A text that is another one if the bucket may have lost changes."""
    floor: int
    """The number of the last deletion that the log has lost."""
    number: int
    """The number up to which the changes were read."""
    last: int
    """The last number that the bucket has given."""
    more: bool
    records: tuple[tuple[str, bytes | None], ...]
    """For each changed entity its path in lower case and its record: empty if it is missing, ``None`` if the entity is
    gone.
    """


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


def read_namespace(namespace: str, slots: int | None = None) -> Request[NamespaceHead | None]:
    """Read the facts of a namespace, if it exists. With ``slots``, it must have this number of slots."""

    def read(reply: list[Any] | None) -> NamespaceHead | None:
        return None if reply is None else _head(reply)

    return Request.of("read_namespace", head_keys(namespace), ("" if slots is None else slots,), read)


def refuse_former(namespace: str) -> Request[None]:
    """Refuse a namespace of data layout 1, whose registry is in another slot."""
    return Request.of("read_namespace", head_keys(namespace, _FORMER_SALT), ("",), lambda _: None)


def register_namespace(namespace: str, slots: int, *, exact: bool) -> Request[NamespaceHead]:
    """Create a namespace if it does not exist, and read its facts.

    With ``exact``, it must have this number of slots.
    """
    return Request.of("register_namespace", head_keys(namespace), (slots, int(exact)), _head)


def _head(reply: list[Any]) -> NamespaceHead:
    slots, created_at, *limits = reply
    head = NamespaceHead(slots, created_at, *(int(each) if each else None for each in limits))
    require_slots(head.slots)
    return head


def _megabytes(description: EntityDescription) -> int:
    """Return the largest size of the messages of a queue or topic in all partitions, in megabytes."""
    return -(-description.settings.quota * len(description.partitions) // 2**20)


class Registry:
    """The registry, for a caller that knows the namespace's number of slots."""

    __slots__ = ("namespace", "slots")

    def __init__(self, namespace: str, slots: int) -> None:
        self.namespace = namespace
        self.slots = slots

    def bucket_of(self, path: str) -> int:
        """Return the number of the bucket of an entity: that of the slot of its name, or of its topic's name."""
        return slot_for_name(split_path(path)[0], self.slots)

    def keys(self, path: str) -> tuple[bytes, ...]:
        """Return the keys of the bucket of an entity."""
        return self.bucket_keys(self.bucket_of(path))

    def bucket_keys(self, number: int) -> tuple[bytes, ...]:
        """Return the keys of the bucket of this number."""
        return _bucket_keys(self.namespace, number, self.slots)

    def limit(self, entities: int | None, megabytes: int | None) -> Request[NamespaceHead]:
        """Limit the number of entities and their size in megabytes; ``None`` is no limit."""
        limits = ("" if each is None else each for each in (entities, megabytes))
        return Request.of("limit_namespace", head_keys(self.namespace), (self.slots, *limits), _head)

    def begin(self, number: int, *, limited: bool, exact: bool = False) -> Request[None]:
        """Begin a bucket, and note whether the namespace has limits: with ``exact`` also if the bucket exists."""
        channel = due_channel(self.namespace, slot_salt(self.namespace, number, self.slots))
        arguments = (self.slots, channel, int(limited), int(exact))
        return Request.of("begin_bucket", self.bucket_keys(number), arguments, lambda _: None)

    def counts(self, number: int) -> Request[BucketCounts | None]:
        """Read how much a bucket contains, if it exists."""

        def read(reply: list[Any] | None) -> BucketCounts | None:
            return None if reply is None else BucketCounts(*map(int, reply))

        return Request.of("read_bucket", self.bucket_keys(number), (self.slots,), read)

    def changes(self, number: int, after: int, limit: int) -> Request[BucketChanges | None]:
        """Read the changes of a bucket after a number, if it exists. After 0, these are all records."""

        def read(reply: list[Any] | None) -> BucketChanges | None:
            if reply is None:
                return None
            life, floor, number, last, more, *rest = reply
            named = zip(rest[::2], rest[1::2], strict=True)
            records = tuple((shown_name(path), _text_or_none(text)) for path, text in named)
            return BucketChanges(life.decode(), int(floor), int(number), int(last), bool(more), records)

        return Request.of("read_changes", self.bucket_keys(number), (self.slots, after, limit), read)

    def find(self, number: int, entity_id: str) -> Request[EntityRecord | None]:
        """Read the record of the entity with this id, if it exists."""

        def read(reply: list[bytes] | None) -> EntityRecord | None:
            return None if reply is None else decode(reply[1], reply[0].decode(), self.slots)

        return Request.of("find_entity", self.bucket_keys(number), (self.slots, entity_id), read)

    def register(
        self, description: EntityDescription, incarnation: str, *, checked: bool = False
    ) -> Request[EntityRecord]:
        """Add a new queue or topic and give it an id; ``incarnation`` is chosen at random for this creation.

        ``checked`` says that the limits of the namespace were checked.
        """
        topic, word = int(description.kind == "topic"), bucket_word(self.bucket_of(description.path))
        size, text = _megabytes(description), encode(description)
        arguments = (self.slots, name_key(description.path), incarnation, topic, size, word, int(checked), text)
        return Request.of("register_entity", self.keys(description.path), arguments, decode)

    def register_subscription(
        self,
        topic: EntityRecord,
        description: EntityDescription,
        incarnation: str,
        rules: Sequence[Rule],
        *,
        checked: bool = False,
    ) -> Request[EntityRecord]:
        """Add a new subscription of a topic with its rules. ``checked`` is as in :meth:`register`."""
        arguments: list[str | int] = [
            self.slots,
            name_key(topic.path),
            topic.incarnation,
            name_key(description.path),
            incarnation,
            encode(description),
            *LIMITS,
            bucket_word(self.bucket_of(topic.path)),
            int(checked),
        ]
        for rule in rules:
            arguments += (place_of(description.path, rule.name), kind_of(rule), encode_rule(rule))
        return Request.of("register_subscription", self.keys(topic.path), tuple(arguments), decode)

    def revise(
        self, record: EntityRecord, stamp: str, *, kept: bool = False, checked: bool = False
    ) -> Request[EntityRecord]:
        """Replace the record of a queue or topic: ``record`` is the new record, but with the stamp that was read.

        ``stamp`` is chosen at random for this change. The new record has the same version, or the next version if the
        settings differ. With ``kept``, a removal is taken back: the version rises, but the settings do not differ.
        ``checked`` is as in :meth:`register`.
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
            int(checked),
            encode(record),
        )
        return Request.of("revise_entity", self.keys(record.path), arguments, decode)

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
        return Request.of("revise_subscription", self.keys(record.path), arguments, read)

    def unregister(self, record: EntityRecord) -> Request[Unregistered]:
        """Remove an entity, and the rules of a subscription. If there are many rules, this takes more than one call."""

        def read(reply: list[int]) -> Unregistered:
            return Unregistered(*map(bool, reply))

        arguments = (self.slots, name_key(record.path), record.incarnation, record.stamp, _SHARE)
        return Request.of("unregister_entity", self.keys(record.path), arguments, read)

    def mark_told(self, topic: EntityRecord) -> Request[bool]:
        """Record in the registry that all partitions of a topic have been told the version in this record."""
        arguments = (self.slots, name_key(topic.path), topic.incarnation, topic.version)
        return Request.of("mark_told", self.keys(topic.path), arguments, bool)

    def look(self, path: str) -> Request[SeenEntity | None]:
        """Read an entity, if it exists. For a topic or a subscription, also read the counts of the topic."""

        def read(reply: list[Any] | None) -> SeenEntity | None:
            if reply is None:
                return None
            record, behind, subscriptions, sql, correlation = reply
            entity = decode_again(path, record, self.slots)
            return SeenEntity(entity, behind == 1, behind == 2, subscriptions, sql, correlation)

        return Request.of("read_entity", self.keys(path), self._read(path), read)

    def read(self, path: str) -> Request[EntityRecord | None]:
        """Read the record of an entity, if it exists."""

        def read(reply: list[Any] | None) -> EntityRecord | None:
            return None if reply is None else decode(reply[0], path, self.slots)

        return Request.of("read_entity", self.keys(path), self._read(path), read)

    def text(self, path: str) -> Request[bytes | None]:
        """Read the record of an entity as it is, if the entity exists; empty if the record is missing."""

        def read(reply: list[Any] | None) -> bytes | None:
            return None if reply is None else reply[0]

        return Request.of("read_entity", self.keys(path), self._read(path), read)

    def condemn(
        self, path: str, seen: bytes, head: Head, description: EntityDescription, stamp: str
    ) -> Request[EntityRecord]:
        """Begin to delete an entity whose record ``seen`` cannot be read.

        ``head`` is the beginning of the record; its id is empty if it could not be read, and then the bucket knows it.
        ``stamp`` is chosen at random for this change.
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
            bucket_word(self.bucket_of(path)),
            encode(description),
        )
        return Request.of("condemn_entity", self.keys(path), arguments, decode)

    def _read(self, path: str) -> tuple[str | int, ...]:
        return (self.slots, name_key(path), name_key(split_path(path)[0]))

    def listed(self, number: int, after: bytes, limit: int) -> Request[list[tuple[bytes, bytes]] | None]:
        """List queues and topics of a bucket after the name ``after``: names in lower case, and their records.

        ``after`` is in lower case too. It is any text; an entity of that name need not exist. If the bucket does
        not exist, there is no list.
        """

        def read(reply: list[bytes] | None) -> list[tuple[bytes, bytes]] | None:
            return None if reply is None else list(zip(reply[::2], reply[1::2], strict=True))

        arguments = (self.slots, after, limit)
        return Request.of("list_entities", self.bucket_keys(number), arguments, read)

    def subscriptions(self, topic: str, after: str, limit: int = LONGEST_PAGE) -> Request[Page]:
        """List subscriptions of a topic after the name ``after``, in the order of their names in lower case.

        A page has up to ``limit`` subscriptions, and no more than fit into a reply of 1 MB.
        """
        require_bounds("a subscription", after, limit)

        def read(reply: list[Any]) -> Page:
            edition, more, *rest = reply
            paths, texts, marks = rest[::3], rest[1::3], [each.decode() for each in rest[2::3]]
            named = [each for pair in zip(paths, texts, strict=True) for each in pair]
            records = read_all(named, partial(decode_again, slots=self.slots))
            pairs = list(zip(records, marks, strict=True))
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
        return Request.of("list_subscriptions", self.keys(topic), arguments, read)


@lru_cache(maxsize=4096)
def _bucket_keys(namespace: str, number: int, slots: int) -> tuple[bytes, ...]:
    return bucket_keys(namespace, slot_salt(namespace, number, slots))


def _text_or_none(value: object) -> bytes | None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"a record must be bytes, not {type(value).__name__}")
    return value


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
