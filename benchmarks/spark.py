"""Compare Spark on two cores with redis-py and pyarrow in one process: reads, writes, streams and jobs on one server.
It also measures how long messages of another client take while Spark reads, what small pages cost a read, and for how
long a page holds the server. (How reads and writes grow is in benchmarks.spark_growth.)

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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.process_tree import Priority, lower, tree_seconds
from benchmarks.rounds import run_as_program
from benchmarks.spark_neighbour import Delay, Neighbour
from sbredis.servers import LocalServer, find_server
from sbredis.spark import require_java, require_spark

if TYPE_CHECKING:
    from benchmarks.spark_plain import Plain
    from benchmarks.spark_works import Bus

WARM = 20_000
"""The rows of the round that does not count. A short run has none."""


PAGES, ALONE = "read by pages", "p99 alone"
BESIDE, BUSY, FEWER = "p99 beside reads", "p99 beside work", "p99 beside 1 task"
LOWER = {"p99 nice reads": Priority.NICE, "p99 idle reads": Priority.IDLE}
"""The priorities of a Spark that gives way to others, in their order: from the last one, there is no way back."""
SAME = "read 3 columns"
"""The columns that the plain side makes too; other reads of Spark have nine times as many."""
HELD = {"page of 200 B": 200, "page of 4 kB": 4000}
"""The sizes of messages with which pages of the usual size are read, to see for how long each holds the server."""
SHORTEST = 100
"""The µs of the shortest reading call that counts as a page. Calls that only look for a number are shorter."""
MILLISECOND = 0.001
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
DELAYS = (
    Goal(BESIDE, 3.0),
    Goal(BUSY, 1.5),
    *(Goal(name, 3.0) for name in (FEWER, *LOWER)),
    *(Goal(name, 1.0) for name in HELD),
)
"""Compared with the delay of the client alone; with that beside a job of Spark that makes the same rows without a
server; and alone again, but Spark reads in one task, or its processes have a lower priority. If this machine has few
cores, the delay beside processes of the usual priority is mostly that of waiting for a core. The time of a page is the
median in the slow log of the server, compared with a millisecond.
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

    def __init__(self, bus: Bus, plain: Plain, server: LocalServer, folder: Path, only: Sequence[str]) -> None:
        self._bus = bus
        self._server = server
        self._plain = plain
        self._folder = folder
        self._only = only
        self._seconds: dict[str, Pair] = {}
        self._rows = 0
        self.delays: dict[str, list[Delay]] = {}
        """The delays of the other client, by what is beside it, round by round."""

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
        for name, size in HELD.items():
            if self._wants(name):
                self._seconds[name] = Pair(self._held(size), MILLISECOND)
        if self._wants(BESIDE):
            one_task = partial(bus.read, "bench", maxTasks="1")
            alone, beside, busy, fewer = self._delays(partial(bus.make_messages, self._rows), one_task)
            self._seconds[BESIDE], self._seconds[BUSY] = Pair(beside.most, alone.most), Pair(beside.most, busy.most)
            self._seconds[FEWER] = Pair(fewer.most, alone.most)
            self._note_delays({ALONE: alone, BESIDE: beside, BUSY: busy, FEWER: fewer})

    def _held(self, size: int) -> float:
        """Return for how many seconds a page holds the server, as the server itself says."""
        bus, server, files = self._bus, self._server, self._folder / f"rows-of-{size}"
        bus.make_rows(files, max(self._rows * min(HELD.values()) // size, 1), size)
        bus.create("pages")
        bus.write("pages", files)
        server.ask("CONFIG", "SET", "slowlog-log-slower-than", SHORTEST, "slowlog-max-len", 100_000)
        server.ask("SLOWLOG", "RESET")
        bus.read("pages")
        told: Any = server.ask("SLOWLOG", "GET", -1)
        server.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)
        bus.delete("pages")
        # Valkey also logs the commands that a script sends.
        reading = {"FCALL_RO", "EVALSHA_RO"}
        pages: list[int] = [took for _, _, took, command, *_ in told if str(command[0]).upper() in reading]
        return statistics.median(pages or [0]) / 1e6

    def _note_delays(self, found: Mapping[str, Delay]) -> None:
        for name, delay in found.items():
            self.delays.setdefault(name, []).append(delay)

    def _delays(self, *others: Callable[[], object]) -> list[Delay]:
        """Return the delays of another client alone, beside a read, and beside each other work."""
        works: list[Callable[[], object]] = [partial(self._bus.read, "bench"), *others]
        with Neighbour(self._bus.url, self._server.pid) as neighbour:
            time.sleep(QUIET)
            for work in works:
                neighbour.note()
                work()
            neighbour.note()
        return neighbour.delays()

    def lower(self, rounds: int) -> Times:
        """Measure the delay beside reads by a Spark of lower priority. It keeps the last one."""
        wanted = {name: priority for name, priority in LOWER.items() if self._wants(name)}
        if not wanted:
            return {}
        times: Times = {}
        self._bus.create("bench")
        self._bus.write("bench", self._folder / "source")
        for name, priority in wanted.items():
            lower("java", priority)
            for _ in range(rounds):
                alone, beside = self._delays()
                self._note_delays({name: beside})
                times.setdefault(name, []).append(Pair(beside.most, alone.most))
        self._bus.delete("bench")
        return times

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


def delay_lines(delays: Mapping[str, Sequence[Delay]]) -> list[str]:
    """Return a line for each thing beside the other client: what its messages wait for."""
    shown: list[str] = []
    for name, found in delays.items():
        most, mean, client, server = map(statistics.median, zip(*found, strict=True))
        shown.append(
            f"{name:<17} {most * 1000:5.1f} ms, mean {mean * 1000:.2f} ms; for a processor, the client waits "
            f"{client * 1000:.2f} ms a message, and the server {server:.0%} of the time that it needs one"
        )
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
            bench = Bench(Bus(spark, server.url, folder), Plain(server.url), server, folder, only)
            times: Times = {}
            if given.rows > WARM:
                bench.round(WARM, swapped=False)
                bench.delays.clear()
            for number in range(given.rounds):
                for work, seconds in bench.round(given.rows, swapped=number % 2 == 1).items():
                    times.setdefault(work, []).append(seconds)
                print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
            times |= bench.lower(given.rounds)
        finally:
            spark.stop()
    print("", *lines(times, given.rows), *delay_lines(bench.delays), sep="\n", flush=True)


if __name__ == "__main__":
    run_as_program(main)
