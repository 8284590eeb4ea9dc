"""Registers the format ``sbredis`` of Spark. Spark imports each module whose name begins with ``pyspark_``."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource

from sbredis.exceptions import SparkSetupError
from sbredis.spark import require_spark

__all__ = ["DefaultSource"]

DefaultSource: type[DataSource]
try:
    require_spark()
except SparkSetupError as unfit:
    reason = str(unfit)

    class Unfit(DataSource):
        """Says what is missing when a query uses the format, and not when Spark looks for formats."""

        @classmethod
        def name(cls) -> str:
            """Return the name of the format."""
            return "sbredis"

        def __init__(self, options: MutableMapping[str, str]) -> None:
            """Refuse every use."""
            super().__init__(options)
            raise SparkSetupError(reason)

    DefaultSource = Unfit
else:
    from sbredis.spark._source import SbredisSource

    DefaultSource = SbredisSource
