"""Tests of functions that the guides show outside a program: they do what the guides say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.aio import ServiceBusClient, ServiceBusSession
from tools.repository import ROOT
from tools.run_page import python_blocks


def fragment(page: str, name: str) -> Any:
    """Compile a function that a page shows, and return it."""
    for block in python_blocks((ROOT / page).read_text("utf-8")):
        if f"async def {name}(" in block.code:
            names: dict[str, Any] = {}
            exec(compile(block.code, page, "exec"), names)  # noqa: S102  # our own documents
            return names[name]
    raise LookupError(f"{page} shows no function {name}")


async def test_the_pipeline_of_the_guide_works(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The pipeline sends each message that can be sent, and reports the others."""

    async def source() -> AsyncIterator[ServiceBusMessage]:
        for size in (10, 2_000_000, 20):
            yield ServiceBusMessage(bytes(size))

    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("orders", create_if_missing=True) as sender:
            await fragment("docs/sending.md", "pipeline")(sender, source())
        async with client.get_queue_receiver("orders") as receiver:
            assert len(await receiver.peek_messages(10)) == 2
    assert re.match(r"1 The message 1 of the stream .* 2000\d+ bytes", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["work", "work_that_blocks"])
async def test_a_worker_of_the_guide_handles_and_completes_its_messages(url: str, name: str) -> None:
    handled: list[str] = []

    def note(message: ServiceBusReceivedMessage) -> None:
        handled.append(str(message))
        if len(handled) == 3:
            asyncio.get_running_loop().call_soon(ended.cancel)

    async def handle(message: ServiceBusReceivedMessage) -> None:
        note(message)

    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("orders", create_if_missing=True) as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        work = fragment("docs/receiving.md", name)(client, handle if name == "work" else note)
        ended = asyncio.ensure_future(work)
        await asyncio.wait([ended])
    assert handled == ["0", "1", "2"]


async def test_the_gateway_of_the_guide_delivers_what_its_client_has_credit_for(url: str) -> None:
    """The messages that come until the drain are delivered, and no others come."""
    delivered: list[str] = []

    async def deliver(message: ServiceBusReceivedMessage) -> None:
        delivered.append(str(message))

    async with ServiceBusClient(url) as client:
        async with client.get_queue_sender("orders", create_if_missing=True) as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        async with client.get_queue_receiver("orders") as receiver:
            flow = fragment("docs/receiving.md", "flow")
            while len(delivered) < 2:
                await flow(receiver, 2 - len(delivered), drain=True, deliver=deliver)
            await flow(receiver, 0, drain=True, deliver=deliver)
    assert delivered == ["0", "1"]


async def test_the_guide_asks_for_a_price(url: str) -> None:
    """The request gets the value of its reply."""
    async with ServiceBusClient(url) as client, ServiceBusClient(url) as shop:
        await client.ensure_queue("prices")
        asking = asyncio.ensure_future(fragment("docs/sessions.md", "price_of")(client, "bolt"))
        async with shop.get_queue_receiver("prices") as receiver:
            (request,) = await receiver.receive_messages(1, 60)
            reply = ServiceBusMessage(b"5", content_type="application/json", correlation_id=request.message_id)
            assert request.reply_to is not None
            await shop.get_queue_sender(request.reply_to).send_messages(reply)
            await receiver.complete_message(request)
        assert await asking == 5


@pytest.mark.parametrize("name", ["work", "patient"])
async def test_the_session_workers_of_the_guide_work(name: str, url: str) -> None:
    """Each worker handles the messages of a session in order."""
    handled: list[tuple[str, str]] = []

    async def handle(session: ServiceBusSession, message: ServiceBusReceivedMessage) -> None:
        handled.append((session.session_id, str(message)))
        if len(handled) == 3:
            ended.cancel()

    async with ServiceBusClient(url) as client:
        await client.ensure_queue("payments", requires_session=True)
        async with client.get_queue_sender("payments") as sender:
            await sender.send_messages([ServiceBusMessage(str(number), session_id="ann") for number in range(3)])
        ended = asyncio.ensure_future(fragment("docs/sessions.md", name)(client, handle))
        await asyncio.wait([ended])
    assert handled == [("ann", "0"), ("ann", "1"), ("ann", "2")]


