"""The long form of the tests of workers that are killed, terminated and cut off.

python -m tests.workers.chaos.run [SCENE ...] [--times N] [--kinds KIND,...] [--workers N] [--messages N]

It takes half an hour. The scene ``receivers`` has 250 receivers in ten processes, and 50,000 messages. Each handler
writes down that it starts, and a run fails if two handlers had a message at once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from sbredis.servers import LocalCluster, LocalServer
from tests.workers.chaos.clocks import Clocks
from tests.workers.chaos.growth import handled, resident
from tests.workers.chaos.mixed import PLACES, mixed
from tests.workers.chaos.poison import poison
from tests.workers.chaos.programs import AT_ONCE
from tests.workers.chaos.scenes import failovers, kills, outages, pauses, terminations

__all__ = ["SCENES"]

ALL_KINDS = ("plain", "thread", "session", "batch", "process")


async def _kills(given: argparse.Namespace, folder: Path) -> str:
    with LocalServer() as server:
        return await kills(server, folder, given.times, given.kinds, given.workers)


async def _poison(given: argparse.Namespace, folder: Path) -> str:
    with LocalServer() as server:
        return await poison(server, folder, given.times, given.kinds, given.workers)


async def _terminations(given: argparse.Namespace, folder: Path) -> str:
    with LocalServer() as server:
        return await terminations(server, folder, given.times, given.kinds, given.workers)


async def _outages(given: argparse.Namespace, folder: Path) -> str:
    return await outages(folder, max(1, given.times // 10), given.kinds, given.workers, 10.0)


async def _pauses(given: argparse.Namespace, folder: Path) -> str:
    with LocalServer() as server:
        return await pauses(server, folder, given.times, given.kinds, given.workers)


async def _failovers(given: argparse.Namespace, folder: Path) -> str:
    said: list[str] = []
    for replicated in (True, False):
        own = folder / str(replicated)
        own.mkdir()
        kinds = ("plain", "session") if replicated else ("plain",)
        with LocalCluster(3, 1, node_timeout=2000) as cluster:
            said.append(await failovers(cluster, own, max(2, given.times // 2), kinds, replicated=replicated))
    return "; ".join(said)


async def _memory(given: argparse.Namespace, folder: Path) -> str:
    del folder
    sizes: list[float] = []
    rounds = 20

    def look(number: int) -> None:
        sizes.append(resident())
        sys.stdout.write(f"{number * given.messages // rounds:>12,} messages: {sizes[-1]:.1f} MB\n")
        sys.stdout.flush()

    with LocalServer() as server:
        await handled(server.url, rounds, given.messages // rounds, look)
    steady = sizes[2:]  # by then everything is made that is made once
    assert max(steady) - min(steady) <= 10, "the memory is not flat within 5 MB"
    middle = (max(steady) + min(steady)) / 2
    return f"{given.messages:,} messages, {middle:.1f} MB ± {max(steady) - middle:.1f} MB"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _receivers(given: argparse.Namespace, folder: Path) -> str:
    with PLACES[given.on](given.binary, folder) as place:
        return await mixed(
            *(place, folder, 1),
            seconds=given.seconds,
            seed=given.seed,
            said=_say,
            kinds=("receivers",),
            processes=250 // AT_ONCE["receivers"],
            messages=min(given.messages, 50_000),
        )


async def _mixed(given: argparse.Namespace, folder: Path) -> str:
    clocks = None if given.clocks is None else Clocks(given.clocks, given.binary, folder)
    with PLACES[given.on](given.binary if clocks is None else str(clocks.program), folder) as place:
        if clocks is not None:
            place.set_clocks(clocks)
        return await mixed(place, folder, given.times, seconds=given.seconds, seed=given.seed, said=_say)


SCENES: dict[str, Callable[[argparse.Namespace, Path], Coroutine[Any, Any, str]]] = {
    "kills": _kills,
    "poison": _poison,
    "terminations": _terminations,
    "outages": _outages,
    "pauses": _pauses,
    "failovers": _failovers,
    "memory": _memory,
    "mixed": _mixed,
    "receivers": _receivers,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"{', '.join(SCENES)}; all of them by default")
    parser.add_argument("--times", type=int, default=20, help="how often each thing happens (20)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="how many messages the memory is measured with")
    parser.add_argument("--workers", type=int, default=4, help="how many processes work (4)")
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=ALL_KINDS, help="the entities")
    parser.add_argument("--on", choices=PLACES, default="cluster", help="mixed, receivers: the servers (cluster)")
    parser.add_argument("--binary", help="mixed: the program of the servers, such as path:redis-server")
    parser.add_argument("--clocks", type=Path, metavar="FILE", help="mixed: set clocks, by this libfaketime.so.1")
    parser.add_argument("--seconds", type=float, default=20, help="mixed: how long a round causes faults (20)")
    parser.add_argument("--seed", type=int, default=0, help="mixed: another number gives other faults (0)")
    given = parser.parse_args()
    for scene in given.scenes or SCENES:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            said: str = asyncio.run(SCENES[scene](given, Path(folder)))
        sys.stdout.write(f"{scene:>14} x {given.times}: {said}; {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
