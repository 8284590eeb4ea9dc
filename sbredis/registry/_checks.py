"""Checks of the arguments of operations on entities. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from sbredis._quoting import quoted
from sbredis.engine import PartitionSettings, partition_for_name
from sbredis.registry._entity import EntityRecord, Kind

__all__ = ["check_kind", "kinds", "place"]


def kinds(kind: Kind | Collection[Kind]) -> Collection[Kind]:
    """Return the kinds that a caller accepts, or raise for an unknown kind."""
    found = (kind,) if isinstance(kind, str) else kind
    if unknown := set(found) - set(get_args(Kind)):
        raise ValueError(f"kind must be one or several of {', '.join(get_args(Kind))}, not {quoted(unknown)}")
    return found


def check_kind(name: str, kind: Kind, settings: PartitionSettings) -> None:
    """Raise for settings that a queue or topic cannot have, and for a kind that is neither queue nor topic."""
    if kind not in {"queue", "topic"}:
        raise ValueError(f"{quoted(name)} must be a queue or a topic, not {quoted(kind)}")
    if settings.shared:
        raise ValueError(f"the {kind} {quoted(name)} stores its messages itself: its settings cannot be shared")
    if settings.topic != (kind == "topic"):
        raise ValueError(
            f"the settings of the {kind} {quoted(name)} are settings for a {'topic' if settings.topic else 'queue'}"
        )


def place(name: str, beside: EntityRecord | None, partitions: int) -> int:
    """Return the only partition of an entity that is not partitioned, of a namespace with this number of partitions."""
    if beside is None:
        return partition_for_name(name, partitions)
    if beside.partitioned:
        raise ValueError(
            f"{quoted(name)} cannot be colocated with '{beside.path}', which is partitioned and therefore in all "
            "partitions"
        )
    return beside.partitions[0]
