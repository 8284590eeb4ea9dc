"""Smoke tests of Spark over servers that are not a single plain one: encrypted, and watched by sentinels.

The tests that kill jobs and servers (tests/spark/chaos) have a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sbredis.servers import LocalSentinel
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import send
from tests.transport.test_tls import started, write_certificates

PASSWORD = "secret"


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[str]:
    """The connection string of a server that speaks only TLS, and asks for the certificate of a client."""
    write_certificates(tmp_path)
    for server in started(tmp_path, asks_clients=True):
        yield server.url(**server.certificate)


@pytest.fixture
def watched(binary: str | None) -> Iterator[str]:
    """The connection string of sentinels, which watch a master with a replica."""
    with LocalSentinel(1, 3, binary=binary, config={"requirepass": PASSWORD}) as deployment:
        yield deployment.url.replace("://", f"://:{PASSWORD}@")


@pytest.mark.long("Spark needs seconds for each query")
@pytest.mark.parametrize("kind", ["encrypted", "watched"])
def test_a_queue_is_written_browsed_and_consumed(
    spark: SparkSession, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url: str = request.getfixturevalue(kind)
    (tmp_path / "url").write_text(url, "utf-8")
    bus = {"urlFile": str(tmp_path / "url"), "queue": "orders"}
    send(url, "orders", [])
    rows = spark.range(0, 40, 1, 2).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("sbredis").options(**bus).mode("append").save()
    assert spark.read.format("sbredis").options(**bus).load().count() == 40
    taken: list[int] = []

    def store(batch: DataFrame, _: int) -> None:
        taken.extend(row["number"] for row in batch.selectExpr("INT(STRING(body)) AS number").collect())

    stream = spark.readStream.format("sbredis").options(**bus, mode="consume", consumer="smoke").load()
    query = stream.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(900)
    assert sorted(taken) == list(range(40))
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        assert administration.get_queue_runtime_properties("orders").active_message_count == 0
