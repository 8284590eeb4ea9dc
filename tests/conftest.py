"""The fixtures that all tests share: three targets, each started once, and an event loop that reports forgotten
coroutines.

A test that takes ``url`` runs in memory and on one server. A test with the mark ``everywhere`` also runs on a cluster
of three masters (tests/plugins/targets.py). The environment variable ``SBREDIS_TEST_SERVER`` names the server program
to test, for example an older one. Without it the tests use the program in the wheel (see
:func:`sbredis.servers.find_server`).
"""

from __future__ import annotations

import logging
import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import forget_memory, forget_notes
from sbredis.transport._memory import memory_names
from tests.access.users import confined_url
from tests.loops import OneThreadLoop
from tests.plugins.forms import in_form, may_be_any

logging.getLogger("asyncio").setLevel(logging.ERROR)
"""In its debug mode asyncio warns about each step that takes 0.1 s. On a busy machine any step may take that long."""

settings.register_profile("patient", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
"""Hypothesis measures how long an example takes, and this depends on the machine."""

CONFINED = {
    *("aio", "client", "entities", "maintenance", "management", "moving"),
    *("receiving", "registry", "sync", "telemetry", "testing", "workers"),
}
"""The folders of tests that use the client as services do."""
BINARY = os.environ.get("SBREDIS_TEST_SERVER") or None


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Choose asyncio. A test without a server gets a loop that refuses calls from another thread.

    In every test, Python warns about a coroutine that is never awaited, and a warning is an error.
    """
    over = request.getfixturevalue("target") if "target" in request.fixturenames else "memory"
    return "asyncio", {"loop_factory": OneThreadLoop if over == "memory" else None}


@pytest.fixture(autouse=True)
def forgotten_memory() -> Iterator[None]:
    """Forget the in-memory servers that a test made. Otherwise they and their data live as long as the process."""
    before = set(memory_names())
    yield
    for name in memory_names():
        if name not in before:
            forget_memory(name)


@pytest.fixture(autouse=True)
def forgotten_notes() -> None:
    """Let the first client of a test log what its servers may lose, even if an earlier test has used these servers."""
    forget_notes()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make child processes react to SIGINT. A test run in the background ignores this signal, and child processes
    inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def binary() -> str | None:
    """The server program that this run tests."""
    return BINARY


@pytest.fixture(scope="session")
def shared_server(binary: str | None) -> Iterator[LocalServer]:
    """One server for all tests that leave it unchanged."""
    with LocalServer(binary=binary) as server:
        yield server


@pytest.fixture(scope="session")
def shared_cluster(binary: str | None) -> Iterator[LocalCluster]:
    """One cluster of three masters for all tests that leave it unchanged."""
    with LocalCluster(3, 0, node_timeout=60_000, binary=binary) as cluster:  # a busy node must not count as failed
        yield cluster


@pytest.fixture
def server(shared_server: LocalServer, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """The shared server, without data."""
    shared_server.ask("FLUSHALL")
    with in_form([shared_server], may_be_any=may_be_any(request.node)):
        yield shared_server


@pytest.fixture
def cluster(shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The shared cluster, without data."""
    shared_cluster.flush()
    with in_form(shared_cluster.nodes, may_be_any=may_be_any(request.node)):
        yield shared_cluster


@pytest.fixture
def replicated_cluster(binary: str | None) -> Iterator[LocalCluster]:
    """A fresh cluster with a replica for each master, for tests that damage it."""
    with LocalCluster(3, 1, node_timeout=2000, binary=binary) as cluster:  # with this setting a failover takes 3 to 6 s
        yield cluster


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    """The target of a test: "memory", "server" or "cluster" (tests/plugins/targets.py chooses it)."""
    return str(request.param)


@pytest.fixture
def url(target: str, request: pytest.FixtureRequest) -> str:
    """The connection string of an empty target.

    In the folders of :data:`CONFINED` it is that of a user with the rights that ``sbredis acl`` prints.
    """
    if target == "memory":
        return f"memory://{uuid.uuid4().hex}"
    running: LocalServer | LocalCluster = request.getfixturevalue(target)
    return confined_url(running) if request.path.parent.name in CONFINED else running.url
