"""The format ``sbredis``: Spark makes one of these for each query, in several processes, and asks it for its parts.

Spark pickles a source and its readers and writers to send them to executors, so none of them holds a connection.

Spark looks for formats in a process of its own, and asks for the columns in another one. So readers and writers, which
need the client, are imported only where one is made: importing them takes half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import QueryKind, QueryOptions, included, parse_options, reads_settlements
from sbredis.spark._schema import SETTLEMENT_COLUMNS, check_read_schema, check_written, ddl, read_columns
from sbredis.spark._secrets import refuse_memory, server_of, warn_of_password

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sbredis.spark._query import Query

__all__ = ["SbredisSource"]


class SbredisSource(DataSource):
    """Queues and subscriptions of sbredis as DataFrames: ``spark.read.format("sbredis")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sbredis"

    def schema(self) -> str:
        """Return the columns of a read. Spark calls this before it says whether the query is a batch or a stream."""
        if reads_settlements(self.options):
            return ddl(SETTLEMENT_COLUMNS)
        return ddl(read_columns(**included(self.options)._asdict()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Spark calls this while it plans a query."""
        from sbredis.spark._browse import BrowseReader
        from sbredis.spark._settlements import SettlementsReader

        query = self._read(schema, stream=False)
        return SettlementsReader(query) if query.options.records == "settlements" else BrowseReader(query)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Spark calls this in the process that plans the batches, and for each batch."""
        from sbredis.spark._browse import BrowseStreamReader
        from sbredis.spark._consume import ConsumeReader

        query = self._read(schema, stream=True)
        return ConsumeReader(query) if query.options.kind is QueryKind.CONSUME else BrowseStreamReader(query)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a DataFrame. Spark calls this once, and sends copies to the tasks."""
        from sbredis.spark._sink import BatchSink

        query, sent = self._write(schema, stream=False, overwrite=overwrite)
        query.check_destination()
        return BatchSink(query, sent)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one batch of a stream. Spark calls this for each batch, and again for its commit."""
        from sbredis.spark._sink import StreamSink

        query, sent = self._write(schema, stream=True, overwrite=overwrite)
        return StreamSink(query, sent)

    def _read(self, schema: StructType, *, stream: bool) -> Query:
        options = parse_options(self.options, stream=stream, write=False)
        check_read_schema(_typed(schema), options)
        return self._query(options)

    def _write(self, schema: StructType, *, stream: bool, overwrite: bool) -> tuple[Query, tuple[str, ...]]:
        options = parse_options(self.options, stream=stream, write=True)
        if overwrite:
            raise SparkSetupError(
                "The Spark format sbredis only appends, because overwriting would discard the messages in the entity: "
                f"use {'outputMode' if stream else 'mode'}('append')."
            )
        return self._query(options), check_written(_typed(schema), options)

    def _query(self, options: QueryOptions) -> Query:
        from sbredis.spark._query import Query

        warn_of_password(self.options)
        refuse_memory(server_of(self.options))
        return Query(dict(self.options), options)


def _typed(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
