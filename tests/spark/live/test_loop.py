"""Tests of the event loop and the clients of a process of Spark."""

from __future__ import annotations

import logging

import pytest
from pyspark import TaskContext

from sbredis.servers import LocalServer
from sbredis.spark._loop import client_of, close_clients, run
from sbredis.spark._secrets import Server
from sbredis.transport import forget_notes


async def opened(server: Server) -> None:
    async with (await client_of(server)).get_queue_sender("orders", create_if_missing=True):
        pass


def test_only_the_driver_says_what_its_servers_may_lose(
    server: LocalServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each Python process of each executor would say it again."""
    run(opened(Server(server.url, None)))
    assert "durability=master on" in caplog.text
    close_clients()
    caplog.clear()
    forget_notes()  # a task of Spark runs in another process
    monkeypatch.setattr(logging.getLogger("sbredis.transport"), "filters", [])  # the process of a task would keep them
    monkeypatch.setattr(TaskContext, "get", object)
    run(opened(Server(server.url, None)))
    assert "durability=" not in caplog.text
