"""Decide how an entity is reserved for a consumer, and released. Pure.

Theory
------

A consumer that reads in bulk needs an entity for itself: no other receiver may take a message, and no lock and no delay
may end after the consumer has read past its message. The registry's record of the entity says who has it::

    (open) ── claim ──► reserving ── nothing is locked, delayed or frozen ──► reserved
       ▲                  │   ▲ claim again: another run of the consumer          │  ▲ │ claim again
       │                  │   └──┘                                                │  └─┘
       ├── gave up ◄──────┘                                                       │
       │                                    begin to release                      │
       └── every partition unpinned ◄────────── releasing ◄───────────────────────┘

In all three states no receiver gets a message. Each arrow is one replacement of the record, which only the client makes
that has seen the record last. So two consumers never both have the entity. Every claim and every release has a new
*fence*: the version that the record gets by it, which is higher than all versions before. The partitions refuse the
calls of a lower fence, so a run that was replaced changes nothing any more.

A client may stop after each step. What it leaves behind is one of these states, and each is complete in itself: another
run of the same consumer claims the entity again, and a release can begin from each of them. A release that has begun is
finished by the next client that reserves or releases the entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from sbredis._quoting import quoted
from sbredis.engine import Counts, PartitionSettings, Pin
from sbredis.exceptions import Outcome, ReservationLostError, ReservationTimeoutError, ServiceBusError
from sbredis.registry import EntityRecord, Json, KeptReservation, reservation_of, reserved_error, with_reservation

__all__ = [
    "Awaited",
    "RecordChange",
    "awaited",
    "begin_release",
    "claim",
    "confirm",
    "end_release",
    "give_up",
    "is_releasing",
    "is_stale",
    "last_seen",
    "lost",
    "require_consumer",
    "require_own",
    "require_reservable",
    "timed_out",
]

_LONGEST = 200
_MOST_NAMED = 8
"""The largest number of partitions that an error names."""


class RecordChange(NamedTuple):
    """A replacement of the record of an entity."""

    settings: PartitionSettings
    properties: dict[str, Json]
    fence: int
    """The fence of the reservation after the change, or before it if the change ends the reservation."""


class Awaited(NamedTuple):
    """The messages for which a reservation waits, because they could come back behind the consumer's position."""

    locked: int
    delayed: int
    frozen: int
    """The messages that are on their way to another entity."""
    partitions: tuple[int, ...]
    """The partitions that have such messages."""
    unreachable: tuple[int, ...]
    """The partitions that could not be asked."""
    until: datetime | None
    """Before this time no lock and no delay ends by itself, if it is known."""

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.partitions and not self.unreachable


# -- the steps ---------------------------------------------------------------------------------------------------------


def require_consumer(consumer: str) -> None:
    """Raise unless this can be the name of a consumer."""
    if not isinstance(consumer, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"consumer must be text, not {type(consumer).__name__}")
    if not consumer.strip() or len(consumer) > _LONGEST or not consumer.isprintable():
        raise ValueError(f"consumer must be 1 to {_LONGEST} printable characters, not {quoted(consumer)}")


def require_reservable(record: EntityRecord) -> None:
    """Raise if an entity of this kind, or with these settings, cannot be reserved."""
    settings = record.settings
    if settings.topic:
        why = "it is a topic, which has no messages of its own. Reserve one of its subscriptions"
    elif settings.sessions:
        why = (
            "its messages belong to sessions, whose order and locks a reservation does not keep. Use a queue or a "
            "subscription without sessions; its messages may have session ids"
        )
    elif settings.forwards:
        why = "it forwards its messages (forward_to). Reserve the destination, or remove forward_to"
    else:
        return
    raise ServiceBusError(f"'{record.path}' cannot be reserved, because {why}.", outcome=Outcome.REFUSED)


def is_releasing(record: EntityRecord) -> bool:
    """Return whether a release has begun, so that it must be finished before anything else."""
    reservation = reservation_of(record)
    return reservation is not None and reservation.state == "releasing"


def claim(record: EntityRecord, consumer: str, owner: str, now: int, last_seen: datetime | None = None) -> RecordChange:
    """Return the change by which a run of a consumer takes an entity.

    A reservation of the same consumer is taken over. Raises :class:`~sbredis.exceptions.EntityReservedError` if another
    consumer has the entity, which was last seen at ``last_seen``.
    """
    require_reservable(record)
    before = reservation_of(record)
    if before is not None and before.consumer != consumer:
        raise reserved_error(
            record.path, before, f"the consumer {quoted(consumer)} cannot reserve it too", last_seen=last_seen
        )
    fence = record.version + 1
    quiet = before is not None and before.state == "reserved"
    kept = KeptReservation(
        consumer=consumer, fence=fence, owner=owner, since=now, state="reserved" if quiet else "reserving"
    )
    return _reserved(record, kept)


def confirm(record: EntityRecord, fence: int) -> RecordChange | None:
    """Return the change that ends the wait for other receivers, or ``None`` if the record says so already.

    Raises :class:`~sbredis.exceptions.ReservationLostError` if the reservation of this fence has ended.
    """
    reservation = _own(record, fence)
    if reservation.state == "reserved":
        return None
    return _reserved(record, reservation._replace(state="reserved"))


