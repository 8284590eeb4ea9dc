"""DataFrames of messages and of settlements, as a read gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sbredis.spark._schema import READ_COLUMNS, SETTLEMENT_COLUMNS, ddl

__all__ = ["NOON", "messages", "settlements"]

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Return rows with the columns of a read; what a row does not name is null."""
    usual = {"entity": "q", "incarnation": "i", "partition": 0, "state": "active", "enqueued_time": NOON, "body": b"b"}
    listed = [
        tuple({**usual, "sequence_number": number, **row}.get(column.name) for column in READ_COLUMNS)
        for number, row in enumerate(rows)
    ]
    return spark.createDataFrame(listed, ddl(READ_COLUMNS))


def settlements(spark: SparkSession, *rows: tuple[int | None, str, float, dict[str, Any]]) -> DataFrame:
    """Return settlements: each row has a number, an event, its time in seconds after noon, and other columns."""
    listed = []
    for number, event, seconds, more in rows:
        row = {"entity": "q", "incarnation": "i", "partition": 0, "sequence_number": number, "event": event, **more}
        row["event_time"] = NOON + timedelta(seconds=seconds)
        listed.append(tuple(row.get(column.name) for column in SETTLEMENT_COLUMNS))
    return spark.createDataFrame(listed, ddl(SETTLEMENT_COLUMNS))
