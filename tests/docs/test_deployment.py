"""Tests that the rights of the page about deployment are enough, and reach only one namespace."""

from __future__ import annotations

import re

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient, check_connection
from sbredis.exceptions import ServiceBusAuthorizationError
from sbredis.servers import LocalServer
from tools.repository import ROOT

pytestmark = pytest.mark.anyio
PAGE = (ROOT / "docs" / "deployment.md").read_text("utf-8")


async def test_the_user_of_the_page_can_work_in_its_namespace_and_in_no_other(binary: str | None) -> None:
    found = re.search(r"^ACL SETUSER .*$", PAGE, re.MULTILINE)
    assert found is not None
    with LocalServer(binary=binary, config={"appendonly": "yes"}) as server:
        server.ask(*found[0].replace("PASSWORD", "secret").split())
        url = server.url.replace("://", "://orders:secret@")
        await check_connection(f"{url}?namespace=orders")
        async with ServiceBusClient(f"{url}?namespace=orders", maintenance=True) as client:
            await client.ensure_queue("q", requires_session=True, enable_partitioning=True)
            sender = client.get_queue_sender("q")
            await sender.send_messages(ServiceBusMessage("a", session_id="s"))
            async with client.get_queue_receiver("q", session_id="s") as receiver:
                (message,) = await receiver.receive_messages(max_wait_time=20)
                await receiver.session.set_state("b")
                async with client.transaction() as tx:
                    tx.send_messages(sender, ServiceBusMessage("c", session_id="s"))
                    tx.complete_message(message)
                (message,) = await receiver.receive_messages(max_wait_time=20)
                await receiver.dead_letter_message(message)
            async with client.get_queue_receiver("q", sub_queue="deadletter") as letters:
                assert (await letters.redrive_messages()).moved == 1
        with pytest.raises(ServiceBusAuthorizationError):
            async with ServiceBusClient(f"{url}?namespace=other") as client:
                await client.ensure_queue("q")
