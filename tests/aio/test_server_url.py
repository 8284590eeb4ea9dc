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
from sbredis.workers.declaring._worker_options import Setup, WorkerSettings

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


@pytest.mark.anyio
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


PASSWORD = ("user", "word")


@pytest.mark.parametrize(
    ("own", "url", "namespace", "expected"),
    [
        # nothing is replaced
        (("redis://a", "n", PASSWORD), None, None, ("redis://a", "n", PASSWORD, False)),
        (("redis://a", "n", PASSWORD), "redis://a", None, ("redis://a", "n", PASSWORD, False)),
        (("redis://a", "n", None), "redis://a", "n", ("redis://a", "n", None, False)),
        ((None, None, None), "redis://b", "m", ("redis://b", "m", None, False)),
        # the connection string, without a namespace and credentials of its own
        (("redis://a", "n", PASSWORD), "redis://b", None, ("redis://b", "n", PASSWORD, True)),
        (("redis://a", None, None), "redis://b", None, ("redis://b", None, None, True)),
        # with them
        (("redis://a", "n", PASSWORD), "redis://b?namespace=m", None, ("redis://b?namespace=m", None, PASSWORD, True)),
        (("redis://a", "n", PASSWORD), "redis://u:p@b", None, ("redis://u:p@b", "n", None, True)),
        (("redis://a", "n", PASSWORD), "redis://b?tls_ca=x@y", None, ("redis://b?tls_ca=x@y", "n", PASSWORD, True)),
        # the namespace
        (("redis://a", None, PASSWORD), None, "m", ("redis://a", "m", PASSWORD, True)),
        ((None, "n", None), "redis://b", "m", ("redis://b", "m", None, True)),
    ],
)
def test_what_the_command_names_takes_the_place_of_what_the_worker_names(
    own: tuple[Any, Any, Any], url: str | None, namespace: str | None, expected: tuple[Any, ...]
) -> None:
    settings = WorkerSettings(namespace=own[1], credential=own[2])
    setup = Setup(url=own[0], settings=settings, declared=(), by_path={}, overrides={}).with_server(url, namespace)
    assert (setup.url, setup.settings.namespace, setup.settings.credential, setup.replaces_own) == expected
