"""Tests of checkpoints that were written by another query: nothing is read, removed or reserved."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sbredis.exceptions import SparkSetupError
from sbredis.spark._browse import BrowseStreamReader
from sbredis.spark._consume import ConsumeReader
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import query, send

pytestmark = pytest.mark.slow
ALL = ReadAllAvailable()
BROWSE: dict[str, str] = {"queue": "orders"}
CONSUME = {**BROWSE, "mode": "consume", "consumer": "capture"}


def reader_of(url: str, options: dict[str, str]) -> BrowseStreamReader | ConsumeReader:
    given = query(url, stream=True, **options)
    return ConsumeReader(given) if "mode" in options else BrowseStreamReader(given)


@pytest.mark.parametrize("accepts", ["true", "false"])
@pytest.mark.parametrize(
    ("writer", "other", "said"),
    [
        (CONSUME, {**CONSUME, "queue": "invoices"}, "belongs to 'orders', but the query reads 'invoices'"),
        (BROWSE, {"queue": "invoices"}, "belongs to 'orders', but the query reads 'invoices'"),
        (BROWSE, CONSUME, "a query with mode=browse, but this query has mode=consume"),
        (CONSUME, BROWSE, "a query with mode=consume, but this query has mode=browse"),
        (
            {**BROWSE, "subQueue": "deadLetter"},
            BROWSE,
            "'orders' with subQueue=deadLetter, but the query reads 'orders'",
        ),
        (BROWSE, {**BROWSE, "subQueue": "deadLetter"}, "but the query reads 'orders' with subQueue=deadLetter"),
    ],
)
def test_a_checkpoint_of_another_query_is_refused_at_once(
    writer: dict[str, str], other: dict[str, str], said: str, accepts: str, url: str
) -> None:
    """Also if a batch is planned, which Spark reads before it plans another one."""
    for queue in ("orders", "invoices"):
        send(url, queue, ["1", "2"])
    earlier = reader_of(url, writer)
    start = earlier.initialOffset()
    end = earlier.latestOffset(start, ALL)
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        if writer is CONSUME:
            assert administration.release_reservation("orders")
        # Spark asks where the stream begins if the first batch is repeated. A later batch begins where one ended.
        for begin in (None, start):
            later = reader_of(url, {**other, "failOnDataLoss": accepts})
            refused(lambda: later.partitions(begin or later.initialOffset(), end), said)  # noqa: B023 -- called at once
        refused(lambda: reader_of(url, {**other, "failOnDataLoss": accepts}).latestOffset(end, ALL), said)
        assert list(administration.list_reservations()) == []


def refused(call: Any, said: str) -> None:
    with pytest.raises(SparkSetupError) as raised:
        call()
    assert said in str(raised.value)


def test_a_new_query_reserves_its_entity_when_it_plans_its_first_batch(url: str) -> None:
    send(url, "orders", ["1"])
    reader: DataSourceStreamReader = reader_of(url, CONSUME)
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        start = reader.initialOffset()
        assert list(administration.list_reservations()) == []
        reader.latestOffset(start, ALL)
        assert [each.path for each in administration.list_reservations()] == ["orders"]
