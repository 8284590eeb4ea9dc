"""Tests of reading settlements of entities that are not audited."""

from __future__ import annotations

import pytest

from sbredis import ServiceBusClient
from sbredis.exceptions import SparkSetupError
from sbredis.spark._settlements import SettlementsReader
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import query, rows_of, send

pytestmark = pytest.mark.slow


def reader_of(url: str, **options: str) -> SettlementsReader:
    return SettlementsReader(query(url, stream=False, records="settlements", **options))


def test_an_entity_that_was_never_audited_is_refused_with_the_remedy(url: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.create_queue("orders")
        administration.create_topic("events")
        administration.create_subscription("events", "all")
    with pytest.raises(SparkSetupError, match=r"set audit=True \(sbredis queue update orders --audit\)"):
        reader_of(url, queue="orders").partitions()
    with pytest.raises(SparkSetupError, match=r"\(sbredis subscription update events all --audit\)"):
        reader_of(url, topic="events", subscription="all").partitions()


def test_what_an_entity_remembers_is_read_with_a_warning_when_it_is_not_audited_any_more(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.create_queue("orders", audit=True)
        reader = reader_of(url, queue="orders")
        assert rows_of(reader, reader.partitions()) == []  # it is audited, and nothing has happened yet
        send(url, "orders", ["1"], partitioned=False)
        with ServiceBusClient(url) as client, client.get_queue_receiver("orders") as receiver:
            receiver.complete_message(receiver.receive_messages(1)[0])
        assert "not audited any more" not in caplog.text
        properties = administration.get_queue("orders")
        properties.audit = False
        administration.update_queue(properties)
    reader = reader_of(url, queue="orders")
    assert [row["event"] for row in rows_of(reader, reader.partitions())] == ["given", "completed"]
    assert "'orders' is not audited any more" in caplog.text
