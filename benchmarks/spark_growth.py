"""How writes and reads of Spark on two cores grow, with the rows and the partitions, on a cluster of three masters.

python -m benchmarks.spark_growth [--rows N,N] [--partitions N,N] [--server NAME]

It prints a table of Markdown. A row of it is a queue, which is written once and read twice; the faster read counts.
A first queue does not count.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.rounds import run_as_program
from benchmarks.spark import WARM, timed
from sbredis.servers import LocalCluster, find_server
from sbredis.spark import require_java, require_spark

if TYPE_CHECKING:
    from benchmarks.spark_works import Bus

__all__ = ["Seconds", "lines", "main"]


class Seconds(NamedTuple):
    """What one queue has taken."""

    write: float
    read: float


def lines(found: Mapping[tuple[int, int], Seconds]) -> list[str]:
    """Return the table, given the seconds of each queue by its rows and its partitions.

    The speed of a queue is compared with that of the queue with the fewest rows, and as many partitions.
    """
    shown = ["| rows | partitions | write | read | of the speed with the fewest rows |", "|---|---|---|---|---|"]
    for (rows, partitions), (write, read) in sorted(found.items()):
        fewest = min(each for each, others in found if others == partitions)
        first = found[fewest, partitions]
        ratios = f"{rows / write / (fewest / first.write):.2f} x and {rows / read / (fewest / first.read):.2f} x"
        speeds = f"{rows / write:,.0f} rows/s | {rows / read:,.0f} rows/s"
        shown.append(f"| {rows:,} | {partitions} | {speeds} | {ratios} |")
    return shown


def _numbers(text: str) -> list[int]:
    found = [int(each.replace("_", "")) for each in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def _measured(bus: Bus, source: Path, partitions: int) -> Seconds:
    bus.create("bench", partition_count=partitions)
    write = timed(lambda: bus.write("bench", source))
    read = min(timed(lambda: bus.read("bench")) for _ in range(2))
    bus.delete("bench")
    return Seconds(write, read)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=_numbers, default=[100_000, 1_000_000, 3_000_000], help="rows of the queues")
    parser.add_argument("--partitions", type=_numbers, default=[1, 4, 16], help="partitions of the queues")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    require_spark()
    require_java()
    logging.getLogger("sbredis").setLevel(logging.ERROR)  # the servers keep nothing, on purpose
    from benchmarks.spark_works import BODY, Bus, start_spark

    print(f"{find_server(given.server)}, three masters\nPython {sys.version.split()[0]}; rows of {BODY} B", flush=True)
    with tempfile.TemporaryDirectory(prefix="sbredis-bench-") as name, LocalCluster(3, binary=given.server) as cluster:
        folder = Path(name)
        spark = start_spark(cluster.url, folder)
        try:
            bus, source, found = Bus(spark, cluster.url, folder), folder / "source", dict[tuple[int, int], Seconds]()
            bus.make_rows(source, WARM)
            _measured(bus, source, 1)
            for rows in given.rows:
                bus.make_rows(source, rows)
                for partitions in given.partitions:
                    found[rows, partitions] = _measured(bus, source, partitions)
                    print(f"{rows:,} rows, {partitions} partitions", file=sys.stderr, flush=True)
        finally:
            spark.stop()
    print("", *lines(found), sep="\n", flush=True)


if __name__ == "__main__":
    run_as_program(main)
