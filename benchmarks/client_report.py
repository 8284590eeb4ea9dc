"""The report of the client's benchmark: a table of the measurements, and a comparison with the goals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.ways import BACKLOG, BATCHES, SHAPES, TASKS, WAYS
from benchmarks.works import ALL, Idle, Medians, figures, tell_idle

__all__ = [
    "CLUSTER_ONE",
    "CLUSTER_SIXTEEN",
    "NATS",
    "ONE",
    "PARTITIONS",
    "PING",
    "SIXTEEN",
    "STREAMS",
    "Results",
    "table",
    "verdicts",
]

PARTITIONS = 16

STREAMS = "bare streams through redis-py"
NATS = "NATS JetStream through nats-py"
ONE = "sbredis"
SIXTEEN = f"sbredis, {PARTITIONS} partitions"
CLUSTER_ONE = "sbredis, on the cluster"
CLUSTER_SIXTEEN = f"sbredis, {PARTITIONS} partitions on the cluster"
PING = "bare command through redis-py"

ORDER = (STREAMS, NATS, ONE, SIXTEEN, CLUSTER_ONE, CLUSTER_SIXTEEN)
BESIDE = {
    NATS: (STREAMS,),
    ONE: (STREAMS, NATS),
    SIXTEEN: (ONE,),
    CLUSTER_ONE: (ONE,),
    CLUSTER_SIXTEEN: (SIXTEEN,),
}
"""For each competitor: the peers with which the report compares it, if they were measured."""
CALLED = {STREAMS: "streams", NATS: "NATS", ONE: "one", SIXTEEN: "one server"}

TIMES_NATS = {"asyncio": 1.3, "uvloop": 1.5}
TIMES_NATS_IDLE = 1.4
SLOWEST_TRIP = 2.0
SHARE_OF_STREAMS = 1.1
SERVER_SHARE = 1.5
SHARE_OF_ONE = 0.9

WIDTH = 54


@dataclass(frozen=True)
class Results:
    """The measurements on one event loop: ``works`` by name and step, and the latencies in ``idle`` by name."""

    works: Mapping[str, Mapping[str, Medians]]
    idle: Mapping[str, Idle]

    @staticmethod
    def key(way: str, shape: str, who: str) -> str:
        """Return the name of a work."""
        return f"{way}/{shape}/{who}"

    def of(self, way: str, shape: str, who: str) -> Medians | None:
        """Return the cost of a message, summed over all steps of a work; ``None`` if the work was not done."""
        steps = self.works.get(self.key(way, shape, who))
        return None if steps is None else steps[ALL]

    def ratio(self, way: str, shape: str, who: str, reference: str) -> float | None:
        """Return the ratio of two competitors' speeds; ``None`` if one of them was not measured."""
        one, other = self.of(way, shape, who), self.of(way, shape, reference)
        return None if one is None or other is None else one.per_second / other.per_second

    def server_ratio(self, way: str, shape: str, who: str, reference: str) -> float | None:
        """Return the ratio between the processor times that the server needs for a message of two competitors."""
        one, other = self.of(way, shape, who), self.of(way, shape, reference)
        return None if one is None or other is None else one.server / other.server

    def idle_ratio(self, who: str, reference: str) -> float | None:
        """Return the ratio between two competitors' median times for a trip without other work."""
        one, other = self.idle.get(who), self.idle.get(reference)
        return None if one is None or other is None else one.median / other.median


# -- the table ---------------------------------------------------------------------------------------------------------


def table(results: Results) -> list[str]:
    """Return the measurements as lines of text."""
    lines = [f"{'':<{WIDTH}}messages/s   client CPU   server CPU"]
    for way in WAYS:
        lines.append(f"  {way}")
        for shape in SHAPES:
            lines.append(f"    {shape}")
            lines += [line for who in ORDER for line in _rows(results, way, shape, who)]
    lines.append("  idle, send to start of handler")
    lines += [f"{f'      {name}':<{WIDTH}}{tell_idle(idle)}" for name, idle in results.idle.items()]
    return lines


