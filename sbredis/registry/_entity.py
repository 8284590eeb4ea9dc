"""What the registry keeps of an entity, and the text in which it keeps it. Pure.

A record is ``1 <version> <id> <incarnation> <stamps> <created> <updated> <description>``. What stands before the
description is the scripts', which compare and count; the description is JSON and ours alone. Its fields may become more
with a minor release, and a release that does not know them hands them on as they are when it replaces a record. What
else changes takes another layout, which is the first word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, cast, get_args, get_origin

from sbredis._quoting import quoted
from sbredis.engine import MOST_PARTITIONS, PartitionSettings, entity_name, name_key, subscription_name
from sbredis.exceptions import DataLayoutError

__all__ = [
    "MAXIMUM_PROPERTIES_BYTES",
    "EntityDescription",
    "EntityRecord",
    "Json",
    "Kind",
    "State",
    "decode",
    "decode_again",
    "encode",
    "path_of",
    "require_properties",
    "split_path",
]

T = TypeVar("T")
Kind = Literal["queue", "topic", "subscription"]
State = Literal["creating", "active", "deleting"]
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

MAXIMUM_PROPERTIES_BYTES = 64 * 1024
"""What the properties of an entity may weigh, as JSON: whatever the registry is asked about the entity reads them."""

_ID = re.compile(r"[0-9a-z]+")
_INFIX = "/subscriptions/"


def path_of(topic: str, subscription: str) -> str:
    """By what a subscription is known in its namespace."""
    return f"{topic}{_INFIX}{subscription}"


def split_path(path: str) -> tuple[str, str | None]:
    """The name of a queue or topic and ``None``, or those of a topic and its subscription; else :class:`ValueError`."""
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"the path of an entity is text, not {type(path).__name__}")
    at = name_key(path).rfind(_INFIX)
    if at < 0:
        return entity_name(path), None
    return entity_name(path[:at]), subscription_name(path[at + len(_INFIX) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDescription:
    """What is said of an entity before the registry knows it."""

    name: str
    """As it was given; compared without regard to the case of letters."""
    kind: Kind = "queue"
    parent: str | None = None
    """The topic of a subscription."""
    store: str | None = None
    """The id of the entity that holds the messages of a subscription: of its topic."""
    state: State = "creating"
    """Whether all of it is there. Whoever meets one that is being made or taken away goes on with that."""
    partitioned: bool = False
    partitions: tuple[int, ...]
    """The partitions of the namespace that it lives in, in order: all of them, or one."""
    colocated_with: str | None = None
    """The name of the entity beside which it was put."""
    settings: PartitionSettings = field(default_factory=PartitionSettings)
    """What each of its partitions is given; so the quota is that of one partition."""
    properties: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """What no partition needs to know of it."""
    unread: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    """What a newer release has written beside, handed on as it is."""

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, get_args(Kind))
        _one_of("state", self.state, get_args(State))
        if (self.kind == "subscription") != (self.parent is not None):
            raise ValueError(f"a {self.kind} with the parent {self.parent!r}: a subscription has one, and nothing else")
        if (self.store is None) != (self.parent is None) or (self.store is not None and not _ID.fullmatch(self.store)):
            raise ValueError(f"a {self.kind} with the store {self.store!r}: a subscription has the id of its topic")
        if self.parent is None:
            entity_name(self.name)
        else:
            entity_name(self.parent)
            subscription_name(self.name)
        numbers = self.partitions
        if not all(type(number) is int and 0 <= number < MOST_PARTITIONS for number in numbers):
            raise ValueError(f"partitions are numbers from 0 to {MOST_PARTITIONS - 1}, not {numbers!r}")
        if not numbers or list(numbers) != sorted(set(numbers)) or (len(numbers) > 1 and not self.partitioned):
            raise ValueError(f"partitions are one, or, if it is partitioned, several in order, not {numbers!r}")
        if self.colocated_with is not None:
            entity_name(self.colocated_with)

    @property
    def path(self) -> str:
        """By what it is known in its namespace."""
        return self.name if self.parent is None else path_of(self.parent, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRecord(EntityDescription):
    """An entity as the registry knows it."""

    id: str
    """In the names of its keys; given once and never again."""
    incarnation: str
    """Drawn by whoever created it; every call names it."""
    version: int
    """Of the settings, from 1."""
    stamp: str
    """Of this record: another one is drawn for each that replaces it."""
    created_at: int
    updated_at: int
    """When its settings changed last, as :attr:`created_at` in ms since 1970, by the server's clock."""


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(description: EntityDescription) -> str:
    """The JSON of a description, with its fields in order; ASCII, whatever is in it."""
    unread = dict(description.unread)
    beside = unread.pop("settings", {})
    known = {name: getattr(description, name) for name in _FIELDS}
    known["settings"] = {**cast("Mapping[str, Json]", beside), **asdict(description.settings)}
    return json.dumps({**unread, **known}, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def require_properties(properties: Mapping[str, Json]) -> None:
    """Refuse, before anything is sent, properties that would not come back as they are, or are too large.

    JSON has names that are text, and would make text of others. What is read is not judged again, so that an entity
    with larger properties, which a newer release has made, can still be changed and deleted.
    """
    if not isinstance(properties, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"the properties of an entity are a mapping, not {type(properties).__name__}")
    try:
        size = len(json.dumps(properties, separators=(",", ":"), allow_nan=False, default=_plain))
    except RecursionError:
        raise ValueError("the properties of an entity are nested too deeply") from None
    if size > MAXIMUM_PROPERTIES_BYTES:
        raise ValueError(f"the properties of an entity take {size} bytes; at most {MAXIMUM_PROPERTIES_BYTES} are kept")
    _require_text_names(properties)


def _require_text_names(value: object) -> None:
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[object, object]", value).items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a property of an entity is text, not {quoted(name)}")
            _require_text_names(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("Sequence[object]", value):
            _require_text_names(inner)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Json]", value))
    raise TypeError(f"a property of an entity is what JSON can hold, not {type(value).__name__}")


