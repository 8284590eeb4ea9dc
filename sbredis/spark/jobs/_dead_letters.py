"""Why messages are dead letters: a report by reason and fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

from sbredis.aio.bulk import LONGEST_LINE, NO_REASON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["dead_letter_report", "with_fingerprint"]


def with_fingerprint(letters: DataFrame) -> DataFrame:
    """Return dead letters with a column ``fingerprint``, which is the same for messages that died of the same problem.

    It is the fingerprint of :class:`~sbredis.RedriveResult`: the reason and the first line of the description,
    with ``#`` in place of each number.
    """
    line = sql.regexp_extract(sql.coalesce("dead_letter_description", sql.lit("")), r"^\s*(\S[^\r\n]*)", 1)
    line, reason = (
        _without_numbers(sql.rtrim(line)),
        _without_numbers(sql.coalesce("dead_letter_reason", sql.lit(NO_REASON))),
    )
    return letters.withColumn(
        "fingerprint", sql.when(line == "", reason).otherwise(sql.concat(reason, sql.lit(": "), line))
    )


def dead_letter_report(letters: DataFrame, *, top: int = 3) -> DataFrame:
    """Return one row for each reason and fingerprint, the most frequent first.

    ``letters`` are the messages of a dead-letter queue, which are read once. The columns are ``dead_letter_reason``,
    ``fingerprint``, ``messages``, ``share`` (of all dead letters), ``oldest`` and ``newest`` (enqueued times),
    ``description`` (of one of the messages), ``sessions`` and ``keys`` (each the ``top`` most frequent ones, with their
    numbers of messages).
    """
    by = ["dead_letter_reason", "fingerprint"]
    sets = [by, [*by, "session_id"], [*by, "partition_key"]]
    counted = (
        with_fingerprint(letters)
        .groupingSets(sets, *by, "session_id", "partition_key")
        .agg(
            sql.grouping_id().alias("_set"),
            sql.count(sql.lit(1)).alias("messages"),
            sql.min("enqueued_time").alias("oldest"),
            sql.max("enqueued_time").alias("newest"),
            sql.min("dead_letter_description").alias("description"),
        )
    )
    value = sql.coalesce("session_id", "partition_key")
    ranking = Window.partitionBy(*by, "_set").orderBy(value.isNull(), sql.col("messages").desc(), value)
    place = sql.row_number().over(ranking)
    kept = counted.withColumns({"_value": value, "_place": place}).where(
        (sql.col("_set") == _WHOLE) | sql.col("_value").isNotNull() & (sql.col("_place") <= top)
    )
    named = sql.concat(sql.col("_value"), sql.lit(" ("), sql.col("messages").cast("string"), sql.lit(")"))

    def frequent(of: int, name: str) -> Column:
        found = sql.sort_array(
            sql.collect_list(sql.when(sql.col("_set") == of, sql.struct("_place", named.alias("_named"))))
        )
        listed: Column = sql.array_join(found["_named"], ", ").alias(name)
        return listed

    whole = (
        sql.max(sql.when(sql.col("_set") == _WHOLE, sql.col(name))).alias(name)
        for name in ("messages", "oldest", "newest", "description")
    )
    report = kept.groupBy(*by).agg(*whole, frequent(_BY_SESSION, "sessions"), frequent(_BY_KEY, "keys"))
    share = sql.round(sql.col("messages") / sql.sum("messages").over(Window.partitionBy()), 4)
    columns = (*by, "messages", "share", "oldest", "newest", "description", "sessions", "keys")
    return report.withColumn("share", share).select(*columns).orderBy(sql.col("messages").desc(), *by)


_WHOLE, _BY_SESSION, _BY_KEY = 0b11, 0b01, 0b10
"""The grouping ids of all dead letters of a fingerprint, of those of a session, and of those with a key."""


def _without_numbers(text: Column) -> Column:
    found: Column = sql.regexp_replace(sql.substring(text, 1, LONGEST_LINE), r"\d+", "#")
    return found
