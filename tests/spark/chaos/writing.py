"""A program with two streams of Spark that read files and send their rows: one by ``writeStream``, and one by a
``write`` with ``writeVersion`` in ``foreachBatch``. Scenes run it in a process of its own, and kill it.

python -m tests.spark.chaos.writing FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

__all__ = ["QUEUES"]

QUEUES = ("streamed", "versioned")
"""The queues to which the two streams send all rows."""
_TASKS = 2


def _version(batch: DataFrame, number: int) -> None:
    placed = batch.repartition(_TASKS, "message_id").sortWithinPartitions("message_id")
    writing = placed.write.format("sbredis").options(urlEnv="SBREDIS_URL", queue=QUEUES[1])
    writing.options(writeId="chaos", writeVersion=number, tasks=_TASKS).mode("append").save()


def main(folder: Path) -> int:
    """Send the rows of all files, a file in each batch, and stop when all are sent."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    started = [
        _stream(spark, folder, QUEUES[0]).format("sbredis").options(urlEnv="SBREDIS_URL", queue=QUEUES[0]),
        _stream(spark, folder, QUEUES[1]).foreachBatch(_version),
    ]
    queries = [each.trigger(availableNow=True).start() for each in started]
    for query in queries:
        query.awaitTermination()
    spark.stop()
    return 0


def _stream(spark: SparkSession, folder: Path, queue: str) -> DataStreamWriter:
    schema = "body binary, message_id string, partition_key string"
    reading = spark.readStream.format("parquet").schema(schema).option("maxFilesPerTrigger", 1)
    rows = reading.load(str(folder / "source"))
    return rows.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{queue}"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
