"""How long messages took, from the settlements of an audited entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["latency_report", "lives"]

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
_DONE = ("completed", "taken")
_GIVEN = ("given", "taken")
_DEAD = ("dead_lettered", "deliveries_exceeded", "expired_to_dead_letters")


def lives(settlements: DataFrame) -> DataFrame:
    """Return one row for each message of the main queue, from a read with ``records=settlements``.

    The columns are ``entity``, ``incarnation``, ``partition``, ``sequence_number``, ``enqueued_time`` (null if the
    settlement that gave the message to a receiver is no longer remembered), ``first_given`` and ``last_given``,
    ``deliveries``, ``completed_time``, ``expired`` and ``dead`` (whether it became a dead letter).
    """
    return _lives(settlements).where(sql.col("sequence_number").isNotNull()).drop("lost")


def latency_report(settlements: DataFrame) -> DataFrame:
    """Return one row for each measure: how many messages it is of, and its distribution.

    The measures in seconds are ``wait`` (from enqueued to the first delivery), ``work`` (from the last delivery to the
    completion) and ``total`` (from enqueued to the completion). ``deliveries`` is the number of deliveries of completed
    messages, if one is remembered; messages that a consumer such as Spark takes in bulk have none. The measures
    ``redelivered``, ``expired``, ``dead_lettered`` and ``lost`` have only a number of messages, or of settlements that
    are no longer remembered. The settlements are read once.
    """
    done = sql.col("completed_time").isNotNull()
    measured = {
        "wait": _seconds("enqueued_time", "first_given"),
        "work": sql.when(done, _seconds("last_given", "completed_time")),
        "total": sql.when(done, _seconds("enqueued_time", "completed_time")),
        "deliveries": sql.when(done & (sql.col("deliveries") > 0), sql.col("deliveries").cast("double")),
    }
    counted = {
        "redelivered": sql.count(sql.when(sql.col("deliveries") > 1, 1)),
        "expired": sql.count(sql.when(sql.col("expired"), 1)),
        "dead_lettered": sql.count(sql.when(sql.col("dead"), 1)),
        "lost": sql.coalesce(sql.sum("lost"), sql.lit(0)),
    }
    rows = [_row(name, sql.count(value), _distribution(value)) for name, value in measured.items()]
    nothing: Column = sql.lit(None)
    rows += [_row(name, number, dict.fromkeys((*_QUANTILES, "max"), nothing)) for name, number in counted.items()]
    return _lives(settlements).agg(sql.array(*rows).alias("_rows")).select(sql.inline("_rows"))


def _lives(settlements: DataFrame) -> DataFrame:
    """Return the lives of messages, and a row without a number that says how many settlements are lost."""

    def times(event: str, *events: str) -> Column:
        found: Column = sql.when(sql.col("event").isin(event, *events), sql.col("event_time"))
        return found

    return (
        settlements.where(sql.col("sub_queue").isNull())
        .groupBy("entity", "incarnation", "partition", "sequence_number")
        .agg(
            sql.min("enqueued_time").alias("enqueued_time"),
            sql.min(times(*_GIVEN)).alias("first_given"),
            sql.max(times(*_GIVEN)).alias("last_given"),
            sql.count(times(*_GIVEN)).alias("deliveries"),
            sql.max(times(*_DONE)).alias("completed_time"),
            sql.max(times("expired")).isNotNull().alias("expired"),
            sql.max(times(*_DEAD)).isNotNull().alias("dead"),
            sql.sum("lost").alias("lost"),
        )
    )


def _seconds(begin: str, end: str) -> Column:
    found: Column = (sql.unix_micros(end) - sql.unix_micros(begin)) / 1_000_000
    return found


def _distribution(value: Column) -> dict[str, Column]:
    quantiles = {label: sql.percentile_approx(value, at, 10_000) for label, at in _QUANTILES.items()}
    return {**quantiles, "max": sql.max(value)}


def _row(measure: str, number: Column, distribution: dict[str, Column]) -> Column:
    values = (column.cast("double").alias(label) for label, column in distribution.items())
    found: Column = sql.struct(sql.lit(measure).alias("measure"), number.cast("bigint").alias("messages"), *values)
    return found
