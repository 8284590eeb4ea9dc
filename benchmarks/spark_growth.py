"""How writes and reads of Spark on two cores grow, with the rows and the partitions, on a cluster of three masters.

python -m benchmarks.spark_growth [--rows N,N] [--partitions N,N] [--docs FOLDER] [--server NAME]

It prints a table of Markdown. A row of it is a queue, which is written once and read twice; the faster read counts.
A first queue does not count. With ``--docs``, the page spark-growth.md of a folder gets the table, and a picture beside
it. The processor time is that of Spark and the servers together, and tells more than the speed on a busy machine.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rounds import run_as_program
from benchmarks.spark import WARM, spent
from benchmarks.spark_growth_report import Queue, QueueCosts, page, picture, table
from sbredis.servers import LocalCluster, find_server
from sbredis.spark import require_java, require_spark

if TYPE_CHECKING:
    from benchmarks.spark_works import Bus

__all__ = ["main"]


def _numbers(text: str) -> list[int]:
    found = [int(each.replace("_", "")) for each in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def _measured(bus: Bus, source: Path, partitions: int) -> QueueCosts:
    bus.create("bench", partition_count=partitions)
    write = spent(partial(bus.write, "bench", source))
    read = min(spent(partial(bus.read, "bench")) for _ in range(2))
    bus.delete("bench")
    return QueueCosts(write, read)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=_numbers, default=[100_000, 1_000_000, 3_000_000], help="rows of the queues")
    parser.add_argument("--partitions", type=_numbers, default=[1, 4, 16], help="partitions of the queues")
    parser.add_argument("--docs", type=Path, help="a folder for the page spark-growth.md and its picture")
    parser.add_argument("--server", help="which server to start; see sbredis.servers.find_server")
    given = parser.parse_args()
    if given.docs is not None and not given.docs.is_dir():
        parser.error(f"there is no folder {given.docs}")
    require_spark()
    require_java()
    logging.getLogger("sbredis").setLevel(logging.ERROR)  # the servers keep nothing, on purpose
    from benchmarks.spark_works import BODY, Bus, start_spark

    program = find_server(given.server)
    server = f"{program.flavour.capitalize()} {'.'.join(map(str, program.version))}"
    where = f"{server}, three masters; Python {sys.version.split()[0]}; rows of {BODY} B"
    print(program, where, sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="sbredis-bench-") as name, LocalCluster(3, binary=given.server) as cluster:
        folder = Path(name)
        spark = start_spark(cluster.url, folder)
        try:
            bus, source, found = Bus(spark, cluster.url, folder), folder / "source", dict[Queue, QueueCosts]()
            bus.make_rows(source, WARM)
            _measured(bus, source, 1)
            for rows in given.rows:
                bus.make_rows(source, rows)
                for partitions in given.partitions:
                    found[Queue(rows, partitions)] = _measured(bus, source, partitions)
                    print(f"{rows:,} rows, {partitions} partitions", file=sys.stderr, flush=True)
        finally:
            spark.stop()
    print("", *table(found), sep="\n", flush=True)
    if given.docs is not None:
        (given.docs / "spark-growth.svg").write_text(picture(found) + "\n", "utf-8")
        (given.docs / "spark-growth.md").write_text(page(found, where), "utf-8")


if __name__ == "__main__":
    run_as_program(main)
