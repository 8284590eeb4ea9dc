"""What measured operations come to: messages a second, and the times of the calls. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Result", "summary_of"]


class Result(NamedTuple):
    """A measurement."""

    messages: int
    seconds: float
    times: Sequence[float]
    """The seconds that each call took."""


def summary_of(result: Result) -> dict[str, float | int | None]:
    """Return the messages a second, and the times in ms that half, 99 % and all of the calls did not exceed."""
    times = sorted(result.times)
    return {
        "messages_per_second": round(result.messages / max(result.seconds, 1e-9)),
        "calls": len(times),
        "median": _milliseconds(times, 0.5),
        "p99": _milliseconds(times, 0.99),
        "longest": _milliseconds(times, 1.0),
    }


def _milliseconds(times: Sequence[float], share: float) -> float | None:
    """Return the time that this share of the calls did not exceed."""
    if not times:
        return None
    return round(times[min(len(times) - 1, max(0, int(share * len(times) + 0.999999) - 1))] * 1000, 3)
