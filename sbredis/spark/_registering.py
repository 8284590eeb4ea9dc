"""Make the format ``sbredis`` known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis.spark._requirements import require_spark
from sbredis.spark._secrets import warn_of_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format ``sbredis`` known to a Spark session, classic or Connect.

    Where sbredis is installed on the machine of the driver, Spark also finds the format by itself, because of the
    module ``pyspark_sbredis``. This function also warns of passwords in those settings of the session that Spark would
    write into its event log.
    """
    require_spark()
    warn_of_settings(spark.conf.getAll)
    from sbredis.spark._source import SbredisSource

    spark.dataSource.register(SbredisSource)
