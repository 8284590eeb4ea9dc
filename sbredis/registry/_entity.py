"""The registry's record of an entity, and the text of the record. Pure.

A record is ``2 <version> <id> <incarnation> <stamps> <created> <updated> <description>``. To compare and count records,
the scripts read the fields in front of the description. The description is JSON, which only Python reads. A minor
release may add fields to the description; a release that does not know these fields keeps them unchanged when it
replaces a record. Any other change needs a new layout, whose number is then the first word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args, get_origin

from sbredis._quoting import quoted
from sbredis.engine import MOST_SLOTS, PartitionSettings, entity_name, name_key, subscription_name
from sbredis.registry._unreadable import layout_of, read_json, reason_of, too_new, unreadable

__all__ = [
    "DESTINATIONS",
    "IDLE_PROPERTY",
    "JUDGING_PROPERTY",
    "LATEST",
    "LAYOUT",
    "MAXIMUM_PROPERTIES_BYTES",
    "EntityDescription",
    "EntityRecord",
    "Head",
    "Json",
    "Kind",
    "RecordState",
    "decode",
    "decode_again",
    "encode",
    "head_of",
    "path_of",
    "require_changeable",
    "require_properties",
    "split_path",
]

T = TypeVar("T")
Kind = Literal["queue", "topic", "subscription"]
RecordState = Literal["creating", "active", "removing", "deleting"]
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

LAYOUT = "2"
"""The layout of all data that this release reads and writes. The records and the partitions of an entity name it."""

MAXIMUM_PROPERTIES_BYTES = 64 * 1024
"""The largest size of an entity's properties, as JSON. Every request that reads the entity reads all its properties."""

IDLE_PROPERTY = "auto_delete_on_idle"
"""The property with the ms without use after which an entity is deleted, if it is ever deleted for that reason."""

DESTINATIONS = ("forward_to", "forward_dead_lettered_messages_to")
"""The properties that name an entity to which messages are moved."""

JUDGING_PROPERTY = "dead_lettering_on_filter_evaluation_exceptions"
"""The property of a subscription that affects how messages are judged.

A change of this property raises the topic's version.
"""

_ID = re.compile(r"[0-9a-z]+")
_INFIX = "/subscriptions/"


def path_of(topic: str, subscription: str) -> str:
    """Return the path of a subscription, which is its name in the namespace."""
    return f"{topic}{_INFIX}{subscription}"


def split_path(path: str) -> tuple[str, str | None]:
    """Split a path: return a queue's or topic's name and ``None``, or the names of a topic and its subscription.

    Raises :class:`ValueError` if the path is not valid.
    """
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"the path of an entity must be text, not {type(path).__name__}")
    return _split(path)


