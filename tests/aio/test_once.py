"""Keys of transactions: the work of a key is done once within its window."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.engine import MessageId, slot_for_name
from sbredis.exceptions import KeyAlreadyUsedError, MessageSizeExceededError, Outcome
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from tests.aio.diverting import divert
from tests.aio.queues import bodies_in

HOUR = timedelta(hours=1)


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        yield client


async def send_once(client: ServiceBusClient, name: str, body: str, *keys: MessageId, window: Any = HOUR) -> None:
    async with client.get_queue_sender(name) as sender, client.transaction() as tx:
        for key in keys:
            tx.once(key, window)
        tx.send_messages(sender, ServiceBusMessage(body))


@pytest.mark.everywhere("a transaction needs all its keys in one slot")
async def test_the_second_transaction_with_a_key_is_refused(client: ServiceBusClient) -> None:
    await send_once(client, "outputs", "first", "order 7")
    with pytest.raises(KeyAlreadyUsedError, match=r"'order 7'.*was done before") as refused:
        await send_once(client, "outputs", "second", "new", "order 7")
    assert (refused.value.key, refused.value.entity, refused.value.outcome) == ("order 7", "outputs", Outcome.REFUSED)
    assert await bodies_in(client, "outputs") == ["first"]
    await send_once(client, "outputs", "third", "new")


@pytest.mark.parametrize(
    ("key", "same"),
    [
        (7, "7"),
        (UUID("12345678-1234-5678-1234-567812345678"), "12345678-1234-5678-1234-567812345678"),
        (b"\xff", bytearray(b"\xff")),
        ("ä", "ä".encode()),
    ],
)
async def test_a_key_is_anything_that_a_message_id_may_be(client: ServiceBusClient, key: MessageId, same: Any) -> None:
    """Keys are compared like message ids: by their texts."""
    await send_once(client, "outputs", "first", key)
    with pytest.raises(KeyAlreadyUsedError) as refused:
        await send_once(client, "outputs", "second", same)
    assert refused.value.key == same
    assert await bodies_in(client, "outputs") == ["first"]


async def test_the_input_of_known_work_stays_locked_and_can_be_completed(client: ServiceBusClient) -> None:
    """The first settled entity remembers the key, whether or not the transaction sends before it settles."""
    async with client.get_queue_sender("inputs") as sender:
        await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("1 again")])
    outputs = client.get_queue_sender("outputs")
    async with client.get_queue_receiver("inputs") as receiver:
        for _ in range(2):
            (message,) = await receiver.receive_messages(1, 60)
            try:
                async with client.transaction() as tx:
                    tx.once("order 1", HOUR)
                    tx.send_messages(outputs, ServiceBusMessage("bill"))
                    tx.complete_message(message)
            except KeyAlreadyUsedError:
                await receiver.complete_message(message)
    assert (await bodies_in(client, "inputs"), await bodies_in(client, "outputs")) == ([], ["bill"])


async def test_each_first_entity_has_keys_of_its_own(client: ServiceBusClient) -> None:
    await send_once(client, "outputs", "a", "key")
    await send_once(client, "inputs", "b", "key")
    far = next(name for n in range(100) if slot_for_name(name := f"q{n}", 256) != slot_for_name("inputs", 256))
    await client.ensure_queue(far)
    near, there = client.get_queue_sender("inputs"), client.get_queue_sender(far)

    async def send_from(*senders: ServiceBusSender) -> None:
        async with client.transaction() as tx:
            for sender in senders:
                tx.send_messages(sender, ServiceBusMessage("c"))
            tx.once("key", HOUR)

    with pytest.raises(KeyAlreadyUsedError) as refused:
        await send_from(near, there)
    assert refused.value.entity == "inputs"
    await send_from(there, near)


async def test_a_key_can_be_used_again_after_its_window() -> None:
    async with Bus() as bus:
        client = bus.client
        await client.ensure_queue("outputs")
        await send_once(client, "outputs", "first", "key", window=90)
        bus.clock.advance(seconds=89)
        with pytest.raises(KeyAlreadyUsedError):
            await send_once(client, "outputs", "second", "key", window=90)
        bus.clock.advance(seconds=1)
        await send_once(client, "outputs", "third", "key", window=90)
        assert await bodies_in(client, "outputs") == ["first", "third"]


async def test_of_two_transactions_at_once_one_happens(client: ServiceBusClient) -> None:
    outcomes = await asyncio.gather(
        *(send_once(client, "outputs", str(number), "key") for number in range(5)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["KeyAlreadyUsedError"] * 4 + ["NoneType"]
    assert len(await bodies_in(client, "outputs")) == 1


async def test_a_partition_that_forgets_keys_too_early_is_logged(
    client: ServiceBusClient, caplog: pytest.LogCaptureFixture
) -> None:
    transport = client._connection.transport
    real = transport.call

    async def forgetful(script: Any, *arguments: Any, **options: Any) -> Any:
        reply = await real(script, *arguments, **options)
        if script.name != "transact":
            return reply
        _, bar, rest = reply[1].partition(b"|")  # the result of `once` comes first
        return [reply[0], b"3" + bar + rest]

    divert(transport, forgetful)
    with caplog.at_level(logging.WARNING, "sbredis.client"):
        await send_once(client, "outputs", "a", "key")
    assert "has forgotten 3 keys of transactions before the ends of their windows" in caplog.text


# -- wrong calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "window", "kind", "text"),
    [
        ("", 1, ValueError, "key is empty"),
        ("x" * 129, 1, ValueError, "has 129 characters"),
        ("\ud800", 1, ValueError, "surrogate"),
        (b"", 1, ValueError, "key has 0 bytes"),
        (b"x" * 129, 1, ValueError, "key has 129 bytes"),
        (7.5, 1, TypeError, "key must be str, int, UUID or bytes, not float"),
        (True, 1, TypeError, "key must be str, int, UUID or bytes, not bool"),
        (None, 1, TypeError, "key must be str, int, UUID or bytes, not NoneType"),
        (-1, 1, ValueError, "does not fit into 64 bits"),
        ("x", 0, ValueError, "more than 0 seconds"),
        ("x", -1, ValueError, "more than 0 seconds"),
        ("x", float("nan"), ValueError, "more than 0 seconds"),
        ("x", timedelta(0), ValueError, "more than 0 seconds"),
        ("x", timedelta(days=366, seconds=1), ValueError, "at most 366 days"),
        ("x", True, TypeError, "timedelta or a number of seconds, not bool"),
        ("x", "1", TypeError, "timedelta or a number of seconds, not str"),
    ],
)
async def test_wrong_keys_and_windows_are_refused(
    client: ServiceBusClient, key: Any, window: Any, kind: type[Exception], text: str
) -> None:
    async with client.transaction() as tx:
        with pytest.raises(kind, match=text):
            tx.once(key, window)


async def test_a_key_is_given_once(client: ServiceBusClient) -> None:
    async with client.transaction() as tx:
        tx.once("key", HOUR)
        with pytest.raises(ValueError, match="uses the key 'key' already"):
            tx.once("key", 1)
        tx.rollback()
        with pytest.raises(ValueError, match="was rolled back"):
            tx.once("other", HOUR)
    with pytest.raises(ValueError, match="has ended"):
        tx.once("other", HOUR)


async def test_a_key_needs_a_message(client: ServiceBusClient) -> None:
    with pytest.raises(ValueError, match="neither sends nor settles a message"):
        async with client.transaction() as tx:
            tx.once("key", HOUR)


async def test_keys_count_in_the_limit_of_a_transaction(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("outputs") as sender:
        async with client.transaction() as tx:
            for number in range(99):
                tx.once(f"key {number}", HOUR)
            tx.send_messages(sender, ServiceBusMessage("a"))
            with pytest.raises(MessageSizeExceededError, match="messages, session states, keys and watermarks"):
                tx.once("one more", HOUR)
        with pytest.raises(KeyAlreadyUsedError) as refused:
            await send_once(client, "outputs", "b", "new", "key 50")
        assert refused.value.key == "key 50"
