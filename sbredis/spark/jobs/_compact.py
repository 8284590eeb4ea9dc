"""Captured files, put together into fewer and larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IDENTITY", "compacted"]

IDENTITY = ("entity", "incarnation", "partition", "sequence_number")
"""The columns that identify a message among all messages of a namespace."""


def compacted(captured: DataFrame, *, files: int = 1) -> DataFrame:
    """Return captured messages without duplicates, so that each hour of an entity is written into ``files`` files.

    Duplicates have the same entity, incarnation, partition and sequence number. The messages of a file are in the order
    of their partitions and numbers.

    Read the captured files with ``spark.sql.sources.partitionColumnTypeInference.enabled=false``: otherwise Spark takes
    the name of an entity in ``entity=007`` for the number 7.
    """
    file = sql.pmod(sql.xxhash64("partition", "sequence_number"), sql.lit(files))
    numbered = captured.drop("batch_id").withColumn("_file", file)
    # The rows of one file of an hour meet in one task; there are as many tasks as Spark's own shuffle has. Duplicates
    # have the same file and hour. So with these among the keys, Spark shuffles and sorts the rows only once.
    place, order = ("entity", "date", "hour", "_file"), ("partition", "sequence_number")
    once = numbered.repartition(*place).dropDuplicates(list(dict.fromkeys((*place, *order, *IDENTITY))))
    return once.sortWithinPartitions(*place, *order).drop("_file")
