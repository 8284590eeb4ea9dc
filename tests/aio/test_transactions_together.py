"""Transactions that wait at the same time share a call, and each of them happens or is refused on its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender, ServiceBusTransaction
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import (
    KeyAlreadyUsedError,
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalServer
from tests.aio.queues import receive_exactly
from tests.aio.scissors import Scissors
from tests.aio.test_transactions import send, transact
from tests.waiting import eventually

HOUR = timedelta(hours=1)
Record = Callable[[ServiceBusTransaction], object]


class Calls:
    """Records for each call of the script how many transactions it had. It can hold calls back until they are let."""

    def __init__(self, client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.waiting = 0
        self.let = asyncio.Event()
        self.let.set()
        transport = client._connection.transport
        self._call: Callable[..., Awaitable[Any]] = transport.call
        monkeypatch.setattr(transport, "call", self)
        monkeypatch.setattr(transport, "begin", lambda *_, **__: False)  # first attempts would go another way

    async def __call__(self, script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name != "transact":
            return await self._call(script, *arguments, **options)
        self.waiting += 1
        await self.let.wait()
        reply = await self._call(script, *arguments, **options)
        self.sizes.append(sum(not isinstance(each, list) for each in reply[1:]))  # answers to grants are a list
        return reply


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    """A client of three queues in one partition of the namespace."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("inputs")
        for name in ("outputs", "others"):
            await client.ensure_queue(name, colocate_with="inputs")
            await send(client, name, "0")
        await send(client, "inputs", *"0123456")
        yield client


async def bodies(client: ServiceBusClient, name: str) -> list[str]:
    async with client.get_queue_receiver(name) as receiver:
        return sorted([str(message) for message in await receiver.peek_messages(1000)])


async def together(client: ServiceBusClient, calls: Calls, *transactions: Sequence[Record]) -> list[Any]:
    """Commit transactions while others are under way, so that they wait together. Return their results or errors.

    All of them have their home in the queue ``inputs``, as the first message that each settles or sends is there.
    """
    calls.let.clear()
    sender = client.get_queue_sender("inputs")
    before, calls.sizes = calls.waiting, []
    plugs: list[asyncio.Task[Any]] = []
    for number in range(2):
        plugs.append(asyncio.create_task(transact(client, partial(sends, sender, "plug"))))
        await eventually(lambda: calls.waiting == before + number + 1)  # noqa: B023 -- awaited at once
    entity = await client._connection.entity("inputs", asyncio.get_running_loop().time() + 60)
    lane = entity.partition_client(entity.numbers[0]).transacting
    tasks = [asyncio.create_task(transact(client, *records)) for records in transactions]
    await eventually(lambda: len(lane.gathering) == len(tasks))
    calls.let.set()
    results = await asyncio.gather(*tasks, *plugs, return_exceptions=True)
    del calls.sizes[:2]  # those of the plugs
    return results[: len(tasks)]


def sends(sender: ServiceBusSender, text: str, tx: ServiceBusTransaction) -> None:
    tx.send_messages(sender, ServiceBusMessage(text))


def completes(message: ServiceBusReceivedMessage, tx: ServiceBusTransaction) -> None:
    tx.complete_message(message)


