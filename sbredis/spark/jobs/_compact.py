"""Captured files, put together into fewer and larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from sbredis.exceptions import SparkSetupError
from sbredis.spark.jobs._files import WRITING, read_captured, with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IDENTITY", "compact", "compacted"]

IDENTITY = ("entity", "incarnation", "partition", "sequence_number")
"""The columns that identify a message among all messages of a namespace."""


def compacted(captured: DataFrame, *, files: int = 1) -> DataFrame:
    """Return captured messages without duplicates, so that each hour of an entity is written into ``files`` files.

    Duplicates have the same entity, incarnation, partition and sequence number. The messages of a file are in the order
    of their partitions and numbers.

    Read the captured files with :func:`read_captured`: otherwise Spark takes the name of an entity in ``entity=007``
    for the number 7, and this raises :class:`~sbredis.exceptions.SparkSetupError`.
    """
    missing = [name for name in (*IDENTITY, "date", "hour") if name not in captured.columns]
    if missing:
        raise SparkSetupError(f"The files are not those of a capture: they have no column {missing[0]}.")
    kind = dict(captured.dtypes)["entity"]
    if kind != "string":
        raise SparkSetupError(
            f"The column entity has the type {kind}, because Spark took the names of folders for other values: read "
            "the captured files with sbredis.spark.jobs.read_captured."
        )
    file = sql.pmod(sql.xxhash64("partition", "sequence_number"), sql.lit(files))
    numbered = captured.drop("batch_id").withColumn("_file", file)
    # The rows of one file of an hour meet in one task; there are as many tasks as Spark's own shuffle has. Duplicates
    # have the same file and hour. So with these among the keys, Spark shuffles and sorts the rows only once.
    place, order = ("entity", "date", "hour", "_file"), ("partition", "sequence_number")
    once = numbered.repartition(*place).dropDuplicates(list(dict.fromkeys((*place, *order, *IDENTITY))))
    return once.sortWithinPartitions(*place, *order).drop("_file")


def compact(spark: SparkSession, source: str, to: str, *, files: int = 1) -> None:
    """Write the captured files of one folder into another one, which must not exist, as :func:`compacted` returns them.

    The settings of the session that would change the files do not count.
    """
    ready = compacted(read_captured(spark, source), files=files)
    with with_settings(spark, WRITING):
        try:
            ready.write.mode("errorifexists").partitionBy("entity", "date", "hour").parquet(to)
        except PySparkException as error:
            if error.getCondition() != "PATH_ALREADY_EXISTS":
                raise
            raise SparkSetupError(f"The folder '{to}' is there already: name a new one.") from None
