"""Choose dead letters by a report about them, so that none is chosen that has died since."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as sql

from sbredis.exceptions import SparkSetupError
from sbredis.spark.jobs._dead_letters import with_fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Reported", "reported", "resubmittable"]

_CHOICE = "_reason string, _fingerprint string, _incarnation string, _partition int, _last bigint"


class Reported(NamedTuple):
    """The dead letters that a row of a report counts: those of a reason and a fingerprint, up to some numbers."""

    reason: str
    """Empty if the letters have no reason."""
    fingerprint: str
    incarnation: str
    """The incarnation of the entity."""
    last: Mapping[int, int]
    """The highest sequence number in each partition that has such letters."""


def reported(rows: Iterable[Mapping[str, Any]]) -> list[Reported]:
    """Read rows of a :func:`~sbredis.spark.jobs.dead_letter_report`, which may have been stored as CSV.

    Raises :class:`~sbredis.exceptions.SparkSetupError` for other rows.
    """
    try:
        return [_reported(row) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SparkSetupError(
            f"A row is not one of a report of dead letters, as dlq-report --csv writes it: {error!r}."
        ) from None


def _reported(row: Mapping[str, Any]) -> Reported:
    letters = json.loads(row["letters"])
    last = {int(partition): int(number) for partition, number in letters["last"].items()}
    return Reported(row["dead_letter_reason"] or "", row["fingerprint"], str(letters["incarnation"]), last)


def resubmittable(letters: DataFrame, report: Iterable[Reported], fingerprints: Collection[str] = ()) -> DataFrame:
    """Return the dead letters that the rows of a report count and that are still there, with their fingerprints.

    Letters that died after the report are left out, also those that were sent back because of it and have died again.
    All letters with one of the ``fingerprints`` are returned too.
    """
    last: dict[tuple[str, str, str, int], int] = {}
    for reason, fingerprint, incarnation, numbers in report:
        for partition, number in numbers.items():
            key = reason, fingerprint, incarnation, partition
            last[key] = max(number, last.get(key, number))
    choice = letters.sparkSession.createDataFrame([(*key, number) for key, number in last.items()], _CHOICE)
    found = with_fingerprint(letters)
    counted = (
        (sql.coalesce("dead_letter_reason", sql.lit("")) == sql.col("_reason"))
        & (sql.col("fingerprint") == sql.col("_fingerprint"))
        & (sql.col("incarnation") == sql.col("_incarnation"))
        & (sql.col("partition") == sql.col("_partition"))
        & (sql.col("sequence_number") <= sql.col("_last"))
    )
    named = sql.col("fingerprint").isin(*fingerprints)
    joined = found.join(sql.broadcast(choice), counted, "left").where(sql.col("_last").isNotNull() | named)
    return joined.select(*found.columns)