@pytest.fixture
def calls(client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(client, monkeypatch)


async def test_each_transaction_of_a_call_has_its_own_error(client: ServiceBusClient, url: str, calls: Calls) -> None:
    """A refused transaction changes nothing, and the transactions before it and after it happen."""
    outputs, inputs = client.get_queue_sender("outputs"), client.get_queue_sender("inputs")
    await client.ensure_queue("small", colocate_with="inputs")
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.update_queue({"name": "small", "max_size_in_megabytes": 1})
    large = "x" * 400_000
    small = client.get_queue_sender("small")
    async with (
        client.get_queue_receiver("inputs") as receiver,
        ServiceBusClient(url) as other,
        other.get_settler("inputs") as settler,
    ):
        lost, *messages = await receive_exactly(receiver, 7)
        await settler.complete_message(str(lost.lock_token))

        def remembers(tx: ServiceBusTransaction) -> None:
            tx.once("key", HOUR)

        results = await together(
            client,
            calls,
            [partial(completes, messages[0]), remembers, partial(sends, outputs, "first")],
            [partial(completes, messages[1]), partial(completes, lost), partial(sends, outputs, "second")],
            [partial(completes, messages[2]), remembers, partial(sends, outputs, "third")],
            [partial(completes, messages[3]), partial(sends, small, large), partial(sends, small, large)],
            [partial(completes, messages[4]), partial(sends, small, large), partial(sends, outputs, "fifth")],
            [partial(sends, inputs, "sixth"), partial(sends, outputs, "sixth")],
        )
        assert calls.sizes == [6]
        assert [type(result) for result in results] == [
            ServiceBusTransaction,
            MessageLockLostError,
            KeyAlreadyUsedError,
            ServiceBusTransaction,
            ServiceBusQuotaExceededError,
            ServiceBusTransaction,
        ]
        errors = [result for result in results if isinstance(result, ServiceBusError)]
        assert [error.entity for error in errors] == ["inputs", "inputs", "small"]
        assert {error.outcome for error in errors} == {Outcome.REFUSED}
        assert f"message {lost.sequence_number}" in str(errors[0])
        assert results[2].key == "key"
        assert await bodies(client, "outputs") == ["0", "first", "sixth"]
        for message in (messages[1], messages[2], messages[4]):
            await receiver.complete_message(message)


async def test_a_changed_entity_is_read_again_for_the_transactions_that_use_it(
    client: ServiceBusClient, url: str, calls: Calls
) -> None:
    outputs, others = client.get_queue_sender("outputs"), client.get_queue_sender("others")
    async with client.get_queue_receiver("inputs") as receiver, ServiceBusAdministrationClient(url) as admin:
        messages = await receive_exactly(receiver, 4)
        await admin.update_queue({"name": "outputs", "max_delivery_count": 3})
        await admin.delete_queue("others")
        results = await together(
            client,
            calls,
            *[
                [partial(completes, message), partial(sends, sender, str(message))]
                for message, sender in zip(messages, [outputs, others, outputs, others], strict=True)
            ],
        )
        assert [type(result) for result in results] == [ServiceBusTransaction, MessagingEntityNotFoundError] * 2
        assert [results[1].entity, results[3].entity] == ["others"] * 2
        assert await bodies(client, "outputs") == ["0", "0", "2"]
        for message in (messages[1], messages[3]):
            await receiver.complete_message(message)


async def test_a_call_has_a_limited_number_of_messages_and_queues(client: ServiceBusClient, calls: Calls) -> None:
    inputs = client.get_queue_sender("inputs")

    def many(tx: ServiceBusTransaction) -> None:
        tx.send_messages(inputs, [ServiceBusMessage("many")] * 90)

    await together(client, calls, *[[many]] * 5)
    assert sorted(calls.sizes) == [1, 2, 2]
    senders = []
    for number in range(9):
        await client.ensure_queue(f"out{number}", colocate_with="inputs")
        senders.append(client.get_queue_sender(f"out{number}"))
        await send(client, f"out{number}", "first")
    await together(client, calls, *[[partial(sends, inputs, "x"), partial(sends, sender, "x")] for sender in senders])
    assert sorted(calls.sizes) == [2, 7]
    assert [await bodies(client, f"out{number}") for number in range(9)] == [["first", "x"]] * 9


async def test_transactions_with_too_many_copies_for_one_call_need_two(
    client: ServiceBusClient, url: str, calls: Calls
) -> None:
    inputs, outputs = client.get_queue_sender("inputs"), client.get_queue_sender("outputs")
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.create_topic("news", colocate_with="inputs")
        for number in range(20):
            await admin.create_subscription("news", f"s{number}")
    news = client.get_topic_sender("news")

    def publishes(count: int, tx: ServiceBusTransaction) -> None:
        tx.send_messages(inputs, ServiceBusMessage("home"))
        tx.send_messages(news, [ServiceBusMessage("copied")] * count)

    results = await together(
        client,
        calls,
        [partial(publishes, 95)],
        [partial(publishes, 95)],
        [partial(sends, inputs, "home"), partial(sends, outputs, "sent")],
    )
    assert [type(result) for result in results] == [ServiceBusTransaction] * 3
    assert await bodies(client, "outputs") == ["0", "sent"]
    async with client.get_subscription_receiver("news", "s10") as receiver:
        assert len(await receiver.peek_messages(400)) == 190


async def test_a_cancelled_commit_is_left_out_before_the_call_and_happens_after_it(
    client: ServiceBusClient, calls: Calls
) -> None:
    outputs = client.get_queue_sender("outputs")
    async with client.get_queue_receiver("inputs") as receiver:
        messages = await receive_exactly(receiver, 4)
        plug = client.get_queue_sender("inputs")
        entity = await client._connection.entity("inputs", asyncio.get_running_loop().time() + 60)
        lane = entity.partition_client(entity.numbers[0]).transacting
        calls.let.clear()
        tasks: list[asyncio.Task[Any]] = []
        for number in range(2):
            tasks.append(asyncio.create_task(transact(client, partial(sends, plug, "plug"))))
            await eventually(lambda: calls.waiting == number + 1)  # noqa: B023 -- awaited at once
        waiting = [
            asyncio.create_task(transact(client, partial(completes, each), partial(sends, outputs, str(each))))
            for each in messages
        ]
        await eventually(lambda: len(lane.gathering) == 4)
        waiting[1].cancel()
        await asyncio.wait(waiting[1:2])
        calls.let.set()
        await asyncio.gather(*tasks)
        calls.let.clear()
        await eventually(lambda: calls.waiting == 3)
        waiting[2].cancel()
        await asyncio.wait(waiting[2:3])
        calls.let.set()
        await asyncio.gather(waiting[0], waiting[3])
        assert calls.sizes[2:] == [3]
        assert await bodies(client, "outputs") == ["0", "0", "2", "3"]
        await receiver.complete_message(messages[1])
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(messages[2])


CUTS: dict[str, dict[str, Any]] = {"call lost": {"on_the_way": True}, "answer lost": {}}


@pytest.mark.parametrize("cut", CUTS)
async def test_transactions_whose_call_is_lost_happen_once_each(server: LocalServer, cut: str) -> None:
    async with (
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
    ):
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        await send(client, "inputs", *map(str, range(8)))
        outputs = client.get_queue_sender("outputs")
        async with client.get_queue_receiver("inputs") as receiver:
            messages = await receive_exactly(receiver, 8)
            await transact(client, partial(completes, messages[0]), partial(sends, outputs, "0"))
            network.cut("transact", 1, **CUTS[cut])
            works: list[list[Record]] = [
                [partial(completes, message), partial(sends, outputs, str(message))] for message in messages[1:]
            ]
            works[3].append(lambda tx: tx.complete_message(messages[0]))
            results = await asyncio.gather(*[transact(client, *work) for work in works], return_exceptions=True)
            assert network.cuts == 1
            assert [place for place, result in enumerate(results, 1) if isinstance(result, Exception)] == [4]
            assert await bodies(client, "outputs") == [str(number) for number in range(8) if number != 4]
            await receiver.complete_message(messages[4])
