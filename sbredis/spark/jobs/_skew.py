"""How evenly the messages of an entity are spread over its partitions, sessions and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["skew_report"]

_STATES = ("active", "deferred", "scheduled")


def skew_report(messages: DataFrame, *, top: int = 10) -> DataFrame:
    """Return one row for each partition, and for the ``top`` sessions and keys with the most messages.

    The columns are ``kind`` (``partition``, ``session`` or ``key``), ``value`` (its number or name), ``messages``,
    ``share`` (of all messages), ``bytes`` (of the bodies), the messages by state (``active``, ``deferred``,
    ``scheduled``), and the enqueued times ``oldest`` and ``newest``. Messages without a session or key are in no row of
    that kind. The messages are read once.
    """
    kinds = {"partition": "partition", "session": "session_id", "key": "partition_key"}
    columns = list(kinds.values())
    counted = messages.groupingSets([[column] for column in columns], *columns).agg(
        sql.grouping_id().alias("_set"),
        sql.count(sql.lit(1)).alias("messages"),
        sql.sum(sql.length("body")).alias("bytes"),
        *(sql.count(sql.when(sql.col("state") == state, 1)).alias(state) for state in _STATES),
        sql.min("enqueued_time").alias("oldest"),
        sql.max("enqueued_time").alias("newest"),
    )
    kind = sql.when(sql.col("_set") == 3, "partition").when(sql.col("_set") == 5, "session").otherwise("key")
    total = sql.sum(sql.when(sql.col("_set") == 3, sql.col("messages"))).over(Window.partitionBy())
    value = sql.coalesce(*(sql.col(column).cast("string") for column in columns))
    named = counted.select(
        kind.alias("kind"),
        value.alias("value"),
        "messages",
        sql.round(sql.col("messages") / total, 4).alias("share"),
        *("bytes", *_STATES, "oldest", "newest"),
        sql.when(sql.col("_set") == 3, sql.col("partition")).alias("_number"),
    ).where(sql.col("value").isNotNull())
    place = sql.row_number().over(Window.partitionBy("kind").orderBy(sql.col("messages").desc(), sql.col("value")))
    ranked = named.withColumn("_place", sql.when(sql.col("kind") == "partition", sql.col("_number")).otherwise(place))
    shown = ranked.where((sql.col("kind") == "partition") | (sql.col("_place") <= top))
    order = sql.array_position(sql.array(*(sql.lit(each) for each in kinds)), sql.col("kind"))
    return shown.orderBy(order, "_place").drop("_number", "_place")