async def test_the_guide_lists_and_clears_a_session_without_a_receiver(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clearing one session leaves the other sessions in place."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("payments", requires_session=True)
        async with client.get_queue_sender("payments") as sender:
            for account in ("ann", "bob"):
                await sender.send_messages([ServiceBusMessage(str(n), session_id=account) for n in range(2)])
        assert await fragment("docs/sessions.md", "show_and_clear")(client, "ann") == 2
        left = await client.get_queue_receiver("payments").peek_messages(10)
    assert [message.session_id for message in left] == ["bob", "bob"]
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.slow
async def test_the_guide_maintains_topics(url: str) -> None:
    """While the function of the guide runs, scheduled messages of a topic reach its subscriptions."""
    ended = asyncio.Event()
    looking_after = asyncio.ensure_future(fragment("docs/topics.md", "look_after")(url, ended))
    async with (
        ServiceBusClient(url) as client,
        client.get_topic_sender("orders", create_if_missing=True) as sender,
        client.get_subscription_receiver("orders", "all", create_if_missing=True) as receiver,
    ):
        soon = datetime.now(UTC) + timedelta(seconds=0.2)
        await sender.schedule_messages(ServiceBusMessage("later"), soon)
        (message,) = await receiver.receive_messages(max_wait_time=30)
    assert str(message) == "later"
    ended.set()
    await looking_after


async def test_the_guide_maintains_queues(url: str) -> None:
    """While the function of the guide runs, a receiver of dead letters gets expired messages, although no client uses
    the queue itself.
    """
    ended = asyncio.Event()
    maintaining = asyncio.ensure_future(fragment("docs/time.md", "maintain")(url, ended))
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders", dead_lettering_on_message_expiration=True)
        async with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
            async with client.get_queue_sender("orders") as sender:
                soon = timedelta(seconds=0.2)
                await sender.send_messages(ServiceBusMessage("too late", time_to_live=soon))
            (message,) = await receiver.receive_messages(max_wait_time=60)
    assert str(message) == "too late"
    ended.set()
    await maintaining


async def test_the_guide_redrives_dead_letters(url: str) -> None:
    """The function of the guide puts the dead letters of one customer back."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")
        async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            for customer in ("Ada", "Bob"):
                message = ServiceBusMessage(customer, application_properties={"customer": customer})
                await sender.send_messages(message)
                (dead,) = await receiver.receive_messages(max_wait_time=60)
                await receiver.dead_letter_message(dead, reason="Timeout")
            await fragment("docs/dead-letters.md", "redrive")(client)
            assert [str(each) for each in await receiver.peek_messages(5)] == ["Ada"]


async def test_the_guide_leads_and_reports(url: str) -> None:
    """The functions of the guide do their work under a role, and once a tick."""
    ended, fences, times = asyncio.Event(), list[int](), list[datetime]()

    async def step(fence: int) -> None:
        fences.append(fence)
        ended.set()

    async def report(time: datetime) -> None:
        times.append(time)
        ended.set()

    async with ServiceBusClient(url) as client:
        await fragment("docs/queues.md", "lead")(client, step, ended)
        ended.clear()
        await fragment("docs/queues.md", "report_every_hour")(client, report, ended)
    assert fences[0] > 0
    assert [(time.minute, time.second) for time in times] == [(0, 0)]


@pytest.mark.parametrize("well", [True, False])
async def test_the_guide_settles_a_message_through_another_client(url: str, well: bool) -> None:
    """Another client completes the message, or abandons it for another delivery."""

    async def done() -> bool:
        return well

    async with ServiceBusClient(url) as here, ServiceBusClient(url) as there:
        async with here.get_queue_sender("orders", create_if_missing=True) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
        text, handle = await fragment("docs/receiving.md", "receive_here")(here)
        assert text == "a"
        await fragment("docs/receiving.md", "settle_there")(there, handle, done)
        left = await here.get_queue_receiver("orders").peek_messages(5)
        assert [message.delivery_count for message in left] == ([] if well else [1])


async def test_the_guide_hands_a_session_to_another_process(url: str) -> None:
    """The second process reads the state of the session and settles the message."""
    async with ServiceBusClient(url) as here, ServiceBusClient(url) as there:
        await here.ensure_queue("payments", requires_session=True)
        async with here.get_queue_sender("payments") as sender:
            await sender.send_messages([ServiceBusMessage(str(number), session_id="ann") for number in range(2)])
        for count in (b"1", b"2"):
            async with here.get_queue_receiver("payments", session_id="ann") as receiver:
                (message,) = await receiver.receive_messages(max_wait_time=20)
                tokens = receiver.session.lock_token, str(message.lock_token)
                await fragment("docs/sessions.md", "count_there")(there, *tokens)
            async with here.get_queue_receiver("payments", session_id="ann") as receiver:
                assert await receiver.session.get_state() == count


@pytest.mark.slow
async def test_the_guide_stops_a_handler_whose_session_lock_is_lost(url: str) -> None:
    """A handler that ends before its lock is lost returns its result."""

    async def quick() -> str:
        return "done"

    async with ServiceBusClient(url) as client:
        await client.ensure_queue("payments", requires_session=True, lock_duration=timedelta(seconds=5))
        async with client.get_queue_receiver("payments", session_id="ann") as receiver:
            # In the guide this function is part of a module that has already imported asyncio.
            guarded = fragment("docs/sessions.md", "guarded")
            guarded.__globals__["asyncio"] = asyncio
            assert await guarded(receiver.session, quick) == "done"
            with pytest.raises(asyncio.CancelledError):
                await guarded(receiver.session, asyncio.Event().wait)


async def test_the_handler_of_the_guide_sends_everything_or_abandons_the_message(url: str) -> None:
    """The first delivery fails after a part of the work, and the second delivery succeeds."""
    handle = fragment("docs/transactions.md", "handle")
    deliveries: list[int | None] = []

    async def work(message: ServiceBusReceivedMessage) -> list[object]:
        deliveries.append(message.delivery_count)
        return [ServiceBusMessage("one"), ServiceBusMessage("two") if len(deliveries) == 2 else 2]

    async with ServiceBusClient(url) as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        async with (
            client.get_queue_sender("inputs") as inputs,
            client.get_queue_sender("outputs") as outputs,
            client.get_queue_receiver("inputs") as receiver,
            client.get_queue_receiver("outputs") as results,
        ):
            await inputs.send_messages(ServiceBusMessage("input"))
            (message,) = await receiver.receive_messages()
            with pytest.raises(TypeError, match="a message must be"):
                await handle(client, receiver, message, work, outputs)
            assert await results.peek_messages(10) == []
            (message,) = await receiver.receive_messages()
            await handle(client, receiver, message, work, outputs)
            assert [str(each) for each in await results.peek_messages(10)] == ["one", "two"]
            assert await receiver.peek_messages(10) == []
    assert deliveries == [1, 2]
