"""How the properties of entities are kept, and back: what their partitions know, what the registry keeps beside.

Of every kind of entity in the same way. A property with a ``setting`` is kept in that field of the partitions'
settings, all others by their name in JSON, where those that are as by default are left out. Three are kept in ways of
their own: whether duplicates are detected is whether there is a window; whether an entity is partitioned, and beside
which other one it lives, is known to the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sbredis._quoting import quoted
from sbredis.engine import PartitionSettings
from sbredis.model._fields import Described

__all__ = ["StoredEntity", "entity_created", "entity_differences", "entity_revised", "entity_values"]

_DETECTS, _WINDOW = "requires_duplicate_detection", "duplicate_detection_history_time_window"
_PARTITIONED, _NEIGHBOUR = "enable_partitioning", "colocate_with"
_BESIDE = {_DETECTS, _PARTITIONED, _NEIGHBOUR, "availability_status"}

Kind = type[Described]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntity:
    """An entity's properties as the registry keeps them."""

    settings: PartitionSettings
    properties: Mapping[str, Any]
    """Of names that this release does not know, too: they are handed on as they are."""
    partitioned: bool = False
    colocated_with: str | None = None


def entity_created(kind: Kind, given: Mapping[str, object], settings: PartitionSettings) -> StoredEntity:
    """A new entity with these properties, and otherwise as by default; :class:`ValueError` for what is not possible.

    ``settings`` are what the properties say nothing of.
    """
    _check(kind, given)
    values = {name: given.get(name, field.default) for name, field in kind.fields().items()}
    if values.get(_PARTITIONED) and values.get(_NEIGHBOUR) is not None:
        raise ValueError(f"a partitioned {kind.kind.lower()} lives beside every other entity: leave out colocate_with")
    return _kept(kind, values, kind.fields(), StoredEntity(settings=settings, properties={}))


def entity_revised(kind: Kind, given: Mapping[str, object], before: StoredEntity) -> StoredEntity:
    """The entity with these properties, and otherwise as it was; :class:`ValueError` for what is not possible.

    What is given as it is already is not looked at: it may be from a release with other limits.
    """
    fields = kind.fields()
    values = entity_values(kind, before)
    changes = {
        name: value
        for name, value in given.items()
        if not fields[name].read_only and not fields[name].same(value, values[name])
    }
    for name in changes:
        if fields[name].fixed:
            words = "".join(word.capitalize() for word in name.split("_"))
            raise ValueError(
                f"The value for the {words} property of an existing {kind.kind} cannot be changed: "
                f"it is {quoted(values[name])}"
            )
    _check(kind, changes)
    return _kept(kind, {**values, **changes}, changes, before)


def entity_differences(kind: Kind, given: Mapping[str, object], before: StoredEntity) -> list[str]:
    """Which of these properties are others than those of an entity that is there, of what cannot be changed."""
    values = entity_values(kind, before)
    fields = kind.fields()
    return [
        f"{name} is {quoted(values[name])}, not {quoted(value)}"
        for name, value in given.items()
        if fields[name].fixed and not fields[name].same(value, values[name])
    ]


def entity_values(kind: Kind, kept: StoredEntity) -> dict[str, Any]:
    """All properties of an entity, as they are shown."""
    apart: dict[str, Any] = {
        _DETECTS: kept.settings.duplicate_window is not None,
        _PARTITIONED: kept.partitioned,
        _NEIGHBOUR: kept.colocated_with,
    }
    values: dict[str, Any] = {}
    for name, field in kind.fields().items():
        if name in apart:
            values[name] = apart[name]
            continue
        stored = None if field.setting is None else getattr(kept.settings, field.setting)
        if stored is None and name not in _BESIDE:
            stored = kept.properties.get(name)
        values[name] = field.kept(field.keep(field.default) if stored is None else stored)
    return values


def _check(kind: Kind, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        field = kind.fields()[name]
        if not field.read_only:
            field.check(value)


def _kept(kind: Kind, values: Mapping[str, Any], changed: Iterable[str], before: StoredEntity) -> StoredEntity:
    """What is changed is kept anew; the rest stays as it is, to the millisecond and the byte."""
    settings: dict[str, Any] = {}
    properties = dict(before.properties)
    for name in changed:
        field = kind.fields()[name]
        if name in _BESIDE:
            continue
        properties.pop(name, None)
        if field.setting is not None and (name != _WINDOW or values[_DETECTS]):
            settings[field.setting] = field.keep(values[name])
        elif not field.same(values[name], field.default):
            properties[name] = field.keep(values[name])
    return StoredEntity(
        settings=replace(before.settings, **settings),
        properties=properties,
        partitioned=values.get(_PARTITIONED, before.partitioned),
        colocated_with=values.get(_NEIGHBOUR, before.colocated_with),
    )
