"""Drive a reader as Spark does, in this process: plan, read the tasks, put the rows together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.spark._options import parse_options
from sbredis.spark._query import Query

Row = dict[str, Any]


def query(url: str, *, stream: bool, **options: str) -> Query:
    given = {"url": url, **options}
    return Query(given, parse_options(given, stream=stream, write=False))


def rows_of(reader: DataSourceReader | DataSourceStreamReader, tasks: Sequence[InputPartition]) -> list[Row]:
    batches = [batch for task in tasks for batch in reader.read(task)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def bodies(rows: Iterable[Row]) -> list[bytes]:
    return [row["body"] for row in rows]


def send(url: str, queue: str, texts: Iterable[str], *, partitioned: bool = True, **properties: Any) -> None:
    """Send one message for each text, in calls of a few messages, so that they are in several partitions."""
    create: Any = {"enable_partitioning": partitioned}
    listed = list(texts)
    with ServiceBusClient(url) as client, client.get_queue_sender(queue, create_if_missing=create) as sender:
        for at in range(0, len(listed), 10):
            sender.send_messages([ServiceBusMessage(text, **properties) for text in listed[at : at + 10]])
