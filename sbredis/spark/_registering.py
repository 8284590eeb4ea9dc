"""Make the format ``sbredis`` known to a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sbredis.spark._activating import activate
from sbredis.spark._requirements import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format ``sbredis`` known to a Spark session, classic or Connect.

    Where sbredis is installed on the machine of the driver, Spark also finds the format by itself, because of the
    module ``pyspark_sbredis``. This function also warns of passwords in those settings of the session that Spark would
    write into its event log, and tells the format how many cores the executors have: reads then have two tasks for each
    of them. Otherwise the format only knows the cores of the driver's machine.

    In classic mode, a thread other than the one that has made the session finds the format after this call only.
    """
    require_spark()
    from sbredis.spark._secrets import warn_of_settings

    settings = spark.conf.getAll
    warn_of_settings(settings)
    from sbredis.spark._source import SbredisSource

    class RegisteredSource(SbredisSource):
        """The format for this session. Spark pickles the class with its values, because it is in a function."""

        cores = cores_of(settings, spark)

    spark.dataSource.register(RegisteredSource)
    activate(spark)


def cores_of(settings: Mapping[str, str], spark: SparkSession) -> int:
    """Return the number of cores of all executors; 0 if it is not known.

    When a session begins, some executors may not have started. So settings count before what the session has.
    """
    executors = settings.get("spark.dynamicAllocation.maxExecutors") or settings.get("spark.executor.instances", "")
    each = settings.get("spark.executor.cores", "")
    if executors.isdigit() and each.isdigit():
        return int(executors) * int(each)
    context = getattr(spark, "_sc", None)  # a session of Connect has none
    return 0 if context is None else int(context.defaultParallelism)
