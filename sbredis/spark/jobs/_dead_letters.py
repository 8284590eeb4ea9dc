"""Why messages are dead letters: a report by reason and fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

from sbredis.moving import LONGEST_LINE, NO_REASON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["dead_letter_report", "with_fingerprint"]


def with_fingerprint(letters: DataFrame) -> DataFrame:
    """Return dead letters with a column ``fingerprint``, which is the same for messages that died of the same problem.

    It is the fingerprint of :class:`~sbredis.RedriveResult`: the reason and the first line of the description,
    with ``#`` in place of each number.
    """
    # Spark would evaluate the first line twice, in the condition and in its branch, if it were not a column of its own.
    found = sql.regexp_extract(sql.coalesce("dead_letter_description", sql.lit("")), _FIRST_LINE, 1)
    reason = sql.coalesce(sql.nullif("dead_letter_reason", sql.lit("")), sql.lit(NO_REASON))
    line = sql.when(sql.col("_line") == "", "").otherwise(sql.concat(sql.lit(": "), _shortened(sql.col("_line"))))
    text = sql.concat(_shortened(reason), line)
    return (
        letters.withColumn("_line", found)
        .withColumn("fingerprint", sql.regexp_replace(text, r"\p{IsDigit}+", "#"))
        .drop("_line")
    )


def dead_letter_report(letters: DataFrame, *, top: int = 3) -> DataFrame:
    """Return one row for each reason and fingerprint, the most frequent first.

    ``letters`` are the messages of a dead-letter queue, which are read once. The columns are ``dead_letter_reason``,
    ``fingerprint``, ``messages``, ``share`` (of all dead letters), ``oldest`` and ``newest`` (enqueued times),
    ``description`` (of one of the messages), ``sessions`` and ``keys`` (each the ``top`` most frequent ones, with their
    numbers of messages), and ``letters`` (JSON: the incarnation of the entity, and the highest sequence number in each
    partition, so that :func:`resubmittable` can tell these messages from those that die later).
    """
    by = ["dead_letter_reason", "fingerprint"]
    sets = [by, [*by, "session_id"], [*by, "partition_key"], [*by, "partition"]]
    # Equal rows are counted before the grouping sets multiply them. Spark sorts rows to find the least text, unless it
    # also collects a set: then it hashes them, as long as there are few groups.
    keys = [*by, "session_id", "partition_key", "partition"]
    equal = (
        with_fingerprint(letters)
        .groupBy(*keys)
        .agg(
            sql.count(sql.lit(1)).alias("messages"),
            sql.min("enqueued_time").alias("oldest"),
            sql.max("enqueued_time").alias("newest"),
            sql.min("dead_letter_description").alias("description"),
            sql.max("sequence_number").alias("last"),
            sql.array_max(sql.collect_set("incarnation")).alias("incarnation"),
        )
    )
    counted = equal.groupingSets(sets, *keys).agg(
        sql.grouping_id().alias("_set"),
        sql.sum("messages").alias("messages"),
        sql.min("oldest").alias("oldest"),
        sql.max("newest").alias("newest"),
        sql.min("description").alias("description"),
        sql.max("last").alias("last"),
        sql.max("incarnation").alias("incarnation"),
    )
    value = sql.coalesce("session_id", "partition_key")
    ranking = Window.partitionBy(*by, "_set").orderBy(value.isNull(), sql.col("messages").desc(), value)
    place = sql.row_number().over(ranking)
    kept = counted.withColumns({"_value": value, "_place": place}).where(
        sql.col("_set").isin(_WHOLE, _BY_PARTITION) | sql.col("_value").isNotNull() & (sql.col("_place") <= top)
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
        for name in ("messages", "oldest", "newest", "description", "incarnation")
    )
    last = sql.collect_list(sql.when(sql.col("_set") == _BY_PARTITION, sql.struct("partition", "last")))
    by_partition = sql.map_from_entries(sql.sort_array(last).cast("array<struct<key: string, value: bigint>>"))
    report = kept.groupBy(*by).agg(
        *whole, frequent(_BY_SESSION, "sessions"), frequent(_BY_KEY, "keys"), by_partition.alias("last")
    )
    share = sql.round(sql.col("messages") / sql.sum("messages").over(Window.partitionBy()), 4)
    letters_of = sql.to_json(sql.struct("incarnation", "last"))
    columns = (*by, "messages", "share", "oldest", "newest", "description", "sessions", "keys", "letters")
    return (
        report.withColumns({"share": share, "letters": letters_of})
        .select(*columns)
        .orderBy(sql.col("messages").desc(), *by)
    )


_WHOLE, _BY_SESSION, _BY_KEY, _BY_PARTITION = 0b111, 0b011, 0b101, 0b110
"""The grouping ids of all dead letters of a fingerprint, of those of a session, with a key, and in a partition."""


def _shortened(text: Column) -> Column:
    found: Column = sql.substring(text, 1, LONGEST_LINE)
    return found


_ENDS = r"\n\x0B\f\r\x1C-\x1E\x85\u2028\u2029"
"""The characters that end a line for Python, for a regular expression of Java."""
_BLANKS = _ENDS + r"\t\x1F \xA0\u1680\u2000-\u200A\u202F\u205F\u3000"
"""The characters that Python takes for white space."""
_VISIBLE, _WITHIN = f"[!-~[^{_BLANKS}]]", f"[ -~[^{_ENDS}]]"
"""The characters that are not white space, and those that do not end a line. Each class begins with a range of ASCII,
because Java tries the parts of a class in order, and most characters are in this range.
"""
_FIRST_LINE = f"({_VISIBLE}(?:{_WITHIN}*{_VISIBLE})?)"
"""The first line that is not blank, without the white space around it."""
