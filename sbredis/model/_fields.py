"""The kinds of fields for the properties of entities. Each kind reads the given values and checks their limits.

A field is a descriptor in the class of an entity's properties. It is declared once, with its default, its limits,
whether it can change, and where it is kept. Assigning a value converts it at once. A value that cannot be converted is
refused with a :class:`TypeError`, and malformed text with a :class:`ValueError`. Limits are checked when the value is
used, before anything is sent.

The string after a field in the class explains its meaning, its default and its limits. That string is also the field's
``__doc__``.
"""

from __future__ import annotations

import ast
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from datetime import timedelta
from enum import Enum
from functools import cache
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from sbredis._nearest import unexpected_keyword
from sbredis._quoting import quoted
from sbredis.engine import entity_name, name_key
from sbredis.model._durations import UNLIMITED, duration, from_milliseconds, to_milliseconds

__all__ = [
    "Choice",
    "Described",
    "Duration",
    "Field",
    "Flag",
    "ForwardingTarget",
    "ListOf",
    "Neighbour",
    "Text",
    "Whole",
    "property_docs",
]

_ABSOLUTE = re.compile(r"(?i:sb|https?|amqps?)://[^/?#]*/?(?P<path>[^?#]*?)/?")
"""A URL as Azure's libraries give and take it: ``sb://shop.servicebus.windows.net/orders``."""

T = TypeVar("T")
G = TypeVar("G")
E = TypeVar("E", bound=Enum)


