"""Count what a worker does with the messages of each entity. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

__all__ = ["EntityCounts", "HandlerCounts", "Histogram", "merged"]

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


_MOST: Final = 1 << 63
"""The bound of a count in the report of another process."""


@dataclass(slots=True)
class Histogram:
    """Durations, counted in buckets."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """The number of durations up to each bound and above the bound before it; at last those above all bounds."""
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def observe_between(self, first: float, last: float, count: int) -> bool:
        """Count a number of durations between these two, if both are in one bucket. Return whether they are."""
        bucket = bisect_left(BOUNDS, first)
        if bucket != bisect_left(BOUNDS, last):
            return False
        self.counts[bucket] += count
        self.total += (first + last) / 2 * count
        return True

    def add(self, other: Histogram) -> None:
        """Add the durations of another histogram."""
        self.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@dataclass(slots=True)
class HandlerCounts:
    """The counts of one handler of an entity in this worker."""

    errors: int = 0
    """Calls that raised an error."""
    running: int = 0
    """Calls that are running now."""
    handling: Histogram = field(default_factory=Histogram)
    """The durations of calls."""
    schedules: int = 0
    """The schedules of the handler; all processes together count each of them several times."""
    ticks_sent: int = 0
    """Ticks of the handler's schedule that were sent."""
    ticks_passed: int = 0
    """Ticks that were passed over, because they were missed or overlapped with the one before."""


@dataclass(slots=True)
class EntityCounts:
    """The counts of one entity in this worker."""

    received: int = 0
    completed: int = 0
    abandoned: int = 0
    dead_lettered: int = 0
    deferred: int = 0
    given_back: int = 0
    settlements_failed: int = 0
    locks_lost: int = 0
    lag: Histogram = field(default_factory=Histogram)
    """The times that messages had waited in the entity when their first delivery began."""
    handlers: dict[str, HandlerCounts] = field(default_factory=dict[str, HandlerCounts])
    """The counts of each handler, by its name."""

    def of(self, handler: str) -> HandlerCounts:
        """Return the counts of one handler."""
        found = self.handlers.get(handler)
        if found is None:
            found = self.handlers[handler] = HandlerCounts()
        return found

    @property
    def errors(self) -> int:
        """Calls of handlers that raised an error."""
        return sum(each.errors for each in list(self.handlers.values()))

    @property
    def running(self) -> int:
        """Handlers that are running now."""
        return sum(each.running for each in list(self.handlers.values()))

    def add(self, other: EntityCounts) -> None:
        """Add the counts of another process."""
        _add(self, other)
        for name, counts in other.handlers.items():
            _add(self.of(name), counts)

    def end(self) -> None:
        """Note that the process has ended: no handler is running."""
        for counts in self.handlers.values():
            counts.running = 0

    def to_json(self) -> dict[str, Any]:
        """Return the counts as values that JSON has, for another process."""
        handlers = {name: _written(counts) for name, counts in self.handlers.items()}
        return {**_written(self), "handlers": handlers}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return the counts that :meth:`to_json` has written."""
        handlers = {name: HandlerCounts(**_read(HandlerCounts, counts)) for name, counts in given["handlers"].items()}
        own = {name: value for name, value in given.items() if name != "handlers"}
        return cls(**_read(cls, own), handlers=handlers)


def _add(counts: EntityCounts | HandlerCounts, other: EntityCounts | HandlerCounts) -> None:
    """Add numbers and histograms."""
    for each in fields(counts):
        value = getattr(other, each.name)
        if isinstance(value, Histogram):
            getattr(counts, each.name).add(value)
        elif isinstance(value, int):
            setattr(counts, each.name, getattr(counts, each.name) + value)


def _written(counts: EntityCounts | HandlerCounts) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for each in fields(counts):
        value = getattr(counts, each.name)
        if isinstance(value, Histogram):
            written[each.name] = [value.counts, value.total]
        elif isinstance(value, int):
            written[each.name] = value
    return written


def _read(kind: type[EntityCounts | HandlerCounts], given: Mapping[str, Any]) -> dict[str, Any]:
    histograms = {each.name for each in fields(kind) if each.default_factory is Histogram}
    return {name: _read_histogram(value) if name in histograms else _whole(value) for name, value in given.items()}


def _read_histogram(given: Any) -> Histogram:
    counts, total = given
    if len(counts) != len(BOUNDS) + 1 or type(total) not in {int, float}:
        raise ValueError("a histogram is malformed")
    return Histogram(list(map(_whole, counts)), float(total))


def _whole(value: object) -> int:
    if type(value) is not int or abs(value) >= _MOST:
        raise TypeError("a count is no whole number, or is too large")
    return value


def merged(processes: Iterable[Mapping[str, EntityCounts]]) -> dict[str, EntityCounts]:
    """Return the counts of all processes together, by the path of the entity."""
    together: dict[str, EntityCounts] = {}
    for counts in processes:
        for entity, own in counts.items():
            together.setdefault(entity, EntityCounts()).add(own)
    return together
