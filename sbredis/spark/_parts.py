"""The parts of the format ``sbredis``: its columns, readers and writers, made after all checks.

Spark asks for the columns in a process of its own. So readers and writers, which need the client, are imported only
where one is made: importing them takes half a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import QueryKind, QueryOptions, included, parse_options, reads_settlements, refuse_table
from sbredis.spark._schema import SETTLEMENT_COLUMNS, check_read_schema, check_written, ddl, read_columns
from sbredis.spark._secrets import refuse_memory, server_of, warn_of_password

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from sbredis.spark._query import Query

__all__ = ["columns", "reader", "stream_reader", "stream_writer", "writer"]


def columns(given: Mapping[str, str]) -> str:
    """Return the columns of a read, in Spark's DDL."""
    refuse_table(given)
    if reads_settlements(given):
        return ddl(SETTLEMENT_COLUMNS)
    return ddl(read_columns(**included(given)._asdict()))


def reader(given: Mapping[str, str], schema: StructType, cores: int) -> DataSourceReader:
    """Return the reader of a batch."""
    from sbredis.spark._browse import BrowseReader, FilteringReader
    from sbredis.spark._settlements import SettlementsReader

    query = _read(given, schema, cores, stream=False)
    if query.options.records == "settlements":
        return SettlementsReader(query)
    return FilteringReader(query) if query.options.push_filters else BrowseReader(query)


def stream_reader(given: Mapping[str, str], schema: StructType, cores: int) -> DataSourceStreamReader:
    """Return the reader of a stream."""
    from sbredis.spark._browse import BrowseStreamReader
    from sbredis.spark._consume import ConsumeReader

    query = _read(given, schema, cores, stream=True)
    return ConsumeReader(query) if query.options.kind is QueryKind.CONSUME else BrowseStreamReader(query)


def writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """Return the writer of a DataFrame."""
    from sbredis.spark._sink import BatchSink

    query, sent = _write(given, schema, stream=False, overwrite=overwrite)
    query.check_destination()
    return BatchSink(query, sent)


def stream_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """Return the writer of one batch of a stream."""
    from sbredis.spark._sink import StreamSink

    query, sent = _write(given, schema, stream=True, overwrite=overwrite)
    return StreamSink(query, sent)


def _read(given: Mapping[str, str], schema: StructType, cores: int, *, stream: bool) -> Query:
    options = parse_options(given, stream=stream, write=False)
    check_read_schema(_typed(schema), options)
    return _query(given, options, cores)


def _write(
    given: Mapping[str, str], schema: StructType, *, stream: bool, overwrite: bool
) -> tuple[Query, tuple[str, ...]]:
    options = parse_options(given, stream=stream, write=True)
    if overwrite:
        raise SparkSetupError(
            "The Spark format sbredis only appends, because overwriting would discard the messages in the entity: "
            f"use {'outputMode' if stream else 'mode'}('append')."
        )
    return _query(given, options), check_written(_typed(schema), options)


def _query(given: Mapping[str, str], options: QueryOptions, cores: int = 0) -> Query:
    from sbredis.spark._query import Query

    warn_of_password(given)
    refuse_memory(server_of(given))
    return Query(dict(given), options, cores)


def _typed(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