class Described:  # noqa: PLW1641 -- it is mutable, so it has no hash
    """The name of an entity, and the properties that were given. All other properties read as their defaults."""

    __slots__ = ("_given", "_name", "_read_as", "_unassigned")
    _fields: ClassVar[Mapping[str, Field[Any, Any]]] = {}
    kind: ClassVar[str] = "Entity"

    def __init__(self, name: str, given: Mapping[str, object]) -> None:
        self.name = name
        self._read_as: str | None = None
        """The name under which the properties were read; ``None`` if the application made them."""
        self._given: dict[str, Any] = {}
        self._unassigned: dict[str, list[Any]] = {}
        for field_name, value in given.items():
            if field_name not in self._fields:
                raise unexpected_keyword(f"{type(self).__name__}.__init__", field_name, self._fields)
            if value is not None:
                setattr(self, field_name, value)

    def __init_subclass__(cls) -> None:
        fields: dict[str, Field[Any, Any]] = {}
        for parent in cls.__mro__:
            fields |= {name: field for name, field in vars(parent).items() if isinstance(field, Field)}
        for name, field in fields.items():
            if name not in vars(cls):
                setattr(cls, name, field.inherited_by(cls))
        cls._fields = {name: vars(cls)[name] for name in fields}

    @property
    def name(self) -> str:
        """The name of the entity, as it was given when the entity was created.

        You can assign it, for instance to create another entity with the same properties. An update cannot rename an
        entity: it fails if the properties were read under another name.
        """
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"name must be str, not {type(value).__name__}")
        self._name = value

    @property
    def read_as(self) -> str | None:
        """The name under which the properties were read, if :attr:`name` has changed since; otherwise ``None``."""
        before = self._read_as
        return before if before is not None and name_key(before) != name_key(self._name) else None

    @classmethod
    def fields(cls) -> Mapping[str, Field[Any, Any]]:
        """Return all properties except the name, with their fields."""
        return cls._fields

    @classmethod
    def shown(cls, name: str, values: Mapping[str, object]) -> Self:
        """Make the properties from the registry's values, which have the right types. Limits are not checked."""
        found = cls.__new__(cls)
        Described.__init__(found, name, {})  # the constructor of the subclass takes other arguments
        found._given.update(values)
        found._read_as = name
        return found

    @property
    def given(self) -> Mapping[str, object]:
        """Return the converted values of the properties that were given or assigned. ``None`` means the default."""
        begun = {name: value for name, value in self._unassigned.items() if value}
        return {name: self._fields[name].default if value is None else value for name, value in self._given.items()} | {
            name: value for name, value in begun.items() if self._given.get(name) is None
        }

    def keys(self) -> list[str]:
        """Return the names of all properties, so that ``dict(properties)`` works."""
        return ["name", *self._fields]

    def __getitem__(self, name: str) -> Any:
        if name != "name" and name not in self._fields:
            raise KeyError(name)
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self:
            raise KeyError(name)
        setattr(self, name, value)

    def __contains__(self, name: object) -> bool:
        return name == "name" or name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def values(self) -> list[Any]:
        """Return the values of all properties, in the order of their names."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Any]]:
        """Return the names and values of all properties."""
        return [(name, self[name]) for name in self]

    def get(self, key: str, default: Any = None) -> Any:
        """Return a property by its name; ``default`` if there is no property of that name."""
        return getattr(self, key) if key in self else default

    def _assign(self, given: tuple[Any, ...], named: Mapping[str, object]) -> None:
        """Assign several properties, as ``update`` of a dictionary does. Subclasses have an ``update`` of their own."""
        for name, value in dict(*given, **named).items():
            self[name] = value

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, type(self)) else NotImplemented

    def __copy__(self) -> Self:
        found = self.shown(self._name, {name: copy(value) for name, value in self.given.items()})
        found._read_as = self._read_as
        return found

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_brief(value)}" for name, value in self.items())
        return f"{type(self).__name__}({shown})"


_values_of: Callable[[Described], dict[str, Any]] = attrgetter("_given")
"""Return the given and assigned values of all fields of an object, by name."""
_begun_lists_of: Callable[[Described], dict[str, list[Any]]] = attrgetter("_unassigned")
"""Return the lists of an object that were read before they were given, by name."""


class Field(ABC, Generic[T, G]):
    """One property of type ``T``. A value of type ``G`` can be assigned to it, or ``None`` for the default."""

    name: str
    owner: type[Described]
    """The class that has the property."""
    declared_in: type
    """The class that declares the property: the owner or a parent class."""
    least: T | None = None
    most: T | None = None

    def __init__(
        self,
        default: T,
        *,
        setting: str | None = None,
        flag: str | None = None,
        fixed: bool = False,
        read_only: bool = False,
    ) -> None:
        """``setting`` is the name of the field in the partitions' settings, if the partitions need the property.

        ``flag`` is the name of a field there that is true if the property differs from its default, if the partitions
        need to know only this. ``fixed`` means that the property cannot change; ``read_only`` means that it cannot be
        set at all.
        """
        self.default = default
        self.setting = setting
        self.flag = flag
        self.fixed = fixed
        self.read_only = read_only

    def __set_name__(self, owner: type[Described], name: str) -> None:
        self.owner, self.declared_in, self.name = owner, owner, name

    def inherited_by(self, owner: type[Described]) -> Self:
        """Return the same property for a subclass of the class that declares it."""
        mine = copy(self)
        mine.owner = owner
        vars(mine).pop("__doc__", None)
        return mine

    @overload
    def __get__(self, holder: None, _: type) -> Self: ...
    @overload
    def __get__(self, holder: Described, _: type) -> T: ...
    def __get__(self, holder: Described | None, _: type) -> Self | T:
        if holder is None:
            return self._with_docs()
        value = _values_of(holder).get(self.name)
        return self.default if value is None else cast("T", value)

    def __set__(self, holder: Described, given: G | None) -> None:
        value = None if given is None else self.read(given)
        _values_of(holder)[self.name] = value

    @abstractmethod
    def read(self, given: G) -> T:
        """Convert an assigned value, or refuse it."""

    def check(self, value: T) -> None:
        """Refuse a value that is beyond the limits."""

    def keep(self, value: T) -> Any:
        """Return the stored form of a value, for JSON or for the settings of the partitions."""
        return value

    def kept(self, stored: Any) -> T:
        """Return the value for its stored form."""
        return cast("T", stored)

    def same(self, one: T, other: T) -> bool:
        """Return whether two values mean the same."""
        return one == other

    def _with_docs(self) -> Self:
        """Return the field itself, after setting the ``__doc__`` that ``help()`` and other tools read."""
        if "__doc__" not in vars(self):
            self.__doc__ = property_docs(self.declared_in).get(self.name)
        return self

    def _wrong_type(self, given: object, what: str) -> TypeError:
        return TypeError(f"{self.name} must be {what}, not {type(given).__name__}")


class Flag(Field[bool, bool]):
    """A property that is true or false."""

    def read(self, given: bool) -> bool:
        if type(given) is not bool:
            raise self._wrong_type(given, "True or False")
        return given


class Whole(Field[int, int]):
    """A whole number within limits, stored as a multiple of ``unit``."""

    def __init__(self, default: int, *, least: int, most: int, unit: int = 1, setting: str | None = None) -> None:
        super().__init__(default, setting=setting)
        self.least, self.most, self.unit = least, most, unit

    def read(self, given: int) -> int:
        return _whole(self, given)

    def check(self, value: int) -> None:
        _check_limits(self, value)

    def keep(self, value: int) -> int:
        return value * self.unit

    def kept(self, stored: int) -> int:
        return -(-stored // self.unit)


class WholeOrNone(Field[int | None, int]):
    """A whole number within limits, or ``None``."""

    def __init__(self, *, least: int, most: int, fixed: bool = False) -> None:
        super().__init__(None, fixed=fixed)
        self.least, self.most = least, most

    def read(self, given: int) -> int:
        return _whole(self, given)

    def check(self, value: int | None) -> None:
        if value is not None:
            _check_limits(self, value)


def _whole(field: Whole | WholeOrNone, given: int) -> int:
    if type(given) is not int:
        raise TypeError(f"{field.name} must be a whole number, not {type(given).__name__}")
    return given


def _check_limits(field: Whole | WholeOrNone, value: int) -> None:
    assert field.least is not None  # the constructor sets both limits
    assert field.most is not None
    if not field.least <= value <= field.most:
        raise ValueError(f"{field.name} must be from {field.least} to {field.most}, not {quoted(value)}")


class Duration(Field[timedelta, timedelta | str]):
    """A duration within limits. Without ``most`` there is no upper limit. ``longest`` is the error text for a longer
    duration.
    """

    def __init__(
        self,
        default: timedelta,
        *,
        least: timedelta,
        most: timedelta = UNLIMITED,
        longest: str | None = None,
        setting: str | None = None,
    ) -> None:
        super().__init__(default, setting=setting)
        self.least, self.most, self.longest = least, most, longest

    def read(self, given: timedelta | str) -> timedelta:
        return duration(given, self.name)

    def check(self, value: timedelta) -> None:
        assert self.least is not None  # the constructor sets both limits
        assert self.most is not None
        if value < self.least:
            raise ValueError(f"{self.name} must be {self.least} or longer, not {value}")
        if value > self.most:
            raise ValueError(self.longest or f"{self.name} must be {self.most} or shorter, not {value}")

    def keep(self, value: timedelta) -> int:
        return to_milliseconds(value)

    def kept(self, stored: int) -> timedelta:
        return from_milliseconds(stored)


class Text(Field[str | None, str]):
    """Text of limited length, or ``None``."""

    def __init__(self, *, longest: int, flag: str | None = None, fixed: bool = False) -> None:
        super().__init__(None, flag=flag, fixed=fixed)
        self.longest = longest

    def read(self, given: str) -> str | None:
        if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise self._wrong_type(given, "str")
        return given

    def check(self, value: str | None) -> None:
        if value is not None and len(value) > self.longest:
            raise ValueError(f"{self.name} has {len(value)} characters; at most {self.longest} are allowed")


class Neighbour(Text):
    """The name of another entity, compared without regard to case. An empty name means no entity."""

    def __init__(self, *, flag: str | None = None, fixed: bool = False) -> None:
        super().__init__(longest=260, flag=flag, fixed=fixed)

    def read(self, given: str) -> str | None:
        return super().read(given) or None

    def check(self, value: str | None) -> None:
        super().check(value)
        try:
            if value is not None:
                entity_name(value)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def same(self, one: str | None, other: str | None) -> bool:
        return one == other if one is None or other is None else name_key(one) == name_key(other)


class ForwardingTarget(Neighbour):
    """The name of the queue or topic to which messages are forwarded. An absolute URL is reduced to its path, which is
    that name.
    """

    def read(self, given: str) -> str | None:
        named = super().read(given)
        url = None if named is None else _ABSOLUTE.fullmatch(named)
        if url is None:
            return named
        if not url["path"]:
            raise ValueError(
                f"{self.name}: the URL {quoted(named)} names no entity: add the queue or topic as its path"
            )
        return url["path"]

    def check(self, value: str | None) -> None:
        key = "" if value is None else name_key(value)
        if "/subscriptions/" in key:
            raise ValueError(
                f"{self.name}: {quoted(value)} is a subscription, and messages cannot be forwarded to a subscription. "
                "Name a queue or a topic."
            )
        if key.endswith("$deadletterqueue"):
            raise ValueError(
                f"{self.name}: {quoted(value)} is a dead-letter queue, and messages cannot be forwarded to a "
                "dead-letter queue. Name a queue or a topic."
            )
        super().check(value)


class Choice(Field[E, E | str]):
    """A member of an enumeration, given as the member or as its value. ``settable`` maps a kind of entity to the
    members that can be set for it.
    """

    def __init__(
        self,
        default: E,
        *,
        settable: Mapping[str, Sequence[E]] = MappingProxyType({}),
        setting: str | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(default, setting=setting, read_only=read_only)
        self._settable = settable

    @property
    def settable(self) -> Sequence[E]:
        """The members that can be set for the kind of entity that has the property."""
        return self._settable.get(self.owner.kind, ())

    def read(self, given: E | str) -> E:
        kind = type(self.default)
        try:
            return kind(given)
        except ValueError:
            raise ValueError(
                f"{self.name} must be one of {_values(self.settable or kind)}, not {quoted(given)}"
            ) from None

    def check(self, value: E) -> None:
        if value not in self.settable:
            raise ValueError(f"{self.name} can be set to {_values(self.settable)}, not to {value.value!r}")

    def keep(self, value: E) -> str:
        return str(value.value)

    def kept(self, stored: str) -> E:
        return type(self.default)(stored)


class ListOf(Field[list[T], Sequence[T]]):
    """A list. Appending to it counts as assigning it."""

    def __init__(self, read: Callable[[object], T], keep: Callable[[T], Any]) -> None:
        super().__init__([])
        self._read_one, self._keep_one = read, keep

    @overload
    def __get__(self, holder: None, _: type) -> Self: ...
    @overload
    def __get__(self, holder: Described, _: type) -> list[T]: ...
    def __get__(self, holder: Described | None, _: type) -> Self | list[T]:
        if holder is None:
            return self._with_docs()
        value = _values_of(holder).get(self.name)
        if value is None:
            value = _begun_lists_of(holder).setdefault(self.name, [])
        return cast("list[T]", value)

    def check(self, value: list[T]) -> None:
        self.read(value)  # items that were appended to the list have not been checked yet

    def read(self, given: Sequence[T]) -> list[T]:
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._wrong_type(given, "a list")
        return [self._read_one(each) for each in given]

    def keep(self, value: list[T]) -> list[Any]:
        return [self._keep_one(self._read_one(each)) for each in value]

    def kept(self, stored: list[Any]) -> list[T]:
        return [self._read_one(each) for each in stored]


def _brief(value: object) -> str:
    return "datetime.timedelta.max" if value == UNLIMITED else repr(value)


def _values(choices: Sequence[Enum] | type[Enum]) -> str:
    return ", ".join(str(each.value) for each in choices)


# -- the documentation of a class's attributes -------------------------------------------------------------------------

# The strings after assignments are documentation. Editors and documentation tools read them in the source, but Python
# itself drops them. For help(), this module reads them from the source when they are needed.


@cache
def property_docs(owner: type) -> Mapping[str, str]:
    """Return the documentation of a class's attributes by name, from its source; empty if there is no source."""
    from textwrap import dedent

    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return {}
    (made,) = ast.parse(dedent(source)).body
    assert isinstance(made, ast.ClassDef)  # the source of a class always parses to a class definition
    return {
        name.id: inspect.cleandoc(text)
        for assignment, after in pairwise(made.body)
        for name, text in _assigned(assignment, after)
    }


def _assigned(assignment: ast.stmt, after: ast.stmt) -> list[tuple[ast.Name, str]]:
    match assignment, after:
        case ast.Assign(targets=[ast.Name() as name]), ast.Expr(value=ast.Constant(value=str(text))):
            return [(name, text)]
        case _:
            return []
