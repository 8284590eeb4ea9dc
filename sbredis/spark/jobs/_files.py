"""Files of captured messages: they are read and written the same way, whatever the settings of the session are."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["READING", "WRITING", "read_captured", "with_settings"]

READING = {
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.parquet.binaryAsString": "false",
}
"""Settings for reading, for which a read has no options. Spark would take the name of an entity in ``entity=007`` for
the number 7.
"""
WRITING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Settings for writing, for which a write has no options. Spark's usual form of times in parquet, INT96, is deprecated,
and has no statistics by which readers leave out files.
"""


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Generator[None]:
    """Give a session settings, and put back those that it had."""
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        with suppress(Exception):  # Java may have ended, and then nothing is left to put back
            for name, earlier in before.items():
                spark.conf.set(name, earlier)


def read_captured(spark: SparkSession, folder: str) -> DataFrame:
    """Return the messages of captured files. The columns that come from the names of folders are text."""
    with with_settings(spark, READING):
        return spark.read.parquet(folder)
