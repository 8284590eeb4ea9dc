"""How the properties of a queue are kept, and back: what its partitions know, what the registry keeps beside.

A property with a ``setting`` is kept in that field of the partitions' settings, all others by their name in JSON, where
those that are as by default are left out. Three are kept in ways of their own: whether duplicates are detected is
whether there is a window; whether it is partitioned, and beside which entity it lives, is known to the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sbredis.engine import PartitionSettings
from sbredis.model._properties import QueueProperties

__all__ = ["KeptQueue", "queue_created", "queue_differences", "queue_revised", "queue_values"]

_FIELDS = QueueProperties.fields()
_DETECTS, _WINDOW = "requires_duplicate_detection", "duplicate_detection_history_time_window"
_BESIDE = {_DETECTS, "enable_partitioning", "colocate_with", "availability_status"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptQueue:
    """A queue's properties as the registry keeps them."""

    settings: PartitionSettings
    properties: Mapping[str, Any]
    """Of names that this release does not know, too: they are handed on as they are."""
    partitioned: bool = False
    colocated_with: str | None = None


def queue_created(given: Mapping[str, object], settings: PartitionSettings) -> KeptQueue:
    """A new queue with these properties, and otherwise as by default; :class:`ValueError` for what is not possible.

    ``settings`` are what the properties say nothing of.
    """
    _check(given)
    values = {name: given.get(name, field.default) for name, field in _FIELDS.items()}
    if values["enable_partitioning"] and values["colocate_with"] is not None:
        raise ValueError("a partitioned queue lives beside every other entity: leave out colocate_with")
    return _kept(values, _FIELDS.keys(), KeptQueue(settings=settings, properties={}))


def queue_revised(given: Mapping[str, object], before: KeptQueue) -> KeptQueue:
    """The queue with these properties, and otherwise as it was; :class:`ValueError` for what is not possible.

    What is given as it is already is not looked at: it may be from a release with other limits.
    """
    values = queue_values(before)
    changes = {
        name: value
        for name, value in given.items()
        if not _FIELDS[name].told and not _FIELDS[name].same(value, values[name])
    }
    for name in changes:
        if _FIELDS[name].fixed:
            words = "".join(word.capitalize() for word in name.split("_"))
            raise ValueError(
                f"The value for the {words} property of an existing {QueueProperties.kind} cannot be changed: "
                f"it is {values[name]!r}"
            )
    _check(changes)
    return _kept({**values, **changes}, changes.keys(), before)


def queue_differences(given: Mapping[str, object], before: KeptQueue) -> list[str]:
    """Which of these properties are others than those of a queue that is there, of what cannot be changed."""
    values = queue_values(before)
    return [
        f"{name} is {values[name]!r}, not {value!r}"
        for name, value in given.items()
        if _FIELDS[name].fixed and not _FIELDS[name].same(value, values[name])
    ]


def queue_values(kept: KeptQueue) -> dict[str, Any]:
    """All properties of a queue, as they are shown."""
    values: dict[str, Any] = {
        _DETECTS: kept.settings.duplicate_window is not None,
        "enable_partitioning": kept.partitioned,
        "colocate_with": kept.colocated_with,
    }
    for name, field in _FIELDS.items():
        if name in values:
            continue
        stored = None if field.setting is None else getattr(kept.settings, field.setting)
        if stored is None and name not in _BESIDE:
            stored = kept.properties.get(name)
        values[name] = field.kept(field.keep(field.default) if stored is None else stored)
    return values


def _check(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if not _FIELDS[name].told:
            _FIELDS[name].check(value)


def _kept(values: Mapping[str, Any], changed: Any, before: KeptQueue) -> KeptQueue:
    """What is changed is kept anew; the rest stays as it is, to the millisecond and the byte."""
    settings: dict[str, Any] = {}
    properties = dict(before.properties)
    for name in changed:
        field = _FIELDS[name]
        if name in _BESIDE:
            continue
        properties.pop(name, None)
        if field.setting is not None and (name != _WINDOW or values[_DETECTS]):
            settings[field.setting] = field.keep(values[name])
        elif not field.same(values[name], field.default):
            properties[name] = field.keep(values[name])
    return KeptQueue(
        settings=replace(before.settings, **settings),
        properties=properties,
        partitioned=values["enable_partitioning"],
        colocated_with=values["colocate_with"],
    )
