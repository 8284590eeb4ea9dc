"""Tests of the administration client itself: the properties of its namespace, its arguments, and its credentials."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import InvalidConnectionStringError, NamespaceSlotsError, ServiceBusAuthenticationError
from sbredis.management import NamespaceType, QueueProperties
from sbredis.management import ServiceBusAdministrationClient as SyncAdmin
from sbredis.servers import LocalServer
from tests.management.refusals import refused

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_the_namespace_properties_have_its_name_slot_count_and_creation_time(admin: Admin) -> None:
    found = await admin.get_namespace_properties()
    assert (found.name, found.slot_count, found.namespace_type) == ("ns", 4, NamespaceType.MESSAGING)
    assert found.created_at_utc is not None
    assert found.created_at_utc == found.modified_at_utc
    assert abs(found.created_at_utc - datetime.now(UTC)) < timedelta(minutes=1)
    assert (found.alias, found.messaging_sku, found.messaging_units) == (None, None, None)


@in_memory
@pytest.mark.parametrize(
    ("limits", "error", "match"),
    [
        ({"max_entities": -1, "max_size_in_megabytes": None}, ValueError, "max_entities must be from 0 to"),
        ({"max_entities": None, "max_size_in_megabytes": 1.5}, TypeError, "must be a whole number, not float"),
        ({"max_entities": True, "max_size_in_megabytes": None}, TypeError, "must be a whole number, not bool"),
    ],
)
async def test_wrong_limits_are_refused(admin: Admin, limits: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        await admin.set_namespace_limits(**limits)
    assert (await admin.get_namespace_properties()).max_entities is None


async def test_a_namespace_is_not_opened_with_another_number_of_slots(admin: Admin, where: str) -> None:
    async with Admin.from_connection_string(where, slot_count=5) as another:
        await refused(admin, another.get_namespace_properties(), NamespaceSlotsError, "has 4 slots")
    async with Admin(where) as another:
        assert (await another.get_namespace_properties()).slot_count == 4


@in_memory
async def test_a_new_namespace_has_256_slots_unless_another_number_is_given(where: str) -> None:
    async with Admin(where) as admin:
        assert (await admin.get_namespace_properties()).slot_count == 256


async def test_clients_and_lists_have_a_useful_repr() -> None:
    admin = Admin("memory://shown?namespace=orders")
    with SyncAdmin("memory://shown?namespace=orders") as other:
        shown = "<ServiceBusAdministrationClient memory shown, namespace 'orders', open>"
        assert repr(admin) == repr(other) == shown
        assert repr(admin.list_queues()) == "<AsyncItemPaged: async for item in it, or its pages, by_page()>"
        assert repr(other.list_queues()) == "<ItemPaged: for item in it, or its pages, by_page()>"
    await admin.close()
    assert repr(admin) == repr(other) == shown.replace("open", "closed")


def test_wrong_client_options_are_refused_by_the_constructor() -> None:
    with pytest.raises(InvalidConnectionStringError, match="connection string of Azure"):
        Admin.from_connection_string("Endpoint=sb://x.servicebus.windows.net/;SharedAccessKey=s")
    with pytest.raises(TypeError, match=r"credential must be a tuple of user and password, or a .*, not object"):
        Admin("memory://x", object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        Admin("memory://x", timeout=0)
    with pytest.raises(ValueError, match="slot_count must be from 1 to 1024, not 0"):
        Admin("memory://x", slot_count=0)
    with pytest.raises(ValueError, match="namespace 'a b' must have 1 to 50"):
        Admin("memory://x", namespace="a b")
    with pytest.raises(ValueError, match="2016-07"):
        Admin.from_connection_string("memory://x", api_version="2016-07")
    with pytest.warns(UserWarning, match="ignores keywords of Azure's library: logging_enable"):
        Admin.from_connection_string("memory://x", api_version="2024-05", logging_enable=True)  # type: ignore[call-arg]


# -- credentials -------------------------------------------------------------------------------------------------------


class Provided:
    """A credential provider."""

    def __init__(self, *credentials: str) -> None:
        self.credentials = credentials
        self.asked = 0

    def get_credentials(self) -> Any:
        self.asked += 1
        return self.credentials

    async def get_credentials_async(self) -> Any:
        return self.get_credentials()


async def test_credentials_may_be_given_separately_from_the_connection_string(server: LocalServer) -> None:
    server.ask("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")
    try:
        provider = Provided("ann", "secret")
        async with Admin.from_connection_string(server.url, credential_provider=provider, namespace="ns") as admin:
            assert await admin.ensure_queue("q") == QueueProperties("q")
        assert provider.asked > 0
        async with Admin(server.url, ("ann", "secret"), namespace="ns") as admin:
            assert await admin.get_queue("q") == QueueProperties("q")
        async with Admin(server.url, ("ann", "wrong"), namespace="ns") as admin:
            with pytest.raises(ServiceBusAuthenticationError):
                await admin.get_queue("q")
    finally:
        server.ask("ACL", "DELUSER", "ann")
