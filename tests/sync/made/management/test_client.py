"""Tests of the administration client itself: the properties of its namespace, its arguments, and its credentials."""

# Made by tools/make_sync from tests/management/test_client.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.management import NamespaceType, ServiceBusAdministrationClient

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
Admin = ServiceBusAdministrationClient


def test_the_namespace_properties_have_its_name_slot_count_and_creation_time(admin: Admin) -> None:
    found = admin.get_namespace_properties()
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
def test_wrong_limits_are_refused(admin: Admin, limits: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        admin.set_namespace_limits(**limits)
    assert (admin.get_namespace_properties()).max_entities is None


@in_memory
def test_a_new_namespace_has_256_slots_unless_another_number_is_given(where: str) -> None:
    with Admin(where) as admin:
        assert (admin.get_namespace_properties()).slot_count == 256
