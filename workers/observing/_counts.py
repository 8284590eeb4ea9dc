"""Count what a worker does with the messages of each entity. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

__all__ = ["Counts", "Histogram", "merged"]

BOUNDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    3600.0,
)
"""The upper bounds of the buckets of all histograms, in seconds."""


@dataclass(slots=True)
class Histogram:
    """How many durations fell into which bucket."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """The number of durations up to each bound and above the bound before it; at last those above all bounds."""
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def add(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        self.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@dataclass(slots=True)
class Counts:
    """The counts of one entity in this worker."""

    received: int = 0
    completed: int = 0
    abandoned: int = 0
    dead_lettered: int = 0
    deferred: int = 0
    given_back: int = 0
    errors: int = 0
    """Calls of handlers that raised an error."""
    settlements_failed: int = 0
    locks_lost: int = 0
    running: int = 0
    """Handlers that are running now."""
    handling: Histogram = field(default_factory=Histogram)
    """How long handlers took."""
    lag: Histogram = field(default_factory=Histogram)
    """How long messages had waited in the entity when their handlers started."""

    def add(self, other: Counts) -> None:
        """Add the counts of another process."""
        for each in fields(self):
            value = getattr(other, each.name)
            if isinstance(value, Histogram):
                getattr(self, each.name).add(value)
            else:
                setattr(self, each.name, getattr(self, each.name) + value)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as values that JSON has, for another process."""
        return {
            each.name: [value.counts, value.total] if isinstance(value, Histogram) else value
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the counts that :meth:`to_json` has written."""
        read: dict[str, Any] = {**given}
        for name in ("handling", "lag"):
            read[name] = Histogram(*given[name])
        return cls(**read)


def merged(processes: Iterable[Mapping[str, Counts]]) -> dict[str, Counts]:
    """Return the counts of all processes together, by the path of the entity."""
    together: dict[str, Counts] = {}
    for counts in processes:
        for entity, own in counts.items():
            together.setdefault(entity, Counts()).add(own)
    return together
