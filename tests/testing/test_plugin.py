"""Tests that run a test file, as a user would write it, with pytest in a separate process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.testing import Bus, _fixtures
from tests.children import run_module

IMPORTS = """
import pytest

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def orders(sbredis_bus):
    return await sbredis_bus.create_queue("orders", max_delivery_count=3)


async def handle(url):
    async with ServiceBusClient(url) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("one"))
"""
LEFT_OPEN = """
async def test_a_test_may_leave_everything_open(sbredis_bus, orders):
    receiver = sbredis_bus.client.get_queue_receiver("orders", prefetch_count=10)
    await handle(sbredis_bus.url)
    await receiver.receive_messages()
"""
ASYNCHRONOUS = f"""{IMPORTS}

@pytest.mark.parametrize("time", [1, 2])
async def test_each_test_has_a_bus_of_its_own(sbredis_bus, orders, time):
    await handle(sbredis_bus.url)
    assert [message.body for message in await sbredis_bus.sent("orders")] == [b"one"]
    async with sbredis_bus.client.get_queue_receiver("orders") as receiver:
        await receiver.receive_messages()
        sbredis_bus.clock.advance(minutes=5)
        assert (await receiver.receive_messages())[0].delivery_count == 2

{LEFT_OPEN}"""
SYNCHRONOUS = """
import asyncio

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage


def test_without_an_event_loop(sbredis_sync_bus):
    sbredis_sync_bus.create_queue("orders")
    assert sbredis_sync_bus.sent("orders") == []
    sbredis_sync_bus.clock.advance(minutes=5)


def test_with_loops_of_its_own(sbredis_bus):
    async def use():
        await sbredis_bus.client.ensure_queue("orders")
        await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
        return await sbredis_bus.sent("orders")

    assert len(asyncio.run(use())) == 1
    assert len(asyncio.run(use())) == 2
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    """Run pytest in a folder with warnings as errors, and return its output."""
    options = ("-W", "error", "-p", "no:cacheprovider", *arguments)
    done = run_module("pytest", *options, cwd=folder, PYTHONDEVMODE="1", **environment)
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"


def test_the_name_of_every_fixture_begins_with_sbredis() -> None:
    """pytest loads the fixtures in every run, even if a project has fixtures of its own."""
    names = [name for name, value in vars(_fixtures).items() if "fixture" in type(value).__name__.lower()]
    assert names == _fixtures.__all__
    assert [name for name in names if not name.startswith("sbredis_")] == []


def test_the_fixtures_work_and_a_failing_test_shows_only_its_own_failure(tmp_path: Path) -> None:
    (tmp_path / "test_asynchronous.py").write_text(ASYNCHRONOUS, "utf-8")
    (tmp_path / "test_synchronous.py").write_text(SYNCHRONOUS, "utf-8")
    failing = f"{IMPORTS}{LEFT_OPEN}    assert await sbredis_bus.sent('orders') == 'the failure of the test'\n"
    (tmp_path / "test_that_fails.py").write_text(failing, "utf-8")
    # An environment older than the entry point does not have it. There the option loads the plugin in the same way.
    said = run(tmp_path, "-p", "sbredis.testing._plugin", "-p", "anyio", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "1 failed, 5 passed" in said, said
    assert "the failure of the test" in said
    assert "Task was destroyed" not in said


@pytest.mark.long("it starts pytest in a process")
@pytest.mark.parametrize("names", [(), ("-p", "sbredis.testing._plugin")], ids=["in a conftest", "by both names"])
def test_the_fixtures_are_also_found_by_a_conftest(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["sbredis.testing"]\n', "utf-8")
    (tmp_path / "test_it.py").write_text("def test_it(sbredis_bus, sbredis_sync_bus):\n    pass\n", "utf-8")
    said = run(tmp_path, "--setup-plan", *names, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "fixtures used: sbredis_bus, sbredis_sync_bus" in said, said
    assert "exit code 0" in said, said


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_the_error_names_the_extra_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ServerUnsuitableError, match=re.escape("pip install '.[memory]'")):
        Bus()


def test_a_run_that_uses_no_fixture_imports_no_client(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import sys

def test_it():
    wrong = [name for name in ("redis", "fakeredis", "sbredis.aio", "sbredis.engine") if name in sys.modules]
    assert wrong == []
""",
        "utf-8",
    )
    said = run(tmp_path, "-p", "sbredis.testing._plugin", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "1 passed" in said, said