def _rows(results: Results, way: str, shape: str, who: str) -> Iterator[str]:
    steps = results.works.get(Results.key(way, shape, who), {})
    told = "".join(_compared(results, way, shape, who, other) for other in BESIDE.get(who, ()))
    if steps:
        yield f"{f'      {who}':<{WIDTH}}{figures(steps[ALL])}{told}"
    for step, measured in steps.items():
        if step != ALL:
            yield f"{f'        {step}':<{WIDTH}}{figures(measured)}"


def _compared(results: Results, way: str, shape: str, who: str, reference: str) -> str:
    """Return the ratios of two competitors' speeds and of their clients' processor times, as text.

    A busy machine changes the processor time less than the speed.
    """
    one, other = results.of(way, shape, who), results.of(way, shape, reference)
    if one is None or other is None:
        return ""
    speed, cpu = one.per_second / other.per_second, one.client / other.client
    return f"   {speed:.2f} x {CALLED[reference]} (CPU {cpu:.2f} x)"


# -- the goals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A figure with its goal. The title says whether the goal is a lower or an upper bound."""

    title: str
    figure: float | None
    """The figure; ``None`` if it was not measured."""
    least: float = -math.inf
    most: float = math.inf
    unit: str = "x"

    @property
    def cell(self) -> str:
        """Return the figure as text, and whether it meets the goal."""
        if self.figure is None:
            return "not measured"
        met = self.least <= self.figure <= self.most
        return f"{self.figure:.3f} {self.unit}  {'met' if met else 'MISSED'}"


def verdicts(by_loop: Mapping[str, Results]) -> list[str]:
    """Return the goals as lines of text, and whether each event loop has met them."""
    columns = [list(_goals(loop, results)) for loop, results in by_loop.items()]
    lines = [f"{'goals':<{WIDTH}}" + "".join(f"{loop:<22}" for loop in by_loop).rstrip()]
    for row in zip(*columns, strict=True):
        cells = "".join(f"{goal.cell:<22}" for goal in row)
        lines.append(f"{f'  {row[0].title}':<{WIDTH}}{cells}".rstrip())
    return lines


def _goals(loop: str, results: Results) -> Iterator[Goal]:
    for shape in SHAPES:
        title = f"tasks, {shape}: ≥ {TIMES_NATS['asyncio']} x NATS (uvloop: {TIMES_NATS['uvloop']})"
        yield Goal(title, results.ratio(TASKS, shape, ONE, NATS), least=TIMES_NATS[loop])
    yield Goal(f"idle, p50: ≤ {TIMES_NATS_IDLE} x NATS", results.idle_ratio(ONE, NATS), most=TIMES_NATS_IDLE)
    yield Goal(f"idle, p99: ≤ {SLOWEST_TRIP} ms", results.idle[ONE].slow, most=SLOWEST_TRIP, unit="ms")
    for shape in SHAPES:
        title = f"batches, {shape}: ≥ {SHARE_OF_STREAMS} x streams"
        yield Goal(title, results.ratio(BATCHES, shape, ONE, STREAMS), least=SHARE_OF_STREAMS)
    for shape in SHAPES:
        title = f"batches, {shape}: server CPU ≤ {SERVER_SHARE} x streams"
        yield Goal(title, results.server_ratio(BATCHES, shape, ONE, STREAMS), most=SERVER_SHARE)
    for shape in SHAPES:
        title = f"tasks, {shape}: {PARTITIONS} partitions ≥ {SHARE_OF_ONE} x one"
        yield Goal(title, results.ratio(TASKS, shape, SIXTEEN, ONE), least=SHARE_OF_ONE)
    for name, who, reference in (
        ("cluster", CLUSTER_ONE, ONE),
        (f"cluster, {PARTITIONS} partitions", CLUSTER_SIXTEEN, SIXTEEN),
    ):
        title = f"tasks, {name}: ≥ {SHARE_OF_ONE} x one server"
        yield Goal(title, results.ratio(TASKS, BACKLOG, who, reference), least=SHARE_OF_ONE)
