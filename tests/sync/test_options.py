"""The clients for code without an event loop pass on all options with which they are made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

import sbredis
from sbredis import aio
from sbredis import management as sync_management
from sbredis.aio import management as aio_management

URL = "memory://unused"
WRONG: dict[str, Any] = {
    "credential": 5,
    "namespace": "bad ns!",
    "slot_count": 0,
    "retry_total": -1,
    "retry_backoff_factor": -1,
    "retry_backoff_max": -1,
    "retry_mode": "never",
    "connect_timeout": -1,
    "later": True,
}
"""For each option of a client a value that the asynchronous client refuses."""
OF_ADMINISTRATION = {
    **{name: value for name, value in WRONG.items() if not name.startswith("retry_")},
    "timeout": -1,
    "api_version": 5,
}
FROM_REDIS = {name: value for name, value in WRONG.items() if name not in {"credential", "later"}}
Maker = Callable[[Any], Any]


def constructed(api: Any) -> Any:
    return lambda **options: api.ServiceBusClient(URL, **options)


def from_string(api: Any) -> Any:
    return lambda **options: api.ServiceBusClient.from_connection_string(URL, **options)


def from_redis(api: Any) -> Any:
    return lambda **options: api.ServiceBusClient.from_redis(redis.Redis(), **options)


def administration(api: Any) -> Any:
    package = sync_management if api is sbredis else aio_management
    return lambda **options: package.ServiceBusAdministrationClient(URL, **options)


def administration_from_string(api: Any) -> Any:
    package = sync_management if api is sbredis else aio_management
    return lambda **options: package.ServiceBusAdministrationClient.from_connection_string(URL, **options)


CASES = [
    *((constructed, name, value) for name, value in WRONG.items()),
    *((from_string, name, value) for name, value in WRONG.items()),
    *((from_redis, name, value) for name, value in FROM_REDIS.items()),
    *((administration, name, value) for name, value in OF_ADMINISTRATION.items()),
    *((administration_from_string, name, OF_ADMINISTRATION[name]) for name in ("slot_count", "timeout", "namespace")),
    (administration_from_string, "credential_provider", 5),
]


@pytest.mark.parametrize(("maker", "option", "wrong"), CASES)
def test_an_option_is_refused_as_by_the_asynchronous_client(maker: Maker, option: str, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        maker(aio)(**{option: wrong})
    with pytest.raises(type(theirs.value), match=re.escape(str(theirs.value))):
        maker(sbredis)(**{option: wrong})


@pytest.mark.parametrize("maker", [constructed, from_redis])
@pytest.mark.parametrize("offers", [False, True])
def test_a_client_offers_maintenance_if_it_is_asked_to(maker: Maker, offers: bool) -> None:
    client = maker(sbredis)(maintenance=offers)
    assert client._aio._offer._made is offers
    client.close()
