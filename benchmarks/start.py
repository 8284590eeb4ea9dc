"""Measure the start of a process: imports, the first connection with its first call, and commands.

python -m benchmarks.start [--rounds N]

Each figure is the processor time of a new process, without that of an empty Python. The rounds alternate between all
programs. The figure is the median, and the range in parentheses is the middle half of the rounds. Beside sbredis is the
asynchronous client of redis-py, and azure-servicebus if it is installed. The figures with a goal say whether they meet
it; the goals are for a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.rounds import run_as_program
from sbredis.servers import LocalServer

SENDING = """
import asyncio
from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient

async def main():
    async with ServiceBusClient("URL") as client, client.get_queue_sender("q", create_if_missing=True) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
"""
CALLING = """
import asyncio
from redis.asyncio import Redis

async def main():
    async with Redis.from_url("URL") as client:
        await client.set("k", "x")
"""
RUN = "\nasyncio.run(main())\n"
COMMAND = "import sys; from sbredis.cli import main; sys.argv[1:] = ARGUMENTS; sys.exit(main())"


class Start(NamedTuple):
    """A program whose start is measured."""

    code: str
    beside: str = ""
    """The program whose time is taken off: the same without its last part."""
    goal: float | None = None
    """The most milliseconds that it shall take."""


def programs(url: str) -> Mapping[str, Start]:
    """Return the programs, by what they show."""
    shown = {
        "import of sbredis.aio.ServiceBusClient": Start("from sbredis.aio import ServiceBusClient", goal=150),
        "import redis.asyncio": Start("import redis.asyncio"),
        "sbredis: first connection and message": Start(SENDING + RUN, SENDING, goal=60),
        "redis-py: first connection and call": Start(CALLING.replace("URL", url.partition("?")[0]) + RUN, CALLING),
        "sbredis --version": Start(COMMAND.replace("ARGUMENTS", repr(["--version"]))),
        "sbredis queue list": Start(COMMAND.replace("ARGUMENTS", repr(["--url", url, "queue", "list"])), goal=250),
    }
    if find_spec("azure") is not None and find_spec("azure.servicebus") is not None:
        shown["import azure.servicebus.aio"] = Start("import azure.servicebus.aio")
    return {name: start._replace(code=start.code.replace("URL", url)) for name, start in shown.items()}


def cpu_of(code: str, environment: Mapping[str, str]) -> float:
    """Return the processor time of a new process that runs this code, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=dict(environment))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def measure(url: str, rounds: int) -> Mapping[str, list[float]]:
    """Return the times of each program, round by round. The first round, which compiles the modules, does not count."""
    shown = programs(url)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cache = str(Path(".cache/bytecode").absolute())
    environment = {**kept, "PYTHONPYCACHEPREFIX": kept.get("PYTHONPYCACHEPREFIX", cache)}
    times: dict[str, list[float]] = {name: [] for name in shown}
    for number in range(rounds + 1):
        bare = {code: cpu_of(code, environment) for code in ("pass", SENDING, CALLING)}
        for name, start in shown.items():
            took = cpu_of(start.code, environment) - bare[start.beside or "pass"]
            if number:
                times[name].append(took)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="how often each program starts (15)")
    rounds = parser.parse_args().rounds
    with LocalServer() as server:
        url = f"{server.url}?scripts=auto"
        goals = {name: start.goal for name, start in programs(url).items()}
        for name, times in measure(url, rounds).items():
            low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
            goal = goals[name]
            said = "" if goal is None else f"   goal {goal:.0f}: {'met' if middle <= goal else 'MISSED'}"
            print(f"{name:<40} {middle:6.0f} ms  ({low:.0f}-{high:.0f}){said}", flush=True)


if __name__ == "__main__":
    run_as_program(main)
