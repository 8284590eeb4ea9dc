"""Every method of the synchronous administration, by what it does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError
from sbredis.management import NamespaceProperties, ServiceBusAdministrationClient


@pytest.fixture
def admin(url: str) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient(url, partition_count=2) as admin:
        yield admin


def test_a_queue_is_created_changed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    made = admin.create_queue("orders", lock_duration=timedelta(seconds=30), user_metadata="theirs")
    assert (made.lock_duration, made.user_metadata) == (timedelta(seconds=30), "theirs")
    with pytest.raises(MessagingEntityAlreadyExistsError):
        admin.create_queue("Orders")
    made.max_delivery_count = 3
    admin.update_queue(made)
    admin.update_queue({"name": "orders"}, user_metadata="ours")
    found = admin.get_queue("orders")
    assert (found.max_delivery_count, found.user_metadata) == (3, "ours")
    admin.delete_queue("orders")
    with pytest.raises(MessagingEntityNotFoundError):
        admin.get_queue("orders")


def test_a_queue_is_ensured(admin: ServiceBusAdministrationClient) -> None:
    assert admin.ensure_queue("orders", max_delivery_count=3).max_delivery_count == 3
    assert admin.ensure_queue("orders").max_delivery_count == 3


def test_messages_are_counted(admin: ServiceBusAdministrationClient, url: str) -> None:
    admin.create_queue("orders", enable_partitioning=True)
    with ServiceBusClient(url) as client, client.get_queue_sender("orders") as sender:
        sender.send_stream(ServiceBusMessage("a") for _ in range(5)).count()
    assert admin.get_queue_runtime_properties("orders").active_message_count == 5
    assert [found.active_message_count for found in admin.list_queues_runtime_properties()] == [5]


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


def test_the_namespace_is_described(admin: ServiceBusAdministrationClient) -> None:
    found = admin.get_namespace_properties()
    assert isinstance(found, NamespaceProperties)
    assert (found.name, found.partition_count) == ("default", 2)


def test_a_connection_string_may_have_azures_name(url: str) -> None:
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


def test_an_unknown_option_is_a_warning_that_shows_the_callers_line() -> None:
    with pytest.warns(UserWarning, match="ignores: later") as seen:
        ServiceBusAdministrationClient("memory://unused", later=True)
    assert [warning.filename for warning in seen] == [__file__]