@lru_cache(maxsize=1024)  # a client asks for the same entities again and again
def _split(path: str) -> tuple[str, str | None]:
    at = name_key(path).rfind(_INFIX)
    if at < 0:
        return entity_name(path), None
    return entity_name(path[:at]), subscription_name(path[at + len(_INFIX) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDescription:
    """The description of an entity that is not registered yet."""

    name: str
    """The name as it was given; it is compared without regard to case."""
    kind: Kind = "queue"
    parent: str | None = None
    """The topic of a subscription."""
    store: str | None = None
    """The id of the entity that holds the messages of a subscription: the id of its topic."""
    state: RecordState = "creating"
    """Whether the entity is complete. A client that finds an unfinished creation or deletion continues it.

    In the state ``removing`` the entity is complete, but a client tries to delete it because it is not used. A client
    that finds this state takes the removal back.
    """
    partitioned: bool = False
    partitions: tuple[int, ...]
    """The numbers of the slots that the entity's partitions are in. A partition has the number of its slot."""
    generation: int = 0
    """The number of times that the entity has got more partitions. This release makes no entity grow, and does not know
    how the keys of a grown entity choose among its partitions.
    """
    colocated_with: str | None = None
    """If this entity was created in the partition of another entity, the name of that entity."""
    settings: PartitionSettings = field(default_factory=PartitionSettings)
    """The settings of each partition of the entity. So the quota in these settings is the quota of one partition."""
    properties: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """The properties that no partition needs."""
    unread: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """The fields that a newer release has added, kept unchanged."""

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, get_args(Kind))
        _one_of("state", self.state, get_args(RecordState))
        if (self.kind == "subscription") != (self.parent is not None):
            raise ValueError(
                f"a {self.kind} cannot have the parent {self.parent!r}: a subscription must have a parent, and no "
                "other entity may have one"
            )
        if (self.store is None) != (self.parent is None) or (self.store is not None and not _ID.fullmatch(self.store)):
            raise ValueError(
                f"a {self.kind} cannot have the store {self.store!r}: the store of a subscription is the id of its "
                "topic, and no other entity has one"
            )
        if self.parent is None:
            entity_name(self.name)
        else:
            entity_name(self.parent)
            subscription_name(self.name)
        numbers = self.partitions
        if not all(type(number) is int and 0 <= number < MOST_SLOTS for number in numbers):
            raise ValueError(f"partitions must be numbers from 0 to {MOST_SLOTS - 1}, not {numbers!r}")
        if not numbers or len(set(numbers)) < len(numbers) or (len(numbers) > 1 and not self.partitioned):
            raise ValueError(
                "partitions must be one number, or several different numbers if the entity is partitioned, "
                f"not {numbers!r}"
            )
        if type(self.generation) is not int or self.generation < 0:
            raise ValueError(f"a generation is a number from 0, not {self.generation!r}")
        if self.colocated_with is not None:
            entity_name(self.colocated_with)

    @property
    def path(self) -> str:
        """The entity's name in the namespace; for a subscription, this contains the name of the topic."""
        return self.name if self.parent is None else path_of(self.parent, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRecord(EntityDescription):
    """An entity as the registry records it."""

    id: str
    """The id in the names of the entity's keys. No other entity gets this id."""
    incarnation: str
    """A random text that the client chose when it created the entity. Every call names the incarnation."""
    version: int
    """The version of the settings, from 1."""
    stamp: str
    """The stamp of this record. Each new record of the entity has a new stamp, chosen at random."""
    created_at: int
    updated_at: int
    """The time of the last change of the settings, in ms since 1970 by the server's clock, like :attr:`created_at`."""


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(description: EntityDescription) -> str:
    """Return the JSON of a description, with its fields in order, in ASCII."""
    unread = dict(description.unread)
    beside = unread.pop("settings", {})
    known = {name: getattr(description, name) for name in _FIELDS}
    settings = {name: getattr(description.settings, name) for name, _ in _SETTINGS if name != "wide"}
    known["settings"] = {**cast("Mapping[str, Json]", beside), **settings}
    return json.dumps({**unread, **known}, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def require_properties(properties: Mapping[str, Json]) -> None:
    """Refuse, before anything is sent, properties that are too large or would not come back unchanged.

    JSON has only text as names, and would turn other names into text. Properties that are read from the registry are
    not checked again. So an entity that a newer release created with larger properties can still be changed and
    deleted.
    """
    if not isinstance(properties, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"the properties of an entity must be a mapping, not {type(properties).__name__}")
    try:
        size = len(json.dumps(properties, separators=(",", ":"), allow_nan=False, default=_plain))
    except RecursionError:
        raise ValueError("the properties of an entity are nested too deeply") from None
    if size > MAXIMUM_PROPERTIES_BYTES:
        raise ValueError(
            f"the properties of an entity have {size} bytes; at most {MAXIMUM_PROPERTIES_BYTES} are stored"
        )
    _require_text_names(properties)


def require_changeable(record: EntityRecord, settings: PartitionSettings) -> None:
    """Raise for a change of a fixed setting, before the registry stores settings that every partition would refuse."""
    for what in record.settings.fixed_differences(settings):
        raise ValueError(f"'{record.path}' cannot be changed in this way: {what} was fixed when the entity was created")


def _require_text_names(value: object) -> None:
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[object, object]", value).items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a property of an entity must be text, not {quoted(name)}")
            _require_text_names(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("Sequence[object]", value):
            _require_text_names(inner)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Json]", value))
    raise TypeError(f"a property of an entity must be a JSON value, not {type(value).__name__}")


_FIELDS = tuple(each.name for each in fields(EntityDescription) if each.name != "unread")


# -- reading -----------------------------------------------------------------------------------------------------------

_HEAD = (
    rb"2 (?P<version>[1-9][0-9]{0,14}) (?P<id>[0-9a-z]+) "
    rb"(?P<incarnation>[\w-]{12}) (?P<stamp>[\w-]{12})(?:,[\w-]{12})* "
)
_RECORD = re.compile(
    _HEAD + rb"(?P<created>[0-9]{1,15}) (?P<updated>[0-9]{1,15}) (?P<description>\{.*\})",
    re.DOTALL,
)
_BEGINNING = re.compile(_HEAD)
_MOST_IDLE = 2**53
"""A limit in ms that every duration of Python can have."""
LATEST = 253_402_300_799_999
"""The last ms of the year 9999."""


class Head(NamedTuple):
    """The beginning of a record, which may be readable although the record is not."""

    id: str
    incarnation: str
    version: int


def head_of(record: bytes) -> Head | None:
    """Return the beginning of a record that cannot be read, if at least that can be read."""
    found = _BEGINNING.match(record)
    return found and Head(found["id"].decode(), found["incarnation"].decode(), int(found["version"]))


def decode(record: bytes, path: str | None = None, slots: int = MOST_SLOTS) -> EntityRecord:
    """Read a record; raise :class:`~sbredis.exceptions.DataLayoutError` if it cannot be read.

    ``path`` is the name under which the registry has the record, if the caller knows it, and ``slots`` the number of
    slots of the namespace.
    """
    if layout_of(record) is not None:
        raise unreadable("record", path, record, "")
    found = _RECORD.fullmatch(record)
    if not found:
        raise unreadable("record", path, record, "it does not begin like a record")
    try:
        description = read_json(found["description"])
        read = EntityRecord(
            **_described(description),
            id=found["id"].decode(),
            incarnation=found["incarnation"].decode(),
            version=int(found["version"]),
            stamp=found["stamp"].decode(),
            created_at=_time(found["created"]),
            updated_at=_time(found["updated"]),
        )
        if path is not None and name_key(read.path) != name_key(path):
            raise ValueError(f"it describes {quoted(read.path)}")  # noqa: TRY301 -- as all other mistakes in the record
        if (last := max(read.partitions)) >= slots:
            raise ValueError(  # noqa: TRY301 -- as above
                f"it has a partition in slot {last}, and the namespace has the slots 0 to {slots - 1}"
            )
    except Exception as error:  # noqa: BLE001 -- whatever the record contains, it costs this entity alone
        raise unreadable("record", path, record, reason_of(error)) from None
    if read.generation:
        raise too_new("record", read.path, LAYOUT, f"the entity has grown, to generation {read.generation}")
    return read


def _time(text: bytes) -> int:
    value = int(text)
    if value > LATEST:
        raise ValueError(f"the time {value} is after the year 9999")
    return value


@lru_cache(maxsize=4096)
def decode_again(path: str, record: bytes, slots: int) -> EntityRecord:
    """Read a record that clients read often, such as that of a subscription or of the entity that a transaction sends
    to. Results are cached by their bytes.
    """
    return decode(record, path, slots)


def _described(body: dict[str, Any]) -> dict[str, Any]:
    """Check the types of the known fields of a description and return them, with all other fields as ``unread``."""
    rest = dict(body)
    settings, unread_settings = _settings(_taken(rest, "settings", dict[str, Any]))
    described = {
        "name": _taken(rest, "name", str),
        "kind": _taken(rest, "kind", str),
        "parent": _text_or_none(rest, "parent"),
        "store": _text_or_none(rest, "store"),
        "state": _taken(rest, "state", str),
        "partitioned": _taken(rest, "partitioned", bool),
        "partitions": _partitions(_taken(rest, "partitions", list[Any])),
        "generation": _taken(rest, "generation", int),
        "colocated_with": _text_or_none(rest, "colocated_with"),
        "settings": settings,
        "properties": _properties(_taken(rest, "properties", dict[str, Any])),
    }
    # A new empty dictionary is no object for the garbage collector, and an emptied one is.
    return {**described, "unread": {**rest, "settings": unread_settings} if unread_settings else rest or {}}


_SLOTS = tuple((number,) for number in range(MOST_SLOTS))


def _partitions(given: list[Any]) -> tuple[Any, ...]:
    """Return the numbers of partitions. Entities with one partition in the same slot share an object."""
    if len(given) == 1 and type(given[0]) is int and 0 <= given[0] < MOST_SLOTS:
        return _SLOTS[given[0]]
    return tuple(given)


def _settings(given: dict[str, Any]) -> tuple[PartitionSettings, dict[str, Any]]:
    """Return the settings that this release knows, and all other settings.

    A setting that an older release did not write has its default.
    """
    rest = dict(given)
    known = [rest.pop(name, default) for name, default in _SETTINGS]
    for value, (name, default) in zip(known, _SETTINGS, strict=True):
        if type(value) is not type(default) and not (default is None and type(value) is int):
            raise ValueError(f"its setting {name} is {quoted(value)}")
    return _shared_settings(*known), rest


_SETTINGS = tuple((each.name, each.default) for each in fields(PartitionSettings))


@lru_cache(maxsize=1024)
def _shared_settings(*values: Any) -> PartitionSettings:
    """Return settings with these values. Most entities have the settings of many others, and share one object.

    The cache takes 1 for ``True``, so the types of the values must be checked before.
    """
    return PartitionSettings(*values)


def _properties(given: dict[str, Any]) -> dict[str, Any]:
    """Check the properties that the registry itself or maintenance reads."""
    for name in DESTINATIONS:
        if name in given:
            if not isinstance(given[name], str):
                raise ValueError(f"its property {name} is {quoted(given[name])}")
            entity_name(given[name])
    idle = given.get(IDLE_PROPERTY)
    if IDLE_PROPERTY in given and (type(idle) is not int or not 0 < idle < _MOST_IDLE):
        raise ValueError(f"its property {IDLE_PROPERTY} is {quoted(idle)}")
    return given


def _taken(rest: dict[str, Any], name: str, kind: type[T]) -> T:
    value = rest.pop(name, None)
    if type(value) is not (get_origin(kind) or kind):
        raise ValueError(f"its field {name} is {quoted(value)}")
    return cast("T", value)


def _text_or_none(rest: dict[str, Any], name: str) -> str | None:
    if rest.get(name) is not None:
        return _taken(rest, name, str)
    rest.pop(name, None)
    return None


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, not {quoted(value)}")
