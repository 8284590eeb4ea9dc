"""How the job ``reservations`` shows a reservation: by whom, since when, and how far. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbredis.model import ReservationStatus

__all__ = ["shown"]


def shown(status: ReservationStatus, release: str) -> list[str]:
    """Return the lines that show a reservation. ``release`` is the command that ends it."""
    owner = f" ({status.owner})" if status.owner else ""
    stale = f"; stale, to end it: {release}" if status.stale else ""
    left = sum(position.left for position in status.positions.values())
    seen = "never" if status.last_seen is None else _text(status.last_seen)
    who = f"{status.path}: {status.state} by {status.consumer}{owner} since {_text(status.since)}"
    lines = [f"{who}, last sign of life {seen}{stale}", f"  {left:,} messages left to plan"]
    for number, position in status.positions.items():
        planned = f", planned up to {position.planned}" if position.planned > position.committed else ""
        lines.append(f"  partition {number}: done up to {position.committed}{planned}, {position.left:,} left")
    lines += [f"  partition {number}: no answer" for number in status.unreachable_partitions]
    return lines


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
