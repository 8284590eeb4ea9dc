"""How reservations are shown: by whom, since when, how far, and whether they are stale. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sbredis._counting import counted

if TYPE_CHECKING:
    from sbredis.exceptions import EntityReservedError
    from sbredis.model import ReservationStatus

__all__ = ["say_stale", "shown"]


def shown(status: ReservationStatus, release: str) -> list[str]:
    """Return the lines that show a reservation. ``release`` is the command that ends it."""
    owner = f" ({status.owner})" if status.owner else ""
    stale = f"; stale, to end it: {release}" if status.stale else ""
    left = sum(position.left for position in status.positions.values())
    seen = "never" if status.last_seen is None else _text(status.last_seen)
    who = f"{status.path}: {status.state} by {status.consumer}{owner} since {_text(status.since)}"
    lines = [f"{who}, last sign of life {seen}{stale}", f"  {counted(left, 'message')} left to plan"]
    for number, position in status.positions.items():
        planned = f", planned up to {position.planned}" if position.planned > position.committed else ""
        lines.append(f"  partition {number}: done up to {position.committed}{planned}, {position.left:,} left")
    lines += [f"  partition {number}: no answer" for number in status.unreachable_partitions]
    return lines


def say_stale(error: EntityReservedError, stale_after: float, now: datetime, release: str) -> None:
    """Let an error say that the consumer that has the entity seems dead, if it does. ``release`` is the command that
    ends its reservation.
    """
    times = [time for time in (error.since, error.last_seen) if time is not None]
    if times and (now - max(times)).total_seconds() > stale_after:
        error.message += (
            f" The reservation is stale: it has shown no sign of life since {_text(max(times))}, for longer than "
            f"reservationStaleAfter. If its query does not run any more, end it: {release}"
        )


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
