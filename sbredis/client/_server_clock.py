"""Say when a lock ends, by the clock of the client. Pure.

Theory
------

The end of a lock is a time of the server's clock, and the client must not hold a lock for longer than the server does.
The client never knows the server's clock exactly, but each reply gives it an upper bound. Assume that the client wrote
a call at its time t0, and that the reply shows the clock c. The call ran after t0, so at any later time t of the client

    clock <= c + 1 ms + (t - t0) * 1.001

The millisecond is for a clock that is rounded down. The factor is for clocks that run at different speeds; they differ
by less than a thousandth. The client uses the least bound of the last 60 seconds. If the last reply is older than that,
the client uses the bound of that reply. The tightest bound of all times would be wrong, because the clocks drift.

A lock that ends at c' of the server has ended in the client when the bound reaches c'. So pauses of the client, of the
server and of the network only make a lock shorter in the client.

If a server shows a clock that its bound does not allow, then its clock has leapt forward. All bounds are void then. A
lock is *undatable* if the client has no bound for its server, or if its push proves a leap.

A bound belongs to one server process, and so does the clock: it is the time of the server (``TIME``), not the logical
clock of a partition. The logical clocks of two partitions differ, and one server process may have the same partition
again after a time at another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sbredis.client._clock import Clock

__all__ = ["ServerClock", "ServerClocks"]

_YOUNG: Final = 60.0
_SPEED: Final = 1001.0
"""The most milliseconds by which the server's clock moves in a second of the client."""
_ROUNDED: Final = 1.0
_MARGIN: Final = 0.002
"""The seconds by which a lock ends earlier by the clock of a test, as in other replies of the server."""
_MOST: Final = 64
"""The largest number of server processes whose clocks a client remembers."""


class ServerClock:
    """What a client knows of the clock of one server process."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        # Bounds are straight lines with the same slope, so each is its value at the time 0, with the time t0 of its
        # call. Both rise from the first to the last: a bound that is older and higher than another is of no use.
        self._bounds: deque[tuple[float, float]] = deque()

    def replied(self, clock: float, written: float, now: float) -> None:
        """Note a reply that shows the ``clock``. Its call was last written at the time ``written``."""
        self._allows(clock, now)
        bound, bounds = clock + _ROUNDED - written * _SPEED, self._bounds
        if bounds and written < bounds[-1][1]:  # another reply has overtaken this one
            return
        while bounds and bounds[-1][0] >= bound:
            bounds.pop()
        bounds.append((bound, written))

    def ends(self, until: float, shown: float, now: float) -> float | None:
        """Return the client's time at which a lock ends, or None if the lock is undatable.

        The lock ends at the server's time ``until``. The message that brought it shows the server's time ``shown``.
        """
        if not self._allows(shown, now):
            return None
        return (until - self._bounds[0][0]) / _SPEED

    def _allows(self, clock: float, now: float) -> bool:
        """Return whether there is a bound that allows this clock. If a bound does not, the clock has leapt."""
        bounds = self._bounds
        while len(bounds) > 1 and bounds[0][1] < now - _YOUNG:
            bounds.popleft()
        if bounds and clock > bounds[0][0] + now * _SPEED:
            bounds.clear()
        return bool(bounds)


class _ToldClock(ServerClock):
    """The clock of a server that takes its time from the calls of a test: it is the clock of the client."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def replied(self, clock: float, written: float, now: float) -> None:
        """Note nothing, because the clock is known."""

    def ends(self, until: float, shown: float, now: float) -> float | None:
        """Return the client's time at which a lock ends."""
        del shown, now
        return until / 1000 - self._clock.utc() + self._clock.now() - _MARGIN


class ServerClocks(dict[str, ServerClock]):
    """What a client knows of the clocks of server processes, by the beginnings of their run ids."""

    __slots__ = ("_new",)

    def __init__(self, clock: Clock) -> None:
        """Begin without bounds, with the clock of the client."""
        super().__init__()
        self._new: Callable[[], ServerClock] = ServerClock if clock.told() is None else partial(_ToldClock, clock)

    def __missing__(self, run: str) -> ServerClock:
        if len(self) == _MOST:
            del self[next(iter(self))]
        found = self[run] = self._new()
        return found