def give_up(record: EntityRecord, fence: int) -> RecordChange | None:
    """Return the change that opens an entity again that could not be reserved, or ``None`` if there is nothing to do.

    A claim that has taken over a complete reservation stays, because its consumer may have pinned messages.
    """
    reservation = reservation_of(record)
    if reservation is None or reservation.fence != fence or reservation.state != "reserving":
        return None
    return _open(record, fence)


def begin_release(record: EntityRecord, consumer: str | None) -> RecordChange | None:
    """Return the change that begins a release; ``None`` if the entity is open or the release has begun.

    Raises :class:`~sbredis.exceptions.EntityReservedError` if another consumer than ``consumer`` has the entity.
    """
    reservation = reservation_of(record)
    if reservation is None:
        return None
    if consumer is not None and reservation.consumer != consumer:
        raise reserved_error(
            record.path, reservation, f"the reservation of the consumer {quoted(consumer)} cannot be released"
        )
    if reservation.state == "releasing":
        return None
    return _reserved(record, reservation._replace(state="releasing", fence=record.version + 1))


def end_release(record: EntityRecord, fence: int) -> RecordChange | None:
    """Return the change that opens an entity whose partitions are unpinned; ``None`` if another client has done it."""
    reservation = reservation_of(record)
    if reservation is None or reservation.fence != fence or reservation.state != "releasing":
        return None
    return _open(record, fence)


def require_own(record: EntityRecord, incarnation: str, fence: int) -> None:
    """Raise :class:`~sbredis.exceptions.ReservationLostError` if the reservation of this fence has ended.

    Another incarnation of the entity says nothing: its partitions refuse the consumer's position, and say why.
    """
    if record.incarnation == incarnation:
        _own(record, fence)


def lost(path: str) -> ReservationLostError:
    """Return the error that a reservation has ended."""
    return ReservationLostError(
        f"The reservation of '{path}' has ended: another run of its consumer has taken it over, or it was released. "
        "Run each consumer only once at a time.",
        outcome=Outcome.REFUSED,
    )


def last_seen(reservation: KeptReservation, pins: Iterable[Pin]) -> datetime | None:
    """Return the time of the last call of the run that has the reservation; ``None`` if there was none yet."""
    at = max((pin.at for pin in pins if pin.fence == reservation.fence), default=0)
    return datetime.fromtimestamp(at / 1000, UTC) if at else None


def is_stale(reservation: KeptReservation, seen: datetime | None, now: float, after: float) -> bool:
    """Return whether the consumer has made no call for ``after`` seconds; ``now`` is in s since 1970."""
    last = max(reservation.since / 1000, 0.0 if seen is None else seen.timestamp())
    return now - last > after


def _own(record: EntityRecord, fence: int) -> KeptReservation:
    reservation = reservation_of(record)
    if reservation is None or reservation.fence != fence or reservation.state == "releasing":
        raise lost(record.path)
    return reservation


def _reserved(record: EntityRecord, reservation: KeptReservation) -> RecordChange:
    settings = replace(record.settings, reserved=True)
    return RecordChange(settings, with_reservation(record.properties, reservation), reservation.fence)


def _open(record: EntityRecord, fence: int) -> RecordChange:
    return RecordChange(replace(record.settings, reserved=False), with_reservation(record.properties, None), fence)


# -- the wait ----------------------------------------------------------------------------------------------------------


def awaited(counts: Mapping[int, Counts], unreachable: Sequence[int], now: float) -> Awaited:
    """Return what a reservation waits for, from the counts of the partitions at the time ``now``, in s since 1970."""
    waiting = {number: each for number, each in counts.items() if each.locked or each.delayed or each.frozen}
    due = [each.due for each in waiting.values() if each.due]
    return Awaited(
        locked=sum(each.locked for each in waiting.values()),
        delayed=sum(each.delayed for each in waiting.values()),
        frozen=sum(each.frozen for each in waiting.values()),
        partitions=tuple(sorted(waiting)),
        unreachable=tuple(sorted(unreachable)),
        until=datetime.fromtimestamp(now + min(due) / 1000, UTC) if due else None,
    )


def timed_out(path: str, waited: float, what: Awaited) -> ReservationTimeoutError:
    """Return the error that a reservation has waited for too long."""
    counts = {"locked": what.locked, "delayed": what.delayed, "on the way to another entity": what.frozen}
    shown = " and ".join(f"{count:,} {words}" for words, count in counts.items() if count)
    reasons = [f"messages in {_partitions(what.partitions)} are still {shown}"] if shown else []
    if what.unreachable:
        reasons.append(f"{_partitions(what.unreachable)} could not be reached")
    until = ""
    if what.until is not None:
        until = f" No lock and no delay of them ends by itself before {what.until:%Y-%m-%d %H:%M:%S} UTC."
    return ReservationTimeoutError(
        f"'{path}' was not reserved within {waited:g} seconds: {'; '.join(reasons)}.{until} Stop the receivers of "
        f"'{path}', or give the reservation more time.",
        outcome=Outcome.REFUSED,
    )


def _partitions(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {shown}{more}"
