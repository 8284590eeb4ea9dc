"""The proof of the removal of unused entities: users, removers that die, failures, deletions and creations.

python -m tests.registry.removal.run [--steps N] [--times N] [--seconds N] [--seed N] [--workers N] [--bugs]

A step is a call of a script. The run ends after enough steps, when each event in ``WANTED`` has happened often enough.
It learns which scenes make an event happen, and plays those scenes most often that make the rarest events happen.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import inspect
import logging
import random
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sbredis.engine._lua_files import read_source
from sbredis.registry._steps import Steps
from sbredis.servers import LocalServer
from sbredis.transport import Transport, forget_memory
from tests.engine.opening import open_with_scripts
from tests.engine.proof.bugs import Bug
from tests.engine.proof.hosts import with_texts_replaced
from tests.registry.removal.bugs import BUGS
from tests.registry.removal.scenes import SCENES, Scenes
from tests.registry.removal.wanted import WANTED
from tests.registry.removal.witness import Read, Witness

__all__ = ["find", "lacking", "planted", "prove"]


Weights = Mapping[str, float]
"""How often a run plays each scene, compared with the others."""


@dataclass
class Learned:
    """The events that the scenes of a run made happen, and their steps."""

    events: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in SCENES})
    steps: Counter[str] = field(default_factory=Counter[str])
    times: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Learned) -> None:
        for name, events in other.events.items():
            self.events[name] += events
        self.steps += other.steps
        self.times += other.times

    def weights(self, tally: Counter[str], times: int) -> Weights:
        """Return the weights of the scenes: for each event that is too rare, the scenes that make it happen soonest."""
        rates = {name: {what: count / self.steps[name] for what, count in self.events[name].items()} for name in SCENES}
        weights = dict.fromkeys(SCENES, 0.0)
        for what in lacking(tally, times):
            best = max(rate.get(what, 0) for rate in rates.values())
            for name, rate in rates.items():
                if what in rate:  # what is too rare gets steps, which are turned into a number of scenes
                    share = (times - tally[what]) / times * (rate[what] / best) ** 2
                    weights[name] += share * self.times[name] / self.steps[name]
        most = max(weights.values())
        return {name: weights[name] + 0.02 * most for name in SCENES} if most else SCENES


async def example(
    transport: Transport,
    chance: random.Random,
    tally: Counter[str],
    *,
    read: Read = read_source,
    weights: Weights = SCENES,
    learned: Learned | None = None,
) -> int:
    """Run one example; return the number of its steps."""
    play = Scenes(transport, Witness(transport, tally, read), chance)
    await play.begin()
    for name in chance.choices([*weights], [*weights.values()], k=chance.randrange(5, 20)):
        before, steps = tally.copy(), play.steps
        await getattr(play, name)()
        if learned is not None:
            learned.events[name] += tally - before
            learned.steps[name] += play.steps - steps
            learned.times[name] += 1
    await play.end()
    await transport.command("FLUSHALL", key=b"any")
    return play.steps


def prove(
    steps: int,
    tally: Counter[str],
    *,
    seed: int,
    read: Read = read_source,
    weights: Weights = SCENES,
    learned: Learned | None = None,
    url: str = "",
) -> int:
    """Run examples until this number of steps is made; return the number of steps. Events are counted in ``tally``.

    By default the server is in memory. A server at ``url`` belongs to the run alone, and takes less time.
    """
    memory = uuid.uuid4().hex

    async def run() -> int:
        made, number = 0, 0
        async with await open_with_scripts(url or f"memory://{memory}") as transport:
            while made < steps:
                number += 1
                try:
                    chance = random.Random(f"{seed} {number}")
                    made += await example(transport, chance, tally, read=read, weights=weights, learned=learned)
                except BaseException as error:
                    error.add_note(f"example {number} of seed {seed}, after {made} steps, with the weights {weights}")
                    raise
        return made

    try:
        return asyncio.run(run())
    finally:
        forget_memory(memory)
        gc.collect()  # an in-memory server ends as a reference cycle


def lacking(tally: Counter[str], times: int) -> list[str]:
    """Return the events that have happened less often than this."""
    return [what for what in WANTED if tally[what] < times]


@contextmanager
def planted(bug: Bug) -> Iterator[Read]:
    """Plant a bug, and take it out again. Yield the function that reads the scripts."""
    if not bug.file.startswith("sbredis."):
        yield with_texts_replaced({bug.file: [(bug.right, bug.wrong)]}, read_source)
        return
    source = inspect.getsource(importlib.import_module(bug.file))
    if source.count(bug.right) != 1:
        raise LookupError(f"{bug.file} does not hold {bug.right!r} once")
    changed: dict[str, Any] = {"__name__": bug.file}
    exec(compile(source.replace(bug.right, bug.wrong), bug.file, "exec"), changed)  # noqa: S102 -- it is this project's
    with pytest.MonkeyPatch.context() as patch:
        if bug.file.endswith("_steps"):
            for name, method in inspect.getmembers(changed["Steps"], inspect.isfunction):
                patch.setattr(Steps, name, method)
        else:
            patch.setattr("sbredis.registry._namespace.remove_if_idle", changed["remove_if_idle"])
        yield read_source


def find(bug: Bug, steps: int, *, seed: int = 1, url: str = "") -> str | None:
    """Return how the proof finds a planted bug; None if it does not."""
    with planted(bug) as read:
        try:
            prove(steps, Counter(), seed=seed, read=read, url=url)
        except (AssertionError, ExceptionGroup) as error:
            return " ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
    return None


def _search(bug: Bug, steps: int, seed: int) -> str | None:
    """Search for a planted bug in a worker."""
    with LocalServer() as server:
        return find(bug, steps, seed=seed, url=server.url)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _part(seed: int, weights: Weights) -> tuple[int, Counter[str], Learned]:
    """Run a part in a worker."""
    tally, learned = Counter[str](), Learned()
    try:
        with LocalServer() as server:
            made = prove(2_000, tally, seed=seed, weights=weights, learned=learned, url=server.url)
    except Exception as error:  # noqa: BLE001 -- a worker cannot send every exception
        raise AssertionError("".join(traceback.format_exception(error))) from None
    return made, tally, learned


def _run(tally: Counter[str], given: argparse.Namespace, started: float) -> None:
    """Run parts side by side until the run is long enough."""
    made, seed, learned, ends = 0, given.seed, Learned(), False
    with ProcessPoolExecutor(given.workers) as workers:
        parts: set[Future[tuple[int, Counter[str], Learned]]] = set()
        while parts or not ends:
            while len(parts) < given.workers and not ends:
                known = made >= 3_000 and seed % 4
                weights = learned.weights(tally, given.times) if known else SCENES
                parts.add(workers.submit(_part, seed, weights))
                seed += 1
            done, parts = wait(parts, return_when=FIRST_COMPLETED)
            for part in done:
                steps, events, of_scenes = part.result()
                made += steps
                tally += events
                learned.add(of_scenes)
            short, spent = lacking(tally, given.times), time.monotonic() - started
            rarest = ", ".join(sorted(short, key=tally.__getitem__)[:4])
            _say(f"{made:>9,} steps in {spent:,.0f} s, {len(short)} events too rare: {rarest}")
            ends = (made >= given.steps and not short) or spent > given.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="the least number of steps")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each event must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    parser.add_argument("--bugs", action="store_true", help="look for the planted bugs instead")
    given = parser.parse_args()
    logging.getLogger("sbredis").setLevel(logging.ERROR)  # the servers keep no files, and the client says so
    if given.bugs:
        missed = 0
        with ProcessPoolExecutor(given.workers) as workers:
            searches = {workers.submit(_search, bug, given.steps, given.seed): bug for bug in BUGS}
            for search in as_completed(searches):
                how = search.result()
                missed += how is None
                _say(f"{'NOT FOUND' if how is None else 'found'}: {searches[search].name}: {(how or '')[:200]}")
        return 1 if missed else 0
    started, tally = time.monotonic(), Counter[str]()
    try:
        _run(tally, given, started)
    finally:  # the table says what was done before a failure, too
        for what in sorted({*tally, *WANTED}):
            _say(f"{'*' if what in WANTED else ' '} {what:<70}{tally[what]:>10,}")
    return 1 if lacking(tally, given.times) else 0


if __name__ == "__main__":
    sys.exit(main())
