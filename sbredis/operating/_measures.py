"""The measures of a namespace, in the text format of Prometheus and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sbredis._prometheus_text import family, labels, text_of

if TYPE_CHECKING:
    from sbredis.operating._facts import EntityFacts

__all__ = ["STATES", "Measures", "json_of", "prometheus_of"]

STATES = ("active", "locked", "delayed", "deferred", "scheduled", "transfer", "dead_letter", "transfer_dead_letter")
"""The states by which messages are counted."""
_BACKLOG = ("active", "locked", "delayed")
"""The messages that handlers have still to handle, or are handling."""
_TEXTS = {
    "messages": "Messages, by state.",
    "bytes": "The size of all messages.",
    "oldest_message_age_seconds": "The age of the oldest message that can be received; 0 if there is none.",
    "waiting_receivers": "Receivers that wait for messages.",
    "sessions": "Sessions that wait for a receiver, and sessions that are locked.",
    "partitions": "Partitions, by whether they answer.",
}


@dataclass(frozen=True, slots=True)
class Measures:
    """The facts of a namespace, read in one round."""

    namespace: str
    entities: tuple[EntityFacts, ...]
    maintained: bool
    at: datetime
    """The time of the round, by the clock of this machine."""
    seconds: float
    """How long the round took."""
    unreadable_slots: int = 0
    """The number of slots of the namespace whose entities are missing, because the registry could not be read there."""


def json_of(measures: Measures) -> dict[str, dict[str, Any]]:
    """Return the measures of each entity, by its path."""
    return {entity.path: _numbers(entity, measures.at) for entity in measures.entities}


def _numbers(entity: EntityFacts, at: datetime) -> dict[str, Any]:
    oldest = [part.oldest_enqueued_at_utc for part in entity.partitions if part.oldest_enqueued_at_utc is not None]
    counts = {state: entity.total(f"{state}_message_count") for state in STATES}
    return {
        "kind": entity.kind,
        **counts,
        "backlog": sum(counts[state] for state in _BACKLOG),
        "bytes": entity.total("size_in_bytes"),
        "oldest_age_seconds": round(max(0.0, (at - min(oldest)).total_seconds()), 3) if oldest else 0.0,
        "waiting_receivers": entity.total("waiting_receiver_count"),
        "waiting_sessions": entity.total("waiting_session_count"),
        "locked_sessions": entity.total("locked_session_count"),
        "partitions": len(entity.partitions),
        "available_partitions": sum(part.available for part in entity.partitions),
    }


def prometheus_of(measures: Measures | None, *, up: bool) -> str:
    """Return the text for Prometheus. ``up`` says whether the last round succeeded. If not, it has no old measures."""
    lines = list(_plain("up", "Whether the servers answered in the last round.", int(up)))
    if measures is not None and up:
        lines += _plain("round_seconds", "How long the last round of reading took.", round(measures.seconds, 6))
        lines += _plain("maintenance", "Whether a client does maintenance.", int(measures.maintained))
        unreadable = "Slots of the namespace whose entities are missing, because the registry could not be read there."
        lines += _plain("unreadable_slots", unreadable, measures.unreadable_slots)
        lines += _of_entities(measures)
    return text_of(lines)


def _plain(name: str, text: str, value: float) -> Iterator[str]:
    return family(name, "gauge", text, [("", value)])


def _of_entities(measures: Measures) -> Iterator[str]:
    rows = [
        (labels(namespace=measures.namespace, entity=path, kind=found["kind"]), found)
        for path, found in sorted(json_of(measures).items())
    ]
    samples: dict[str, list[tuple[str, float]]] = {
        "messages": [(f'{label},state="{state}"', found[state]) for label, found in rows for state in STATES],
        "bytes": [(label, found["bytes"]) for label, found in rows],
        "oldest_message_age_seconds": [(label, found["oldest_age_seconds"]) for label, found in rows],
        "waiting_receivers": [(label, found["waiting_receivers"]) for label, found in rows],
        "sessions": [
            (f'{label},state="{state}"', found[f"{state}_sessions"])
            for label, found in rows
            for state in ("waiting", "locked")
        ],
        "partitions": [
            (f'{label},available="{answer}"', count)
            for label, found in rows
            for answer, count in (
                ("yes", found["available_partitions"]),
                ("no", found["partitions"] - found["available_partitions"]),
            )
        ],
    }
    for name, values in samples.items():
        yield from family(name, "gauge", _TEXTS[name], values)
