"""Run jobs in a session of the tests, and look at what they have left."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
from pyspark.sql import SparkSession

from sbredis.spark._commands import read_command
from sbredis.spark._jobs_run import run_job
from sbredis.sync.management import ServiceBusAdministrationClient

__all__ = ["captured", "run", "waiting"]


def run(spark: SparkSession, *arguments: str) -> None:
    """Run a job, which must succeed."""
    assert run_job(read_command(list(arguments)), spark) == 0


def waiting(url: str, queue: str) -> tuple[int, int]:
    """Return how many messages and dead letters a queue has."""
    with ServiceBusAdministrationClient(url) as admin:
        found = admin.get_queue_runtime_properties(queue)
        return found.active_message_count, found.dead_letter_message_count


def captured(folder: Path) -> list[bytes]:
    """Return the bodies in captured files, as a reader without Spark finds them."""
    table = pyarrow.parquet.read_table(folder)
    return sorted(table.column("body").to_pylist())
