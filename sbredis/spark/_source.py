"""The format ``sbredis``: Spark makes one of these for each query, in several processes, and asks it for its parts.

Spark pickles a source and its readers and writers to send them to executors, so none of them holds a connection.

Spark also imports this module in each session that looks for formats, whether or not it uses ours. So the work is in
``_parts``, which a method imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from sbredis.spark._sentences import sentence_first

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from sbredis.exceptions import ServiceBusError

__all__ = ["RefusedReader", "SbredisSource"]


@sentence_first
class RefusedReader(DataSourceStreamReader):
    """The reader of a stream that is refused. It says why when Spark asks where the stream begins or ends."""

    def __init__(self, error: ServiceBusError) -> None:
        self._error = error

    def initialOffset(self) -> Never:
        """Refuse the query."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Never:
        """Refuse the query: it has a checkpoint already."""
        del start, limit
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Never:
        """Refuse the query: a batch of its checkpoint has begun."""
        del start, end
        raise self._error

    def read(self, partition: object) -> Never:
        """Refuse the query. Spark reads only what :meth:`partitions` names."""
        del partition
        raise self._error


@sentence_first
class SbredisSource(DataSource):
    """Queues and subscriptions of sbredis as DataFrames: ``spark.read.format("sbredis")``."""

    cores = 0
    """The number of cores of all executors, if the format was registered in a session; otherwise 0."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sbredis"

    def schema(self) -> str:
        """Return the columns of a read. Spark calls this before it says whether the query is a batch or a stream."""
        from sbredis.spark import _parts

        return _parts.columns(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Spark calls this while it plans a query."""
        from sbredis.spark import _parts

        return _parts.reader(self.options, schema, self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Spark calls this in the process that plans the batches, and for each batch.

        An error from here would end in an error of PySpark's own, which closes a reader that it does not have.
        """
        from sbredis.exceptions import ServiceBusError
        from sbredis.spark import _parts

        try:
            return _parts.stream_reader(self.options, schema, self.cores)
        except ServiceBusError as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a DataFrame. Spark calls this once, and sends copies to the tasks."""
        from sbredis.spark import _parts

        return _parts.writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one batch of a stream. Spark calls this for each batch, and again for its commit."""
        from sbredis.spark import _parts

        return _parts.stream_writer(self.options, schema, overwrite=overwrite)
