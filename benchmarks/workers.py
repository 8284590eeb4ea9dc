"""Compare the worker of sbredis with other frameworks in one run: sends, a worker with 100 at once, and single trips.

The same run compares the kinds of handlers: coroutines, threads, processes, batches, sessions of one message, and
handlers that send.

python -m benchmarks.workers [--peers NAMES] [--loop NAME] [--rounds N] [--messages N] [--trips N] [--short]
                             [--longest SECONDS] [--memory N] [--json FILE] [--docs FOLDER] [--server NAME]
python -m benchmarks.workers --measured FILE --docs FOLDER

The second form only writes the page of the guide again, from the JSON file of a run.

Each measurement has a process and a server of its own. The frameworks take turns, round by round; medians are reported.
A first, shorter round does not count. It also shows who is slow: a framework that would need longer than a minute for
its messages gets fewer, because its speed is given per second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.jetstream import NatsServer
from benchmarks.rounds import run_as_program
from benchmarks.workers_report import (
    COMPARED,
    CONTESTANTS,
    KINDS,
    WORKING,
    Contestant,
    Figures,
    KindFigures,
    Results,
    table,
    verdicts,
    write_page,
)
from benchmarks.works import CONFIG, has
from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers import LocalServer, find_server

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".cache" / "peers"
"""The folder into which ``tools/peers`` installs the other frameworks."""
LONGEST = 60
"""The seconds that the messages of one measurement may take."""
PATIENCE = 300.0
TURNS = 5
"""How often the two ways to send take turns in a round."""
WORKS = (0.0, WORKING)
"""For how many microseconds the handlers compute in the comparison of one process with two."""


class Missing(Exception):  # noqa: N818 -- it is not an error of the benchmark
    """A framework that cannot be measured, and why."""


# -- one measurement ---------------------------------------------------------------------------------------------------


@contextmanager
def server_for(contestant: Contestant, binary: str | None) -> Iterator[str]:
    """Start the server of a contestant, and return its URL. The server ends with the context, and with this process."""
    if contestant.module == "nats":
        with NatsServer(FOLDER) as nats:
            yield nats.url
    else:
        with LocalServer(binary=binary, config=CONFIG) as server:
            yield server.url


def environment(contestant: Contestant) -> dict[str, str]:
    """Return the environment variables of a contestant's process. Only the other frameworks see their packages."""
    paths = [str(ROOT)] if contestant.ours else [str(FOLDER), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def measure(contestant: Contestant, binary: str | None, messages: int, trips: int) -> dict[str, float]:
    """Measure a contestant once, in a process of its own."""
    with server_for(contestant, binary) as url:
        command = [sys.executable, "-m", "benchmarks.peers.trial", contestant.module, url]
        command += ["--messages", str(messages), "--trips", str(trips), "--loop", contestant.loop]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment(contestant),
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"it did not end within {PATIENCE:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Missing(lines[-1][:200] if lines else f"its process ended with the code {done.returncode}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def affordable(first: Mapping[str, float], messages: int, seconds: int) -> int:
    """Return the number of messages that a contestant with these figures sends and handles in a number of seconds."""
    per_second = 1 / (1 / first["sent"] + 1 / first["handled"])
    return max(100, min(messages, int(per_second * seconds) // 100 * 100))


def run_rounds(
    contestants: Sequence[Contestant], binary: str | None, messages: int, trips: int, *, rounds: int, longest: int
) -> Results:
    """Measure all contestants in turn. With 0 rounds, the figures of the first round are returned."""
    taken: dict[Contestant, list[dict[str, float]]] = {each: [] for each in contestants}
    counts: dict[Contestant, int] = {}
    missing: dict[str, str] = {}
    for number in range(rounds + 1):
        for contestant in contestants:
            if contestant.name in missing:
                continue
            began = time.monotonic()
            try:
                count = counts.get(contestant, messages // 10 if rounds else messages)
                figures = measure(contestant, binary, max(100, count), trips if number else min(trips, 20))
            except (Missing, ServerUnsuitableError) as error:
                missing[contestant.name] = str(error)
                continue
            if number or not rounds:
                taken[contestant].append(figures)
            if not number:
                counts[contestant] = affordable(figures, messages, longest)
            if number:
                said = f"round {number}: {contestant.name}, {time.monotonic() - began:.0f} s"
                print(said, file=sys.stderr, flush=True)
    medians = {
        contestant: Figures(
            messages=counts[contestant],
            **{key: statistics.median(each[key] for each in rows) for key in rows[0]},
        )
        for contestant, rows in taken.items()
        if rows and contestant.name not in missing
    }
    return Results(medians, missing)


# -- processes and memory ----------------------------------------------------------------------------------------------


def fill(url: str, messages: int) -> None:
    """Put messages into the queue that the processes empty."""
    import asyncio

    from benchmarks.peers.sbredis import Sbredis
    from sbredis.model import ServiceBusMessage

    async def run() -> None:
        peer = Sbredis(url)
        await peer.open(lambda: None)
        for _ in range(messages // 500):
            await peer.send_all([ServiceBusMessage(b"x" * 1024) for _ in range(500)])
        await peer.close()

    asyncio.run(run())


def drained(binary: str | None, processes: int, messages: int, work: float = 0.0) -> float:
    """Return the messages a second that a number of worker processes handle together.

    A handler computes for ``work`` microseconds.
    """
    command = [sys.executable, "-m", "benchmarks.peers.drain", "--work", str(work)]
    with LocalServer(binary=binary, config=CONFIG) as server, ExitStack() as stack:
        fill(server.url, messages)
        started: list[subprocess.Popen[str]] = []
        for _ in range(processes):
            process = subprocess.Popen(
                [*command, server.url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(_end, process)
            started.append(process)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        figures: list[dict[str, float]] = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in started]
    worked = [each for each in figures if each["count"]]
    wall = max(each["last"] for each in worked) - min(each["first"] for each in worked)
    return sum(each["count"] for each in worked) / wall


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def scaling(binary: str | None, messages: int, rounds: int) -> Mapping[float, tuple[float, float]]:
    """Return, for each time that a handler computes, the messages a second of one worker process, and of two.

    One process with an empty handler takes as many messages as one server gives out, so a second one cannot add any.
    """
    found: dict[float, tuple[float, float]] = {}
    for work in WORKS:
        rates = [[drained(binary, processes, messages, work) for processes in (1, 2)] for _ in range(rounds)]
        one, two = map(statistics.median, zip(*rates, strict=True))
        found[work] = one, two
    return found


def turns_of(binary: str | None, kinds: Sequence[str], messages: int, turns: int) -> list[dict[str, dict[str, float]]]:
    """Measure kinds of handlers in turns, in one process. Return the figures of each turn, by kind."""
    with LocalServer(binary=binary, config=CONFIG) as server:
        command = [sys.executable, "-m", "benchmarks.peers.kinds", server.url, *kinds]
        command += ["--messages", str(messages), "--rounds", str(turns)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def kinds_of_handlers(binary: str | None, messages: int, rounds: int) -> Mapping[str, KindFigures]:
    """Return the medians of all kinds of handlers, which take turns. With 0 rounds, each is measured once.

    The two ways to send are compared with each other. So they take turns in one process, several times in each round.
    """
    rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    groups = [*((kind,) for kind in KINDS if kind not in COMPARED), COMPARED]
    for number in range(rounds or 1):
        for group in groups:
            for figures in turns_of(binary, group, messages, TURNS if rounds and len(group) > 1 else 1):
                for kind, each in figures.items():
                    rows[kind].append(each)
        if rounds:
            print(f"round {number + 1} of the kinds of handlers", file=sys.stderr, flush=True)
    return {
        kind: KindFigures(**{key: statistics.median(each[key] for each in taken) for key in taken[0]})
        for kind, taken in rows.items()
    }


def memory(binary: str | None, messages: int) -> dict[str, float]:
    """Return how the memory of a worker changes while it handles many messages."""
    with LocalServer(binary=binary, config=CONFIG) as server:
        command = [sys.executable, "-m", "benchmarks.peers.drain", server.url, "--flat", str(messages)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# -- the program -------------------------------------------------------------------------------------------------------


def chosen(names: str | None, loop: str | None) -> list[Contestant]:
    """Return the contestants with these names, separated by commas; all of them without names."""
    wanted = None if names is None else {name.strip() for name in names.split(",")}
    loops = {loop} if loop else {"asyncio", "uvloop"} if has("uvloop") else {"asyncio"}
    return [each for each in CONTESTANTS if (wanted is None or each.peer in wanted) and each.loop in loops]


def main() -> None:
    """Measure, print the table, and write the figures and the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--peers", help=f"which to measure, of: {', '.join(dict.fromkeys(e.peer for e in CONTESTANTS))}"
    )
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], help="only on this event loop")
    parser.add_argument("--rounds", type=int, help="measured rounds; medians are printed (5)")
    parser.add_argument("--messages", type=int, help="messages for each measurement (20,000)")
    parser.add_argument("--trips", type=int, help="single trips for each measurement (300)")
    parser.add_argument(
        "--longest", type=int, default=LONGEST, help="the seconds of one measurement; who is slower gets fewer messages"
    )
    parser.add_argument("--short", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--memory", type=int, metavar="N", help="also handle N messages, and report the memory")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--docs", type=Path, help="the folder of the guide, which gets its page and picture if all are measured"
    )
    parser.add_argument("--measured", type=Path, help="measure nothing, and take the figures from this JSON file")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    messages, rounds, trips = (200, 0, 10) if given.short else (20_000, 5, 300)
    messages, trips = given.messages or messages, given.trips or trips
    rounds = rounds if given.rounds is None else given.rounds
    contestants = chosen(given.peers, given.loop)
    if not contestants:
        parser.error(f"there is no peer of this name: {given.peers}")
    if min(messages, trips, given.longest, 1 if given.memory is None else given.memory) < 1 or rounds < 0:
        parser.error("--messages, --trips, --longest and --memory must be 1 at least, and --rounds 0")
    if given.docs is not None and not (given.docs / "workers").is_dir():
        parser.error(f"there is no guide in {given.docs}")
    if given.measured is not None:
        if given.docs is None:
            parser.error("--measured writes a page of the guide: add --docs")
        _write_page(Results.read(json.loads(given.measured.read_text("utf-8"))), given.docs)
        return
    program = find_server(given.server)
    print(
        f"{program}\n"
        f"with its append-only file on; Python {sys.version.split()[0]}; a server and a process for each measurement\n"
        f"{messages:,} messages of 1,024 B, {trips:,} single trips; medians, rounds: {rounds or 1}",
        flush=True,
    )
    results = run_rounds(contestants, given.server, messages, trips, rounds=rounds, longest=given.longest)
    version = ".".join(map(str, program.version))
    results.where = (
        f"{program.flavour.capitalize()} {version} with its append-only file on, Python {sys.version.split()[0]}, "
        f"{messages:,} messages of 1,024 B, {trips:,} single messages; medians, rounds: {rounds or 1}"
    )
    if any(each.ours for each in contestants):
        results.kinds = kinds_of_handlers(given.server, max(100, messages // 4), rounds)
    if rounds and any(each.ours for each in contestants):
        results.processes = scaling(given.server, max(500, messages * 4), min(rounds, 3))
        if given.memory:
            results.memory = memory(given.server, given.memory)
    print("", *table(results), "", *verdicts(results), sep="\n", flush=True)
    if given.short:
        print("A short run: its figures show only that it works.")
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(results.plain(), indent=1) + "\n", "utf-8")
        print(f"written: {given.json}")
    if given.docs is not None and not (given.peers or given.loop or given.short):
        _write_page(results, given.docs)


def _write_page(results: Results, folder: Path) -> None:
    for path in write_page(results, folder):
        print(f"written: {path}")


if __name__ == "__main__":
    run_as_program(main)
