"""Files of captured messages: they are read and written the same way, whatever the settings of the session are."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from sbredis.exceptions import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "FORMAT",
    "FORMAT_COLUMN",
    "READING",
    "WRITING",
    "explained",
    "read_captured",
    "told",
    "with_format",
    "with_settings",
]

FORMAT_COLUMN, FORMAT = "capture_format", 2
"""Captured rows say the version of their format. Those of version 1 do not say it: they have no types of properties,
no time to live, no session for replies, and nothing else that only AMQP has.
"""

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


def with_format(captured: DataFrame) -> DataFrame:
    """Return messages with the version of the format in which they are captured."""
    return captured.withColumn(FORMAT_COLUMN, sql.lit(FORMAT))


def read_captured(spark: SparkSession, folder: str) -> DataFrame:
    """Return the messages of captured files. The columns that come from the names of folders are text.

    The files may be of this release and of earlier ones, also beside each other: a column that a file does not have is
    null. Raises :class:`~sbredis.exceptions.SparkSetupError` if there is no such folder, if it has other files, or
    files of a later release.
    """
    with with_settings(spark, READING), explained(f"The files in '{folder}' cannot be read"):
        found = spark.read.option("mergeSchema", "true").parquet(folder)
        newest = found.agg(sql.max(FORMAT_COLUMN)).collect()[0][0] if FORMAT_COLUMN in found.columns else None
    if newest is not None and newest > FORMAT:
        raise SparkSetupError(
            f"The files in '{folder}' have the format {newest}, and this release of sbredis reads up to {FORMAT}: "
            "install the release that has written them."
        )
    return found


@contextmanager
def explained(wrong: str) -> Generator[None]:
    """Raise an error of Spark as :class:`~sbredis.exceptions.SparkSetupError`, in one line and without a plan.

    The error begins with ``wrong``, which says what the user gave. If Java has ended, its error is raised unchanged.
    """
    try:
        yield
    except PySparkException as error:
        raise SparkSetupError(f"{wrong}: {told(str(error))}") from None
    except Py4JJavaError as error:  # PySpark does not know every error of Spark
        said = str(error.java_exception.getMessage())
        raise SparkSetupError(f"{wrong}: {told(said)}") from None


def told(text: str) -> str:
    """Return the sentence in which Spark says what is wrong, without the name of its error, its state and its plan."""
    line = next(iter(text.strip().splitlines()), "Spark does not say why")
    sentence = re.sub(r"^(\[[A-Z0-9_.]+\] *)+", "", re.sub(r"\s*SQLSTATE: .*$", "", line)).strip()
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
