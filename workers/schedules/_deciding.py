"""Decide which ticks of a schedule are sent now. Pure.

Theory
------

A schedule has a watermark: the last tick that was dealt with. Every worker decides by the time of the server, as the
worker knows it, and by the watermark that it knows, and then tries to move the watermark and to send the ticks in one
transaction. The transaction is refused if the watermark has been moved meanwhile. So these rules are enough for each
tick to be sent once, whatever times the workers know:

- Only ticks after the watermark are sent.
- The new watermark is a tick after the old one, and no tick before it is sent later.

All ticks between the watermark and now are due. If several are due, no worker has sent those before the last one in
time: they are *missed*.

- ``latest`` sends the last due tick only.
- ``all`` sends each of them in order, a limited number in one transaction.
- ``none`` sends the last due tick, if it is late by no more than the grace.

With ``overlap="skip"`` a tick is passed over while the message of the tick before it is not finished. A tick that is
sent together with another one overlaps with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple

from sbredis.workers.declaring._schedules import Schedule

__all__ = ["MOST_TOGETHER", "Decision", "decide"]

GRACE: Final = timedelta(seconds=60)
"""The greatest delay with which a tick is sent if ``missed`` is ``none``."""
MOST_TOGETHER: Final = 50
"""The largest number of ticks that are sent in one transaction."""
MOST_COUNTED: Final = 10_000
"""The largest number of ticks that are counted as passed over at once."""
_FIRST_SPAN: Final = timedelta(minutes=1)


class Decision(NamedTuple):
    """The ticks to send now."""

    send: tuple[datetime, ...]
    passed: int
    """The number of due ticks that are not sent."""
    watermark: datetime
    """The new watermark."""


def decide(schedule: Schedule, watermark: datetime, now: datetime, *, busy: bool) -> Decision | None:
    """Return what to do now; ``None`` if no tick is due.

    ``busy`` says whether the message of the last tick that was sent is not finished.
    """
    if schedule.after(watermark) > now:
        return None
    skips = schedule.overlap == "skip"
    if schedule.missed == "all":
        due: list[datetime] = []
        for tick in _due(schedule, watermark, now):
            due.append(tick)
            if len(due) == MOST_TOGETHER:
                break
        send = due[: 0 if busy else 1] if skips else due
        return Decision(tuple(send), len(due) - len(send), due[-1])
    last = _last_due(schedule, watermark, now)
    in_time = schedule.missed == "latest" or now - last <= GRACE
    count = _count_due(schedule, watermark, last)
    if in_time and not (skips and busy):
        return Decision((last,), count - 1, last)
    return Decision((), count, last)


def _due(schedule: Schedule, watermark: datetime, until: datetime) -> Iterator[datetime]:
    return takewhile(lambda tick: tick <= until, schedule.ticks.times(watermark))


def _last_due(schedule: Schedule, watermark: datetime, now: datetime) -> datetime:
    """Return the last due tick. At least one must be due. The search begins at the present and goes back."""
    span = _FIRST_SPAN
    while True:
        begin = max(watermark, now - span)
        last: datetime | None = None
        for last in _due(schedule, begin, now):  # noqa: B007 -- only the last one matters
            pass
        if last is not None:
            return last
        assert begin > watermark, "no tick is due"
        span *= 8


def _count_due(schedule: Schedule, watermark: datetime, last: datetime) -> int:
    count = 0
    for _ in _due(schedule, watermark, last):
        count += 1
        if count == MOST_COUNTED:
            break
    return count
