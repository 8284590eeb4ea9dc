"""The administration client for code without an event loop: pages, bulk readers and writers, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sbredis.aio import ServiceBusClient as AsyncClient
from sbredis.bulk import BulkWriter, reserve
from sbredis.engine import Outbound
from sbredis.exceptions import (
    EntityReservedError,
    MessagingEntityNotFoundError,
)
from sbredis.management import ServiceBusAdministrationClient


@pytest.fixture
def admin(url: str) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient(url, partition_count=2) as admin:
        yield admin


def test_reservations_are_listed_and_released(url: str, admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")

    async def reserve_orders() -> None:
        async with AsyncClient(url) as client:
            await reserve(client, "orders", consumer="capture")

    asyncio.run(reserve_orders())
    assert [each.consumer for each in admin.list_reservations(stale_after=60)] == ["capture"]
    assert [each.consumer for each in admin.list_reservations(entity_path="orders")] == ["capture"]
    with pytest.raises(EntityReservedError, match="for the consumer 'capture'"):
        admin.delete_queue("orders")
    assert admin.release_reservation("orders", consumer="capture")
    assert not admin.release_reservation("orders")
    assert list(admin.list_reservations()) == []


def test_a_bulk_writer_is_forgotten(url: str, admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")

    async def write() -> int:
        async with AsyncClient(url) as client, BulkWriter(client, "orders", writer="w", batch=1, task=0) as writer:
            await writer.write(Outbound([b"row"]))
            return (await writer.finish()).stored

    assert [asyncio.run(write()) for _ in range(2)] == [1, 0]
    assert admin.forget_writer("Orders", "w") == 1
    assert admin.forget_writer("orders", "w") == 0
    assert asyncio.run(write()) == 1
    with pytest.raises(ValueError, match="writer 'a b' must have"):
        admin.forget_writer("orders", "a b")
    with pytest.raises(MessagingEntityNotFoundError):
        admin.forget_writer("missing", "w")


@pytest.mark.slow
def test_queues_are_listed_page_by_page(admin: ServiceBusAdministrationClient) -> None:
    assert list(admin.list_queues()) == []
    names = [f"q{number:03}" for number in range(103)]
    for name in names:
        admin.create_queue(name)
    paged = admin.list_queues()
    assert next(paged).name == "q000"
    assert [queue.name for queue in paged] == names[1:]
    pages = admin.list_queues().by_page()
    assert len(list(next(pages))) == 100
    assert pages.continuation_token is not None
    rest = admin.list_queues().by_page(pages.continuation_token)
    assert [queue.name for page in rest for queue in page] == names[100:]
    assert rest.continuation_token is None
    with pytest.raises(StopIteration):
        rest.next_page()


def test_a_client_can_be_made_with_from_connection_string(url: str) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url, partition_count=1) as admin:
        assert admin.get_namespace_properties().partition_count == 1


def test_a_closed_client_cannot_be_used(url: str) -> None:
    unused = ServiceBusAdministrationClient(url)
    unused.close()
    with ServiceBusAdministrationClient(url) as used:
        used.ensure_queue("orders")
        queues = used.list_queues()
    for use in (lambda: unused.get_queue("orders"), lambda: used.get_queue("orders"), lambda: list(queues)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_option_of_azures_library_causes_a_warning_at_the_callers_line() -> None:
    with pytest.warns(UserWarning, match="ignores keywords of Azure's library: retry_total") as seen:
        ServiceBusAdministrationClient("memory://unused", retry_total=3)  # type: ignore[call-arg]
    assert [warning.filename for warning in seen] == [__file__]
