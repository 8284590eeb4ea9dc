"""Measuring several competitors in turn, round by round, so that a slower machine is slower for all of them."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sbredis.exceptions import ServiceBusError

__all__ = ["Measured", "alternate", "run_as_program", "table"]


@dataclass(frozen=True)
class Measured:
    """The medians of one competitor."""

    name: str
    per_second: float
    cpu_microseconds: float
    """Processor time of this process per call."""


async def alternate(
    competitors: Sequence[tuple[str, int, Callable[[int], Awaitable[None]]]], rounds: int
) -> list[Measured]:
    """Run each competitor once a round, ``rounds`` times, after one round that does not count. Return the medians."""
    speeds: dict[str, list[float]] = {name: [] for name, _, _ in competitors}
    costs: dict[str, list[float]] = {name: [] for name, _, _ in competitors}
    for number in range(rounds + 1):
        for name, calls, run in competitors:
            wall, cpu = time.perf_counter(), time.process_time()
            await run(calls if number else max(1, calls // 10))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if number:
                speeds[name].append(calls / wall)
                costs[name].append(cpu / calls * 1e6)
    return [
        Measured(name, statistics.median(speeds[name]), statistics.median(costs[name])) for name, _, _ in competitors
    ]


def table(title: str, measured: Sequence[Measured], reference: str) -> str:
    """Return the measurements as lines of text, with the ratio of each one to a chosen competitor."""
    base = next(one for one in measured if one.name == reference)
    width = max(len(one.name) for one in measured)
    lines = [title]
    lines += [
        f"  {one.name:<{width}}  {one.per_second:>10,.0f} calls/s  {one.cpu_microseconds:>7.1f} µs CPU a call"
        f"  {one.per_second / base.per_second:>6.2f} x {reference}"
        for one in measured
    ]
    return "\n".join(lines)


def run_as_program(main: Callable[[], None]) -> None:
    """Run a benchmark's ``main``.

    If the user interrupts it or a server is missing, it ends with one line instead of a traceback.
    """
    try:
        main()
    except KeyboardInterrupt:
        print("\nStopped; nothing is left running.")
        sys.exit(130)
    except ServiceBusError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
