"""A client that administers the namespace ``ns`` of four partitions, and the contents of its servers."""

# Made by tools/make_sync from tests/management/conftest.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbredis.management import ServiceBusAdministrationClient


def in_namespace(url: str) -> str:
    """Return the connection string of the namespace ``ns``."""
    return f"{url}{'&' if '?' in url else '?'}namespace=ns"


@pytest.fixture
def where(url: str) -> str:
    """The connection string of the namespace ``ns`` of an empty target."""
    return in_namespace(url)


@pytest.fixture
def admin(where: str) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(where, slot_count=4) as admin:
        admin.get_namespace_properties()
        yield admin
