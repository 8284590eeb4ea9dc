"""Convert the properties of entities to their stored form and back: the partitions' settings, and the registry's JSON.

All kinds of entity work the same way. A property with a ``setting`` is kept in that field of the partitions' settings.
All other properties are kept by name in JSON, which leaves out defaults. If such a property has a ``flag``, that field
of the settings is true if the property is set. Four properties have special rules. An entity
detects duplicates if its settings have a window. The registry has separate fields for whether an entity is partitioned,
for its partitions, and for the entity that it is colocated with.
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
_PARTITIONED, _PARTITIONS, _NEIGHBOUR = "enable_partitioning", "partition_count", "colocate_with"
_SPECIAL = {_DETECTS, _PARTITIONED, _PARTITIONS, _NEIGHBOUR, "availability_status"}

Kind = type[Described]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntity:
    """The properties of an entity as the registry keeps them."""

    settings: PartitionSettings
    properties: Mapping[str, Any]
    """The properties that the registry keeps by name. Names that this release does not know are passed on unchanged."""
    partitioned: bool = False
    partitions: int | None = None
    """The number of partitions of a partitioned entity; ``None`` if it is not known yet."""
    colocated_with: str | None = None


def entity_created(kind: Kind, given: Mapping[str, object], settings: PartitionSettings) -> StoredEntity:
    """Return a new entity with these properties, and defaults for all other properties. Raises :class:`ValueError` if
    invalid.

    ``settings`` has the values for all settings without a property.
    """
    _check(kind, given)
    values = {name: given.get(name, field.default) for name, field in kind.fields().items()}
    if values.get(_PARTITIONS) is not None and not values[_PARTITIONED]:
        raise ValueError(
            f"{_PARTITIONS} is for a partitioned {kind.kind.lower()}: give {_PARTITIONED}=True too, or leave it out"
        )
    return _kept(kind, values, kind.fields(), StoredEntity(settings=settings, properties={}))


def entity_revised(kind: Kind, given: Mapping[str, object], before: StoredEntity) -> StoredEntity:
    """Return the entity with these properties; all other properties stay unchanged. Raises :class:`ValueError` if
    invalid.

    A given value that equals the current value is not checked, because the current value may come from a release with
    other limits.
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
    """Return, as texts, the given properties that cannot be changed and differ from the properties of an existing
    entity.
    """
    values = entity_values(kind, before)
    fields = kind.fields()
    return [
        f"{name} is {quoted(values[name])}, not {quoted(value)}"
        for name, value in given.items()
        if fields[name].fixed and not fields[name].same(value, values[name])
    ]


def entity_values(kind: Kind, kept: StoredEntity) -> dict[str, Any]:
    """Return all properties of an entity, as users see them."""
    apart: dict[str, Any] = {
        _DETECTS: kept.settings.duplicate_window is not None,
        _PARTITIONED: kept.partitioned,
        _PARTITIONS: kept.partitions,
        _NEIGHBOUR: kept.colocated_with,
    }
    values: dict[str, Any] = {}
    for name, field in kind.fields().items():
        if name in apart:
            values[name] = apart[name]
            continue
        stored = None if field.setting is None else getattr(kept.settings, field.setting)
        if stored is None and name not in _SPECIAL:
            stored = kept.properties.get(name)
        values[name] = field.kept(field.keep(field.default) if stored is None else stored)
    return values


def _check(kind: Kind, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        field = kind.fields()[name]
        if not field.read_only:
            field.check(value)


def _kept(kind: Kind, values: Mapping[str, Any], changed: Iterable[str], before: StoredEntity) -> StoredEntity:
    """Return the stored form with the changed properties.

    All other properties stay the same, to the millisecond and the byte.
    """
    settings: dict[str, Any] = {}
    properties = dict(before.properties)
    for name in changed:
        field = kind.fields()[name]
        if name in _SPECIAL:
            continue
        properties.pop(name, None)
        if field.flag is not None:
            settings[field.flag] = not field.same(values[name], field.default)
        if field.setting is not None and (name != _WINDOW or values[_DETECTS]):
            settings[field.setting] = field.keep(values[name])
        elif not field.same(values[name], field.default):
            properties[name] = field.keep(values[name])
    return StoredEntity(
        settings=replace(before.settings, **settings),
        properties=properties,
        partitioned=values.get(_PARTITIONED, before.partitioned),
        partitions=values.get(_PARTITIONS, before.partitions),
        colocated_with=values.get(_NEIGHBOUR, before.colocated_with),
    )
