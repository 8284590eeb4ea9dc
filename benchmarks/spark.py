"""Compare Spark on two cores with redis-py and pyarrow in one process: reads, writes, streams and jobs on one server.
It also measures how long messages of another client take while Spark reads, and what small pages cost a read. (How
reads and writes grow is in benchmarks.spark_growth.)

python -m benchmarks.spark [--rows N] [--rounds N] [--only NAMES] [--server NAME]

The two sides take turns. A first round with few rows does not count. Each job is compared with the plain read.

Spark uses several processors, and the plain side uses one at a time. So on a machine that does other work too, the
processor time of all processes of each side, servers included, is the fairer comparison: the table has it as well.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.process_tree import make_nice, tree_seconds
from benchmarks.rounds import run_as_program
from benchmarks.spark_neighbour import Neighbour
from sbredis.servers import LocalServer, find_server
from sbredis.spark import require_java, require_spark

if TYPE_CHECKING:
    from benchmarks.spark_plain import Plain
    from benchmarks.spark_works import Bus

WARM = 20_000
"""The rows of the round that does not count. A short run has none."""


PAGES, BESIDE, BUSY, NICE = "read by pages", "p99 beside reads", "p99 beside work", "p99 nice reads"
SAME = "read 3 columns"
"""The columns that the plain side makes too; other reads of Spark have nine times as many."""
QUIET = 5.0
"""The seconds for which the other client works alone."""


class Goal(NamedTuple):
    """A piece of work, and the goal for it."""

    name: str
    ratio: float
    """Of a job: how many times the time of the plain read it may take. Of a delay: how many times the delay without
    Spark. Otherwise: how many times the plain speed. Pages of the usual size are compared with large ones.
    """


WORKS = (
    Goal("write", 1.8),
    Goal("read", 1.3),
    Goal(SAME, 1.3),
    Goal("read to parquet", 1.3),
    Goal(PAGES, 0.9),
    Goal("consume 100,000", 0.7),
    Goal("consume 20,000", 0.4),
)
JOBS = tuple(Goal(name, 2.0) for name in ("capture", "compact", "replay", "skew", "dlq-report", "latency"))
DELAYS = (Goal(BESIDE, 3.0), Goal(BUSY, 1.5), Goal(NICE, 3.0))
"""Compared with the delay of the client alone; with that beside a job of Spark that makes the same rows without a
server; and alone again, but Spark's processes are nice to others. If this machine has few cores, the delay beside
processes that are not nice is mostly that of waiting for a core.
"""
LARGE = {"pageMessages": "1000", "pageBytes": str(4 * 1024 * 1024)}


class Pair(NamedTuple):
    """The seconds of Spark and of the plain side for a piece of work, and their processor time; 0 if not measured."""

    ours: float
    plain: float
    our_processors: float = 0.0
    plain_processors: float = 0.0


Times = dict[str, list[Pair]]
"""By the name of a piece of work, round by round."""


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Spent(NamedTuple):
    """What a piece of work has taken, in seconds."""

    seconds: float
    processors: float
    """The processor time of all processes, servers included."""


def spent(work: Callable[[], object]) -> Spent:
    """Do a piece of work, and return what it has taken."""
    before = tree_seconds()
    seconds = timed(work)
    return Spent(seconds, tree_seconds() - before)


class Bench:
    """The rounds of the benchmark."""

    def __init__(self, bus: Bus, plain: Plain, folder: Path, only: Sequence[str]) -> None:
        self._bus = bus
        self._plain = plain
        self._folder = folder
        self._only = only
        self._seconds: dict[str, Pair] = {}
        self._rows = 0

    def round(self, rows: int, *, swapped: bool) -> dict[str, Pair]:
        """Measure everything once, and delete what it needed. ``swapped``: the plain side begins."""
        self._seconds = {}
        source = self._folder / "source"
        self._bus.make_rows(source, rows)
        self._rows = rows
        self._bus.create("bench")
        self._pair(
            "write",
            lambda: self._bus.write("bench", source),
            lambda: self._plain.write("plain", source),
            swapped=swapped,
        )
        self._reads(swapped=swapped)
        for size in (100_000, 20_000):
            if self._wants(f"consume {size:,}"):
                self._consume(size, source, swapped=swapped)
        self._jobs(source)
        self._plain.delete("plain")
        self._bus.delete("bench")
        shutil.rmtree(self._folder / "out", ignore_errors=True)
        return self._seconds

    def _wants(self, name: str) -> bool:
        return not self._only or name in self._only

    def _pair(self, name: str, ours: Callable[[], object], plain: Callable[[], object], *, swapped: bool) -> None:
        if swapped:
            second, first = spent(plain), spent(ours)
        else:
            first, second = spent(ours), spent(plain)
        self._seconds[name] = Pair(first.seconds, second.seconds, first.processors, second.processors)

    def _reads(self, *, swapped: bool) -> None:
        bus, plain, out = self._bus, self._plain, self._folder / "out"
        out.mkdir()
        self._pair("read", lambda: bus.read("bench"), lambda: plain.read("plain"), swapped=swapped)
        if self._wants(SAME):
            columns = "sequence_number,message_id,body"
            self._pair(SAME, lambda: bus.read("bench", columns=columns), lambda: plain.read("plain"), swapped=swapped)
        if self._wants("read to parquet"):
            self._pair(
                "read to parquet",
                lambda: bus.read_to_parquet("bench", out / "read"),
                lambda: plain.read_to_parquet("plain", out / "read.parquet"),
                swapped=swapped,
            )

        if self._wants(PAGES):
            self._pair(PAGES, lambda: bus.read("bench"), lambda: bus.read("bench", **LARGE), swapped=swapped)
        if self._wants(BESIDE):
            alone, beside, busy = self._delays(partial(bus.make_messages, self._rows))
            self._seconds[BESIDE], self._seconds[BUSY] = Pair(beside, alone), Pair(beside, busy)

    def _delays(self, *others: Callable[[], object]) -> list[float]:
        """Return the delays of another client alone, beside a read, and beside other work."""
        works: list[Callable[[], object]] = [partial(self._bus.read, "bench"), *others]
        with Neighbour(self._bus.url) as neighbour:
            time.sleep(QUIET)
            for work in works:
                neighbour.note()
                work()
            neighbour.note()
        return neighbour.percentiles()

    def nice(self, rounds: int) -> Times:
        """Measure the delay beside reads by a Spark that is nice from now on. Nobody but root can end this."""
        if not self._wants(NICE):
            return {}
        make_nice("java")
        self._bus.create("bench")
        self._bus.write("bench", self._folder / "source")
        found = [self._delays() for _ in range(rounds)]
        self._bus.delete("bench")
        return {NICE: [Pair(beside, alone) for alone, beside in found]}

    def _consume(self, size: int, source: Path, *, swapped: bool) -> None:
        bus, plain, checkpoint = self._bus, self._plain, self._folder / "out" / f"checkpoint-{size}"
        bus.create("consumed")
        bus.write("consumed", source)
        plain.copy("plain", "copied")
        self._pair(
            f"consume {size:,}",
            lambda: bus.consume("consumed", size, checkpoint),
            lambda: plain.consume("copied", size),
            swapped=swapped,
        )
        plain.delete("copied")
        bus.delete("consumed")

    def _jobs(self, source: Path) -> None:
        bus, out = self._bus, self._folder / "out"
        captured = out / "captured"
        if self._wants("capture") or self._wants("compact") or self._wants("replay"):
            bus.create("captured")
            bus.write("captured", source)
            to = ("--to", str(captured), "--checkpoint", str(out / "captured-checkpoint"))
            self._job("capture", lambda: bus.job("capture", "captured", *to))
            bus.delete("captured")
        if self._wants("compact"):
            self._job("compact", lambda: bus.compact(captured, out / "compacted"))
        if self._wants("replay"):
            bus.create("replayed")
            self._job("replay", lambda: bus.job("replay", "replayed", "--source", str(captured)))
            bus.delete("replayed")
        if self._wants("skew"):
            self._job("skew", lambda: bus.job("skew", "bench"))
        for name, dead in (("dlq-report", True), ("latency", False)):
            if self._wants(name):
                bus.create("settled", audit=not dead, lock_duration="PT5M")
                bus.write("settled", source)
                bus.settle("settled", dead=dead)
                self._job(name, partial(bus.job, name, "settled"))
                bus.delete("settled")

    def _job(self, name: str, job: Callable[[], object]) -> None:
        self._seconds[name] = Pair(timed(job), self._seconds["read"].plain)


# -- the report --------------------------------------------------------------------------------------------------------


def lines(times: Times, rows: int) -> list[str]:
    """Return a line for each piece of work, with its medians and whether the goal is met."""
    shown = [f"{'':<16} {'Spark':>15} {'plain':>15}   ratio   goal"]
    for work in WORKS:
        if work.name in times:
            ours, plain, *used = map(statistics.median, zip(*times[work.name], strict=True))
            ratio = statistics.median(each.plain / each.ours for each in times[work.name])
            met = "met" if ratio >= work.ratio else "MISSED"
            speeds = f"{rows / ours:>9,.0f} rows/s {rows / plain:>8,.0f} rows/s"
            shown.append(f"{work.name:<16} {speeds}  {ratio:5.2f} x  ≥ {work.ratio:.1f}  {met:<6}{_processors(*used)}")
    for job in JOBS:
        if job.name in times:
            ours, plain, *_ = map(statistics.median, zip(*times[job.name], strict=True))
            ratio = statistics.median(each.ours / each.plain for each in times[job.name])
            met = "met" if ratio <= job.ratio else "MISSED"
            shown.append(f"{job.name:<16} {ours:>13.1f} s {plain:>13.1f} s  {ratio:5.2f} x  ≤ {job.ratio:.1f}  {met}")
    for delay in DELAYS:
        if delay.name in times:
            beside, alone, *_ = map(statistics.median, zip(*times[delay.name], strict=True))
            ratio = statistics.median(each.ours / each.plain for each in times[delay.name])
            met = "met" if ratio <= delay.ratio else "MISSED"
            both = f"{beside * 1000:>12.1f} ms {alone * 1000:>12.1f} ms"
            shown.append(f"{delay.name:<16} {both}  {ratio:5.2f} x  ≤ {delay.ratio:.1f}  {met}")
    return shown


def _processors(ours: float, plain: float) -> str:
    """Return how the processor times compare, if they were measured."""
    return f"  {ours:5.1f} s and {plain:5.1f} s of processor time: {plain / ours:.2f} x" if ours and plain else ""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each piece of work (1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds; medians are printed (3)")
    names = [work.name for work in (*WORKS, *JOBS, *DELAYS)]
    parser.add_argument("--only", help=f"what to measure besides write and read, separated by ';': {'; '.join(names)}")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    only = [] if given.only is None else [name.strip() for name in given.only.split(";")]
    if min(given.rows, given.rounds) < 1 or not set(only) <= set(names):
        parser.error("--rows and --rounds must be 1 at least, and --only must name pieces of work")
    require_spark()
    require_java()
    logging.getLogger("sbredis").setLevel(logging.ERROR)  # the server keeps nothing, on purpose
    from benchmarks.spark_plain import Plain
    from benchmarks.spark_works import BODY, Bus, start_spark

    print(f"{find_server(given.server)}\nPython {sys.version.split()[0]}; {given.rows:,} rows of {BODY} B", flush=True)
    with tempfile.TemporaryDirectory(prefix="sbredis-bench-") as name, LocalServer(binary=given.server) as server:
        folder = Path(name)
        spark = start_spark(server.url, folder)
        try:
            bench = Bench(Bus(spark, server.url, folder), Plain(server.url), folder, only)
            times: Times = {}
            if given.rows > WARM:
                bench.round(WARM, swapped=False)
            for number in range(given.rounds):
                for work, seconds in bench.round(given.rows, swapped=number % 2 == 1).items():
                    times.setdefault(work, []).append(seconds)
                print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
            times |= bench.nice(given.rounds)
        finally:
            spark.stop()
    print("", *lines(times, given.rows), sep="\n", flush=True)


if __name__ == "__main__":
    run_as_program(main)
