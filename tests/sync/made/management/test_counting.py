"""Tests of counting the messages of a queue: the totals and the counts by state, and missing partitions."""

# Made by tools/make_sync from tests/management/test_counting.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sbredis.management import (
    QueueRuntimeProperties,
    ServiceBusAdministrationClient,
)

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Admin = ServiceBusAdministrationClient


def test_all_counts_of_an_empty_queue_are_zero(admin: Admin) -> None:
    admin.create_queue("Orders")
    found = admin.get_queue_runtime_properties("orders")
    assert abs(found.created_at_utc - datetime.now(UTC)) < timedelta(minutes=1)
    assert abs(found.accessed_at_utc - datetime.now(UTC)) < timedelta(minutes=1), "each partition was made just now"
    assert found == QueueRuntimeProperties(
        name="Orders",
        created_at_utc=found.created_at_utc,
        updated_at_utc=found.created_at_utc,
        accessed_at_utc=found.accessed_at_utc,
    )


def test_a_change_updates_the_time_of_the_last_change(admin: Admin) -> None:
    admin.create_queue("q")
    created = admin.get_queue_runtime_properties("q")
    admin.update_queue({"name": "q"}, max_delivery_count=3)
    changed = admin.get_queue_runtime_properties("q")
    assert changed.created_at_utc == created.created_at_utc
    assert changed.updated_at_utc >= created.updated_at_utc
    assert changed.accessed_at_utc >= created.accessed_at_utc
