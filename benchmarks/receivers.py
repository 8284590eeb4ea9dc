"""Very many receivers in one process: the longest turn of its event loop, and what a receiver costs.

python -m benchmarks.receivers [--part NAME]... [--seconds N] [--code FOLDER] [--save FILE] [--beside FILE] [--short]
    [--server NAME]

Each part has a server and a process of its own. A turn is measured by the processor time of its thread, so other
programs do not count. ``--code`` measures another checkout of sbredis, for example of an older release. ``--save`` and
``--beside`` are those of ``benchmarks.growth``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.growth import Figure, line_of
from benchmarks.works import CONFIG
from sbredis.servers import LocalServer, find_server
from tools.repository import ROOT

__all__ = ["PARTS", "Crowd"]

LONGEST: Final = 100.0
"""The most milliseconds for which the receivers may hold the loop."""
_CREATE = """
import asyncio, sys
from sbredis.aio.management import ServiceBusAdministrationClient

async def create(url, partitions, *queues):
    async with ServiceBusAdministrationClient(url) as admin:
        for queue in queues:
            count = None if partitions == "1" else int(partitions)
            await admin.create_queue(queue, enable_partitioning=count is not None, partition_count=count)

asyncio.run(create(*sys.argv[1:]))
"""
_RUN = "import runpy, sys; runpy.run_path(sys.argv[1])['run'](*sys.argv[2:])"
"""Runs the program of this checkout with another checkout of sbredis."""


@dataclass(frozen=True)
class Crowd:
    """Receivers of one process."""

    receivers: int
    partitions: int = 1
    queues: int = 1

    def __str__(self) -> str:
        at = f" x {self.partitions} partitions" if self.partitions > 1 else ""
        return f"{self.receivers:,} receivers{at}" + (f" of {self.queues} queues" if self.queues > 1 else "")


PARTS: Mapping[str, Crowd] = {
    "4000": Crowd(4_000),
    "10000": Crowd(10_000),
    "partitions": Crowd(1_000, 16),
    "many-partitions": Crowd(200, 40),
    "queues": Crowd(50, queues=50),
}


def measured(crowd: Crowd, seconds: float, code: Path, binary: str | None) -> list[Figure]:
    """Run a part. Return its figures."""
    queues = [f"queue-{number}" for number in range(crowd.queues)]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    with LocalServer(binary=binary, config=CONFIG) as server:
        create = [sys.executable, "-P", "-c", _CREATE, server.url, str(crowd.partitions), *queues]
        subprocess.run(create, check=True, env=environment)
        program = str(Path(__file__).with_name("receivers_program.py"))
        arguments = [program, server.url, ",".join(queues), str(crowd.receivers), str(seconds)]
        command = [sys.executable, "-P", "-c", _RUN, *arguments]
        ran = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    found: Mapping[str, float] = json.loads(ran.stdout)
    return [_figure(crowd, what, value) for what, value in found.items()]


def _figure(crowd: Crowd, what: str, value: float) -> Figure:
    unit, goal = "", None
    if "turn" in what:
        unit, goal = "ms", LONGEST if what.endswith("turn of the loop") else None
    elif "memory" in what:
        unit = "KB"
    elif "processor time" in what:
        unit = "µs"
    elif what.startswith("idle"):
        unit = "a second" if what.endswith("scripts") else "% of a core"
    return Figure(f"{crowd}: {what}", value, unit, goal)


def main() -> None:
    """Run the parts, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the idle receivers are watched (10)")
    parser.add_argument("--code", type=Path, default=ROOT, metavar="FOLDER", help="measure this checkout of sbredis")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures to this file too")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="show the figures of this file beside the new ones")
    parser.add_argument(
        "--short", action="store_true", help="a short run, to see that it works; its figures mean nothing"
    )
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    beside: Mapping[str, float] = json.loads(given.beside.read_text()) if given.beside else {}
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{find_server(given.server)}; Python {sys.version.split()[0]}; load average at the start: {load}")
    found: dict[str, float] = {}
    for name in given.part or PARTS:
        crowd = PARTS[name]
        if given.short:
            crowd = Crowd(max(2 * crowd.queues, crowd.receivers // 100), crowd.partitions, crowd.queues)
        for figure in measured(crowd, 0.2 if given.short else given.seconds, given.code, given.server):
            found[figure.what] = figure.value
            print(line_of(figure, beside), flush=True)
    if given.save:
        given.save.write_text(json.dumps(found, indent=1) + "\n")
    if given.short:
        print("A short run: its figures show only that it works.")


if __name__ == "__main__":
    main()