_FIELDS = tuple(each.name for each in fields(EntityDescription) if each.name != "unread")


# -- reading -----------------------------------------------------------------------------------------------------------

_RECORD = re.compile(
    rb"1 (?P<version>[1-9][0-9]{0,14}) (?P<id>[0-9a-z]+) (?P<incarnation>[\w-]{12}) (?P<stamp>[\w-]{12})(?:,[\w-]{12})*"
    rb" (?P<created>[0-9]{1,15}) (?P<updated>[0-9]{1,15}) (?P<description>\{.*\})",
    re.DOTALL,
)
_SHOWN = 60


def decode(record: bytes) -> EntityRecord:
    """A record as the registry keeps it; :class:`~sbredis.exceptions.DataLayoutError` for what is none."""
    layout = record.split(b" ", 1)[0]
    if layout != b"1":
        _unreadable(record, f"it is laid out in form {layout[:_SHOWN].decode(errors='replace')!r}")
    found = _RECORD.fullmatch(record)
    if not found:
        _unreadable(record, "it does not begin as a record does")
    try:
        description: Any = json.loads(found["description"], parse_constant=_no_number)
        return EntityRecord(
            **_described(description),
            id=found["id"].decode(),
            incarnation=found["incarnation"].decode(),
            version=int(found["version"]),
            stamp=found["stamp"].decode(),
            created_at=int(found["created"]),
            updated_at=int(found["updated"]),
        )
    except (ValueError, TypeError) as error:
        _unreadable(record, str(error))


@lru_cache(maxsize=4096)
def decode_again(record: bytes) -> EntityRecord:
    """The same for what is read again and again, as the subscriptions of a topic are: the same bytes are read once."""
    return decode(record)


def _described(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a description, each of its type, and what is left."""
    rest = dict(body)
    settings, unread_settings = _settings(_taken(rest, "settings", dict[str, Any]))
    described = {
        "name": _taken(rest, "name", str),
        "kind": _taken(rest, "kind", str),
        "parent": _text_or_none(rest, "parent"),
        "store": _text_or_none(rest, "store"),
        "state": _taken(rest, "state", str),
        "partitioned": _taken(rest, "partitioned", bool),
        "partitions": tuple(_taken(rest, "partitions", list[Any])),
        "colocated_with": _text_or_none(rest, "colocated_with"),
        "settings": settings,
        "properties": _taken(rest, "properties", dict[str, Any]),
    }
    return {**described, "unread": {**rest, "settings": unread_settings} if unread_settings else rest}


def _settings(given: dict[str, Any]) -> tuple[PartitionSettings, dict[str, Any]]:
    """The settings that are known, and the others. What an older release did not know yet is as it is by default."""
    known: dict[str, Any] = {}
    rest = dict(given)
    for each in fields(PartitionSettings):
        if each.name in rest:
            value = known[each.name] = rest.pop(each.name)
            if type(value) is not type(each.default) and not (each.default is None and type(value) is int):
                raise ValueError(f"its setting {each.name} is {quoted(value)}")
    return PartitionSettings(**known), rest


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
        raise ValueError(f"{what} is one of {', '.join(known)}, not {quoted(value)}")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _unreadable(record: bytes, why: str) -> NoReturn:
    raise DataLayoutError(
        f"The record {record[:_SHOWN]!r}… of an entity cannot be read: {why}. "
        "If a newer release of sbredis has written it, install that one."
    ) from None
