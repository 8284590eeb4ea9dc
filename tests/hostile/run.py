"""The long search for bytes that a decoder does not read as it should, in several processes.

python -m tests.hostile.run [DECODER …] [--inputs N] [--seconds N] [--seed N] [--workers N]

Each decoder gets at least a million inputs, or as many as there is time for. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.hostile.trials import SECONDS, Decoder, Finding, Search, input_of, search

__all__ = ["search_all"]

_SHARE = 20_000
"""The inputs that a worker tries at a time."""
_MORE_MEMORY = 2 * 1024 * 1024 * 1024
_HANGS_AFTER = 5 * SECONDS
"""The processor time after which a worker is ended by the system, because a decoder does not even take a signal."""


def _numbers(begin: int, end: int, until: float) -> Iterator[int]:
    for number in range(begin, end):
        if not number % 64 and time.monotonic() > until:
            return
        yield number


def _work(decoders: Mapping[str, Decoder], tasks: Connection, current: Any, most: int) -> None:
    """Do tasks until there are none."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _size() + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    def note(number: int) -> None:
        current.value = number
        signal.setitimer(signal.ITIMER_PROF, _HANGS_AFTER)

    while (task := tasks.recv()) is not None:
        name, seed, begin, end, until = task
        tasks.send((name, search(decoders[name], seed, _numbers(begin, end, until), most=most, note=note)))


def _size() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGESIZE")


class _Worker:
    """A process that tries inputs."""

    def __init__(self, decoders: Mapping[str, Decoder], most: int) -> None:
        # A fork, because it has all decoders already, and planted ones too.
        context = multiprocessing.get_context("fork")
        self.current = context.Value("q", -1, lock=False)
        self.pipe, theirs = context.Pipe()
        self.task: tuple[str, int, int, int, float] | None = None
        self.process = context.Process(target=_work, args=(decoders, theirs, self.current, most), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, task: tuple[str, int, int, int, float] | None) -> None:
        self.task = task
        self.current.value = -1
        self.pipe.send(task)

    def result(self, decoders: Mapping[str, Decoder]) -> tuple[Search, tuple[str, int, int, int, float] | None]:
        """Return the result of the task, and the rest of the task that is left.

        If the system has ended the process, its last input is tried once more, alone: a machine that was halted for a
        while charges the time to whoever ran. An input that ends a second process has been found.
        """
        assert self.task is not None
        try:
            return self.pipe.recv()[1], None
        except EOFError:
            self.process.join()
            name, seed, begin, end, until = self.task
            number = int(self.current.value)
            if number < 0:
                number = begin
            if end - begin > 1:
                return Search(number - begin, 0, []), (name, seed, number, end, until)
            shown = repr(input_of(decoders[name], seed, number))[:300]
            what = f"the process ended with {self.process.exitcode}: it hangs, or has crashed"
            return Search(1, 0, [Finding(name, number, what, shown)]), None


def search_all(
    decoders: Mapping[str, Decoder],
    *,
    inputs: int,
    seconds: float,
    seed: int = 1,
    workers: int = 2,
    names: list[str] | None = None,
    most: int = 5,
) -> dict[str, Search]:
    """Search all decoders in turn, a share of inputs at a time, and return what was found, by name.

    A decoder with findings is not searched on; ``most`` limits the findings of one share.
    """
    until = time.monotonic() + seconds
    totals = {name: Search(0, 0, []) for name in names or decoders}
    begun = dict.fromkeys(totals, 0)
    order = iter([name for _ in range(0, inputs, _SHARE) for name in totals])
    left: list[tuple[str, int, int, int, float]] = []
    """What is left of tasks whose process was ended, the input that it read first."""
    free = [_Worker(decoders, most) for _ in range(workers)]
    busy: list[_Worker] = []
    try:
        for round_ in count():
            while free and left:
                task = left.pop()
                if not totals[task[0]].findings:
                    worker = free.pop()
                    worker.give(task)
                    busy.append(worker)
            while free and time.monotonic() < until and (name := next(order, None)) is not None:
                if totals[name].findings:
                    continue
                worker, begin = free.pop(), begun[name]
                begun[name] = min(begin + _SHARE, inputs)
                worker.give((name, seed, begin, begun[name], until))
                busy.append(worker)
            if not busy:
                return totals
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                busy.remove(worker)
                assert worker.task is not None
                name = worker.task[0]
                found, rest = worker.result(decoders)
                if rest is not None:
                    _, _, number, end, _ = rest
                    left += [(name, seed, number + 1, end, until)] * (number + 1 < end)
                    left.append((name, seed, number, number + 1, until))
                before = totals[name]
                totals[name] = Search(
                    before.trials + found.trials, before.values + found.values, before.findings + found.findings
                )
                free.append(worker if worker.process.is_alive() else _Worker(decoders, most))
            if not round_ % 50:
                _say(f"{sum(total.trials for total in totals.values()):>12,} inputs")
    finally:
        for worker in [*free, *busy]:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
    raise AssertionError("the loop ends with a return")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the search of the command line, and print a table."""
    from tests.hostile.decoders import DECODERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decoders", nargs="*", metavar="DECODER", help="the beginnings of names; all by default")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3 * 3600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    given = parser.parse_args()
    names = [name for name in DECODERS if not given.decoders or name.startswith(tuple(given.decoders))]
    if not names:
        parser.error(f"there is no such decoder; there are {', '.join(DECODERS)}")
    totals = search_all(
        DECODERS, inputs=given.inputs, seconds=given.seconds, seed=given.seed, workers=given.workers, names=names
    )
    _say(f"{'decoder':<28}{'inputs':>12}{'read':>12}{'findings':>10}")
    for name, total in totals.items():
        _say(f"{name:<28}{total.trials:>12,}{total.values:>12,}{len(total.findings):>10}")
    for total in totals.values():
        for finding in total.findings:
            _say(f"\nseed {given.seed}: {finding}")
    return 1 if any(total.findings for total in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
