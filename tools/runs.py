"""Run a benchmark or a proof: ``python -m tools.runs bench|prove WHAT [ARGUMENTS]`` (``make bench``, ``make prove``).

Without WHAT, ``bench`` runs all benchmarks, one after the other, and ``prove`` lists the proofs, which take hours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.repository import ROOT

__all__ = ["RUNS", "LongRun", "choices", "wanted"]

SPARK = (("tools/system-packages", "java"), ("tools/spark",))


@dataclass(frozen=True)
class LongRun:
    """A program that is run by hand, and what is installed for it before."""

    module: str
    purpose: str
    before: tuple[tuple[str, ...], ...] = ()
    options: tuple[str, ...] = ()

    def commands(self, arguments: Sequence[str]) -> list[list[str]]:
        """Return the commands of a run with these arguments."""
        return [*map(list, self.before), [sys.executable, "-m", self.module, *self.options, *arguments]]


BENCHMARKS = {
    "start": LongRun("benchmarks.start", "the start of a process beside redis-py: imports, first connection, commands"),
    "transport": LongRun("benchmarks.transport", "the transport beside redis-py's cluster client"),
    "faults": LongRun("benchmarks.faults", "the effects of faults on callers, beside redis-py"),
    "engine": LongRun(
        "benchmarks.engine",
        "the engine beside bare streams: server time, memory, long queues, bounds, reserved ranges, audit",
    ),
    "forms": LongRun("benchmarks.forms", "one library of functions beside single scripts, on each kind of server"),
    "client": LongRun(
        "benchmarks.client",
        "the client beside NATS and bare streams: ways of calling, partitions, cluster, idle latency",
        (("tools/nats",),),
    ),
    "floor": LongRun(
        "benchmarks.floor",
        "what the client costs for each message, beside a minimal client over the same scripts (2 minutes)",
        (("tools/nats",),),
    ),
    "sessions": LongRun(
        "benchmarks.sessions", "sessions beside a queue: many in one entity, latency, memory, server time"
    ),
    "topics": LongRun("benchmarks.topics", "topics beside a queue: fan-out, filters, many subscriptions"),
    "rules": LongRun("benchmarks.rules", "the rules: filters a second, indexed and not"),
    "due": LongRun("benchmarks.due", "how long calls hold the server while a million messages are due at once"),
    "additions": LongRun(
        "benchmarks.additions", "a handler with context.send beside one with worker.send: CPU of worker and server"
    ),
    "transactions": LongRun(
        "benchmarks.transactions", "a transaction beside its calls alone: server time, through the client, goals"
    ),
    "forward": LongRun("benchmarks.forward", "moves within a slot and between slots: bulk, latency, goals"),
    "growth": LongRun(
        "benchmarks.growth",
        "growth: 500 clients, 100,000 queues, 16,000 idle partitions, 1,000,000 sessions, goals (5 minutes)",
    ),
    "receivers": LongRun(
        "benchmarks.receivers",
        "very many receivers in one process: the longest turn of its loop, memory, idle, goals (6 minutes)",
    ),
    "spark": LongRun(
        "benchmarks.spark", "Spark beside redis-py and pyarrow: reads, writes, streams, jobs, goals", SPARK
    ),
    "spark-growth": LongRun(
        "benchmarks.spark_growth",
        "Spark with 100,000 to 3,000,000 rows in 1 to 16 partitions on three masters (ARGS='--docs docs'; 3 minutes)",
        SPARK,
    ),
    "workers": LongRun(
        "benchmarks.workers",
        "the worker beside other frameworks, all kinds of handlers, with a page for the guide (25 minutes)",
        (("tools/peers",),),
        ("--json", ".cache/bench-workers.json", "--docs", "docs"),
    ),
}
PROOFS = {
    "engine": LongRun("tests.engine.proof.long_run", "the state machine of the engine against its model"),
    "moves": LongRun("tests.engine.proof.moves_run", "moves: movers, receivers and failures"),
    "reserved": LongRun("tests.engine.proof.reserved_run", "reserved ranges: readers that crash, old calls, failovers"),
    "credit": LongRun("tests.engine.proof.credit_run", "credit: receivers, a model, and a network with faults"),
    "grants": LongRun("tests.engine.proof.credit_twin", "credit: the scripts beside the model, with the same faults"),
    "removal": LongRun("tests.registry.removal.run", "the removal of unused entities"),
    "spark": LongRun(
        "tests.spark.chaos.run",
        "Spark's jobs: kills of Python, Java and servers (ARGS='captures --times 4')",
        SPARK,
    ),
    "workers": LongRun(
        "tests.workers.chaos.run",
        "workers: kills, poison, signals, outages, pauses, failovers, memory (ARGS='kills --times 20')",
    ),
    "lanes": LongRun("tests.client.lane_machine", "lanes: lost calls, repetitions, moves, deadlines (a minute)"),
    "bytes": LongRun(
        "tests.hostile.run", "bytes that a decoder does not read as it should (ARGS='message --seconds 600')"
    ),
}
RUNS: Mapping[str, Mapping[str, LongRun]] = {"bench": BENCHMARKS, "prove": PROOFS}


def choices(kind: str) -> str:
    """Return a line for each run of a kind."""
    return "\n".join(f"  make {kind} WHAT={name:<14}{run.purpose}" for name, run in RUNS[kind].items())


def wanted(kind: str, what: str, arguments: Sequence[str]) -> list[list[str]]:
    """Return the commands to run; raise ``ValueError`` if no such run is known, or if the arguments fit no run."""
    runs = RUNS[kind]
    if what:
        if what not in runs:
            raise ValueError(f"WHAT={what} is not known; choose one of\n{choices(kind)}")
        return runs[what].commands(arguments)
    if arguments:
        raise ValueError(f"ARGS are for one run; choose it\n{choices(kind)}")
    return [command for run in runs.values() for command in run.commands(())] if kind == "bench" else []


def main(kind: str, what: str, *arguments: str) -> int:
    try:
        commands = wanted(kind, what, arguments)
    except ValueError as error:
        print(f"make {kind}: {error}", file=sys.stderr)
        return 2
    if not commands:
        print(choices(kind))
        return 0
    signal.signal(signal.SIGINT, lambda *_: None)  # a program that is interrupted ends by itself, with its report
    *earlier, last = commands
    for command in earlier:
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code:
            return code
    os.chdir(ROOT)
    return os.execv(last[0], last)  # noqa: S606 - no shell is needed; the last program gets the signals for this one


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
