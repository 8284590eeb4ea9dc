"""The reservation of an entity in the registry's record: reading it, and the errors for all that it forbids. Pure.

A reservation is in two places of the record, which change together: in the property ``reservation``, which says for
whom the entity is reserved, and in the setting ``reserved``, which the partitions know. The record is replaced only by
clients that have seen it last, so of two clients that reserve an entity one wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast, get_args

from sbredis._quoting import quoted
from sbredis.exceptions import DataLayoutError, EntityReservedError, Outcome
from sbredis.registry._entity import EntityRecord, Json

__all__ = [
    "RESERVATION_PROPERTY",
    "STALE_AFTER",
    "KeptReservation",
    "ReservationState",
    "require_unreserved",
    "reservation_of",
    "reserved_error",
    "say_reserved",
    "with_reservation",
]

ReservationState = Literal["reserving", "reserved", "releasing"]
"""``reserving`` until no receiver holds a message, then ``reserved``. ``releasing`` until no message is pinned."""

RESERVATION_PROPERTY = "reservation"

STALE_AFTER = 900.0
"""A consumer that has made no call for this number of seconds counts as dead, unless the user says another number."""


class KeptReservation(NamedTuple):
    """A reservation as the registry keeps it."""

    consumer: str
    """The name of the consumer. Each run of the consumer has the same name."""
    fence: int
    """A number that is higher than that of all earlier reservations of the entity, and of all earlier runs."""
    owner: str
    """The run of the consumer, as it has described itself."""
    since: int
    """The time of the reservation in ms since 1970, by the clock of the client that reserved the entity."""
    state: ReservationState


def reservation_of(record: EntityRecord) -> KeptReservation | None:
    """Return the reservation of an entity, if it is reserved."""
    kept = record.properties.get(RESERVATION_PROPERTY)
    if kept is None:
        return None
    fields = dict(cast("Mapping[str, Any]", kept)) if isinstance(kept, Mapping) else {}
    known = {name: fields.get(name) for name in ("consumer", "fence", "owner", "since", "state")}
    kinds = {"consumer": str, "fence": int, "owner": str, "since": int, "state": str}
    if any(type(known[name]) is not kind for name, kind in kinds.items()) or known["state"] not in get_args(
        ReservationState
    ):
        raise DataLayoutError(
            f"The reservation of '{record.path}' cannot be read: {quoted(kept)}. If a newer release of sbredis has "
            "written it, install that release."
        )
    return KeptReservation(**cast("dict[str, Any]", known))


def with_reservation(properties: Mapping[str, Json], reservation: KeptReservation | None) -> dict[str, Json]:
    """Return the properties of an entity with this reservation, or without any."""
    changed = dict(properties)
    changed.pop(RESERVATION_PROPERTY, None)
    if reservation is not None:
        changed[RESERVATION_PROPERTY] = reservation._asdict()
    return changed


def require_unreserved(record: EntityRecord, doing: str) -> None:
    """Raise :class:`~sbredis.exceptions.EntityReservedError` if the entity is reserved; ``doing`` says what is refused,
    as a sentence without its full stop.
    """
    reservation = reservation_of(record)
    if reservation is not None:
        raise reserved_error(record.path, reservation, doing)


def reserved_error(
    path: str, reservation: KeptReservation, doing: str, last_seen: datetime | None = None
) -> EntityReservedError:
    """Return the error that an entity is reserved, and therefore ``doing`` is refused."""
    error = EntityReservedError(outcome=Outcome.REFUSED)
    say_reserved(error, path, reservation, doing, last_seen)
    return error


def say_reserved(
    error: EntityReservedError,
    path: str,
    reservation: KeptReservation,
    doing: str,
    last_seen: datetime | None = None,
) -> None:
    """Let an error say for whom the entity is reserved, and how to end the reservation."""
    import shlex

    error.consumer, error.owner = reservation.consumer, reservation.owner
    error.since, error.last_seen = datetime.fromtimestamp(reservation.since / 1000, UTC), last_seen
    by = f" by {quoted(reservation.owner, 200)}" if reservation.owner else ""
    seen = "" if last_seen is None else f" and was last seen at {_shown(last_seen)}"
    error.message = (
        f"'{path}' is reserved for the consumer {quoted(reservation.consumer)}{by} since {_shown(error.since)}{seen}: "
        f"{doing}. To end the reservation, run: python -m sbredis.spark release {shlex.quote(path)}. An administration "
        "client does the same with release_reservation."
    )


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
