"""Tests of clients and workers without a connection string: they read ``SBREDIS_URL``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import sbredis
from sbredis import aio, management
from sbredis.aio import management as aio_management
from sbredis.exceptions import InvalidConnectionStringError
from sbredis.testing import Bus
from sbredis.workers import Worker

CLIENTS: list[type[Any]] = [
    aio.ServiceBusClient,
    sbredis.ServiceBusClient,
    aio_management.ServiceBusAdministrationClient,
    management.ServiceBusAdministrationClient,
]
MISSING = r"^No server is named: give a connection string, or set SBREDIS_URL, for example to redis://localhost:6379\. "


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_without_a_connection_string_reads_it_from_the_environment(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBREDIS_URL", "redis://:hidden@shop:6380?namespace=orders")
    assert repr(kind()) == f"<{kind.__name__} standalone shop:6380, namespace 'orders', open>"
    assert repr(kind(namespace="other")) == f"<{kind.__name__} standalone shop:6380, namespace 'other', open>"
    assert repr(kind("redis://given")) == f"<{kind.__name__} standalone given:6379, namespace 'default', open>"


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_without_any_connection_string_says_what_to_do(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SBREDIS_URL", raising=False)
    with pytest.raises(InvalidConnectionStringError, match=MISSING):
        kind()
    monkeypatch.setenv("SBREDIS_URL", "")
    with pytest.raises(InvalidConnectionStringError, match=MISSING):
        kind()


async def test_a_worker_without_a_connection_string_reads_it_when_it_starts(
    sbredis_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncGenerator[None]:
        began.append(worker.client.namespace)
        yield

    worker = Worker(namespace="shop", lifespan=lifespan)

    @worker.queue("orders", create_if_missing=True)
    async def place(text: str) -> None:
        assert text

    monkeypatch.delenv("SBREDIS_URL", raising=False)
    with pytest.raises(InvalidConnectionStringError, match=MISSING):
        await worker.run()
    assert (began, repr(worker)) == ([], "<Worker with 1 handler, stopped>")
    monkeypatch.setenv("SBREDIS_URL", sbredis_bus.url)
    async with worker.running():
        assert began == ["shop"]
