"""The long run of the proof: it ends after enough steps, when each required case has happened often enough.

python -m tests.engine.proof.long_run [--steps N] [--times N] [--seconds N] [--workers N]

By default it makes at least 100,000 steps, until each required case has happened 100 times, in two processes.
It directs itself to the cases that are lacking, and stops as soon as no case is lacking.
The run prints a table of all cases: operations, transitions, refusals, and repeated calls.
The run fails as soon as the scripts and the model disagree, or if a case is too rare when the time is over.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, NamedTuple

from sbredis.servers import LocalServer
from tests.engine.proof.cases import TITLES, Case, lacking, table, times
from tests.engine.proof.comparison import Tally
from tests.engine.proof.directing import home
from tests.engine.proof.extent import BOUNDS, MACHINES, SHARES, drive
from tests.engine.proof.hosts import KINDS, Address, Kind, host, with_bounds
from tests.engine.proof.transaction_scenes import SCENES


def total(*tallies: Tally) -> Tally:
    """Return the sum of counts."""
    whole = Tally()
    for one in tallies:
        whole.steps += one.steps
        whole.left_more += one.left_more
        for name in TITLES:
            counter: Counter[Any] = getattr(whole, name)
            counter.update(getattr(one, name))
    return whole


class Part(NamedTuple):
    """A part of the run: some examples of a machine on a host whose scripts have these bounds."""

    what: str
    kind: Kind
    bounds: str
    sought: tuple[Case, ...] | None
    """The cases to which the part is directed; None for any, by chance."""

    def run(self, address: Address) -> Tally:
        """Run this part in a worker, with the server of this worker."""
        done, bounds = Tally(), BOUNDS[self.bounds]
        try:
            with host(self.kind, with_bounds(bounds), server=address) as on:
                examples = round((4 if self.kind == "memory" else 8) / SHARES[self.what])
                drive(on, done, bounds=bounds, examples=examples, begin_at=None, what=self.what, sought=self.sought)
        except Exception as error:  # noqa: BLE001 -- a worker cannot send every exception
            raise AssertionError("".join(traceback.format_exception(error))) from None
        return done


class Run:
    """The counts of all parts that have ended, and the choice of the next part."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.of_kind: dict[str, Tally] = {kind: Tally() for kind in KINDS}
        self.of_machine: dict[str, Tally] = {what: Tally() for what in MACHINES}
        self.whole = Tally()
        self._begun = 0

    @property
    def short(self) -> list[Case]:
        return lacking(self.whole, self.least)

    def next(self) -> Part:
        """Return the next part: first each machine on each server by chance, then mostly what makes the cases happen
        that are lacking. Every fourth part goes on by chance.
        """
        place, self._begun = self._begun, self._begun + 1
        first: list[tuple[str, Kind]] = [(what, kind) for kind in reversed(KINDS) for what in MACHINES]
        if place < len(first):
            what, kind = first[place]
            return Part(what, kind, [*BOUNDS][place % 2], None)
        # Steps in memory take several times as long.
        later: Kind = "memory" if place % 16 == 0 else "library" if place % 2 else "server"
        if not self.short or place % 4 == 0:
            steps = {what: tally.steps / SHARES[what] for what, tally in self.of_machine.items()}
            return Part(min(steps, key=steps.__getitem__), later, [*BOUNDS][place // 4 % 2], None)
        return self._directed(later, place)

    def _directed(self, kind: Kind, place: int) -> Part:
        """Return a part for the machine at which most is lacking. The rarest cases are chosen most often."""
        missing: Counter[str] = Counter()
        for case in self.short:
            missing[home(case)] += self.least - times(self.whole, case)
        what = max(missing, key=missing.__getitem__)
        sought = [case for case in self.short if home(case) == what]
        weighed = [case for case in sought for _ in range(1 + 4 * (self.least - times(self.whole, case)) // self.least)]
        narrow = place % 3 or any((scene := SCENES.get((one.kind, one.key))) and scene.narrow for one in sought[:8])
        return Part(what, kind, "narrow" if narrow else "real", tuple(weighed))

    def add(self, part: Part, done: Tally) -> str:
        """Count a part that has ended. Return the state of the run."""
        self.of_kind[part.kind] = total(self.of_kind[part.kind], done)
        self.of_machine[part.what] = total(self.of_machine[part.what], done)
        self.whole = total(self.whole, done)
        rarest = sorted(self.short, key=lambda case: times(self.whole, case))
        named = ", ".join(map(str, rarest[:4]))
        where = f"{part.what} on {part.kind}, {'directed' if part.sought else 'by chance'}"
        return f"{self.whole.steps:>9,} steps ({where}), {len(rarest)} cases too rare: {named}"


def _say(*lines: str) -> None:
    """Print output for the person at the terminal at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def drive_all(run: Run, given: argparse.Namespace, started: float) -> None:
    """Run parts side by side until the run is long enough."""
    with ExitStack() as stack:
        workers = stack.enter_context(ProcessPoolExecutor(given.workers))
        servers = [stack.enter_context(LocalServer()) for _ in range(given.workers)]
        free = [Address(server.host, server.port) for server in servers]
        parts: dict[Future[Tally], tuple[Part, Address]] = {}
        ends = False
        while parts or not ends:
            while free and not ends:
                part, address = run.next(), free.pop()
                parts[workers.submit(part.run, address)] = part, address
            for future in wait(parts, return_when=FIRST_COMPLETED).done:
                part, address = parts.pop(future)
                free.append(address)
                _say(f"{time.monotonic() - started:>6,.0f} s {run.add(part, future.result())}")
            enough = run.whole.steps >= given.steps and not run.short
            ends = enough or time.monotonic() - started > given.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="the least number of steps, on all hosts together")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each case must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    given = parser.parse_args()
    started, run = time.monotonic(), Run(given.times)
    try:
        drive_all(run, given, started)
    finally:  # the table says what was done before a failure, too
        _say("", *table(run.of_kind, given.times))
    _say(f"\n{run.whole.steps:,} steps in {time.monotonic() - started:,.0f} s without a disagreement")
    if run.short:
        _say(f"less often than {given.times} times: {', '.join(map(str, run.short))}")
    return 1 if run.short else 0


if __name__ == "__main__":
    sys.exit(main())
