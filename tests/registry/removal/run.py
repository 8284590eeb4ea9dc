"""The proof of the removal of unused entities: users, removers that die, failures, deletions and creations.

python -m tests.registry.removal.run [--steps N] [--times N] [--seconds N] [--seed N] [--bugs]

A step is a call of a script. The run ends after enough steps, when each event in ``WANTED`` has happened often enough.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import inspect
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sbredis.engine._scripts import read_source
from sbredis.registry._steps import Steps
from sbredis.transport import Transport, forget_memory, open_transport
from tests.engine.proof.hosts import with_texts_replaced
from tests.registry.removal.bugs import BUGS, Bug
from tests.registry.removal.play import Play
from tests.registry.removal.wanted import WANTED
from tests.registry.removal.witness import Read, Witness

__all__ = ["find", "lacking", "planted", "prove"]


async def example(transport: Transport, chance: random.Random, tally: Counter[str], read: Read = read_source) -> int:
    """Run one example; return the number of its steps."""
    play = Play(transport, Witness(transport, tally, read), chance)
    await play.begin()
    for _ in range(chance.randrange(5, 20)):
        await chance.choice([*[play.round] * 6, play.used_twice, play.last_moment, play.left_waiting])()
    await play.end()
    await transport.command("FLUSHALL", key=b"any")
    return play.steps


def prove(steps: int, tally: Counter[str], *, seed: int, read: Read = read_source) -> int:
    """Run examples until this number of steps is made; return the number of steps. Events are counted in ``tally``."""
    server = uuid.uuid4().hex

    async def run() -> int:
        made, number = 0, 0
        async with await open_transport(f"memory://{server}") as transport:
            while made < steps:
                number += 1
                try:
                    made += await example(transport, random.Random(f"{seed} {number}"), tally, read)
                except BaseException as error:
                    error.add_note(f"example {number} of seed {seed}, after {made} steps")
                    raise
        return made

    try:
        return asyncio.run(run())
    finally:
        forget_memory(server)
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


def find(bug: Bug, steps: int, *, seed: int = 1) -> str | None:
    """Return how the proof finds a planted bug; None if it does not."""
    with planted(bug) as read:
        try:
            prove(steps, Counter(), seed=seed, read=read)
        except (AssertionError, ExceptionGroup) as error:
            return " ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
    return None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000, help="the least number of steps")
    parser.add_argument("--times", type=int, default=100, help="the number of times that each event must have happened")
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which to give up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bugs", action="store_true", help="look for the planted bugs instead")
    given = parser.parse_args()
    if given.bugs:
        missed = 0
        for bug in BUGS:
            how = find(bug, given.steps, seed=given.seed)
            missed += how is None
            _say(f"{'NOT FOUND' if how is None else 'found'}: {bug.name}: {how or ''}")
        return 1 if missed else 0
    started, made, tally, seed = time.monotonic(), 0, Counter[str](), given.seed
    while True:
        made += prove(5_000, tally, seed=seed)
        seed += 1
        short, spent = lacking(tally, given.times), time.monotonic() - started
        _say(f"{made:>9,} steps in {spent:,.0f} s, {len(short)} events too rare: {', '.join(short[:4])}")
        if (made >= given.steps and not short) or spent > given.seconds:
            break
    for what, count in sorted(tally.items()):
        _say(f"{'*' if what in WANTED else ' '} {what:<70}{count:>10,}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
