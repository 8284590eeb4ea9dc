"""Settlements that carry grants: one call settles and fetches."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from opentelemetry import trace

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.engine import SentGrant
from sbredis.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, hold_of
from sbredis.servers import LocalServer
from tests.aio.gates import Gate
from tests.aio.queues import Calls, Queue, in_memory, on_servers, queue_at
from tests.aio.scissors import Scissors
from tests.telemetry.telemetry_listener import Listener, linked, listener, traceparent
from tests.waiting import eventually
from tests.workers.virtual import VirtualLoop

__all__ = ["listener"]


class Handlers:
    """Handles the messages of receivers, and counts how often it begins each of them."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, *receivers: ServiceBusReceiver) -> None:
        self.tasks += [asyncio.create_task(self._handle(receiver)) for receiver in receivers]

    async def _handle(self, receiver: ServiceBusReceiver) -> None:
        async for message in receiver:
            self.begun[str(message)] += 1
            while not hold_of(message).settled:
                try:
                    await receiver.complete_message(message)
                except MessageLockLostError:
                    break  # it was completed by a call whose outcome is not known
                except (ServiceBusCommunicationError, ServiceBusConnectionError):
                    continue

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def word(queue: Queue) -> list[bytes]:
    """Return the only word of a queue's partition, as its parts."""
    contents = await queue.contents()
    [words] = [held for key, (_, held) in contents.items() if key.endswith(":words")]
    [text] = [text for key, text in words.items() if b" " in key]  # the others are prefixes
    return bytes(text).split(b" ")


async def test_an_idle_receiver_that_iterates_makes_one_call_a_message(url: str) -> None:
    """The message is pushed, and its completion brings the credit for the next one."""
    handlers = Handlers()
    async with queue_at(url, lock_duration=300_000) as queue:
        handlers.start(queue.receiver())
        await queue.wait_for_waiters()
        await queue.send("first")
        await eventually(lambda: queue.counts_are(0, 0))
        await queue.wait_for_waiters()
        with Calls(queue.transport) as calls:
            for number in range(10):
                await queue.send(str(number))
                await eventually(lambda: queue.counts_are(0, 0))
                await queue.wait_for_waiters()
            assert (calls.by_script["complete"], calls.by_script["grant"]) == (10, 0)
        await handlers.end()
    assert set(handlers.begun.values()) == {1}


@in_memory
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualLoop})], ids=["virtual"])
async def test_a_backlog_takes_one_call_a_message(url: str) -> None:
    """A machine that stands still for a while would cause a call more, so no time passes here."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.fill(20)
        receiver = queue.receiver()
        with Calls(queue.transport) as calls, loop.jumping(lambda _: None):
            left = 20
            async for message in receiver:
                await receiver.complete_message(message)
                left -= 1
                if not left:
                    break
            assert (calls.by_script["complete"], calls.by_script["grant"]) == (20, 1)


@pytest.mark.parametrize("kind", ["complete", "abandon", "defer", "dead_letter"])
async def test_each_settlement_brings_the_next_message(url: str, kind: str) -> None:
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "b", "c")
        receiver = queue.receiver()
        first = await anext(receiver)
        with Calls(queue.transport) as calls:
            await getattr(receiver, f"{kind}_message")(first)
            second = await anext(receiver)
            assert calls.by_script == {kind: 1}
        assert str(second) == ("a" if kind == "abandon" else "b")
        await receiver.complete_message(second)


async def test_a_transaction_brings_the_next_message(url: str) -> None:
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        first = await anext(receiver)
        with Calls(queue.transport) as calls:
            async with queue.client.transaction() as transaction:
                transaction.complete_message(first)
                transaction.send_messages(queue.client.get_queue_sender("q"), ServiceBusMessage("c"))
            assert str(await anext(receiver)) == "b"
            assert calls.by_script == {"transact": 1}


class BrokenRider:
    """A receiver that cannot say what it wants, because of a defect."""

    in_company = False

    def ride(self, settled: int) -> None:
        raise ZeroDivisionError(f"planted by the test, at the settlement of {settled}")


async def test_a_receiver_with_a_defect_does_not_stop_others_that_ask_with_the_same_call(url: str) -> None:
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "x", "b")
        one, other = queue.receiver(), queue.receiver()
        first, broken = await anext(one), await anext(other)
        hold = hold_of(broken)
        hold.reception = replace(hold.reception, rider=BrokenRider())
        with Calls(queue.transport) as calls:
            await asyncio.gather(one.complete_message(first), other.complete_message(broken))
            assert calls.by_script["complete"] == 1
        assert str(await anext(one)) == "b"


async def test_a_message_that_nobody_comes_back_for_is_given_back(url: str) -> None:
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await receiver.complete_message(await anext(receiver))
        await eventually(lambda: queue.counts_are(1, 0))
        (message,) = await queue.receiver().receive_messages(1, 60)
        assert (str(message), message.delivery_count) == ("b", 1)


async def test_a_receiver_that_does_not_iterate_gets_no_message_that_nobody_asked_for(url: str) -> None:
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.complete_message(message)
        assert await queue.counts_are(1, 0)


async def test_a_lost_lock_brings_the_next_message_too(url: str) -> None:
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        message = await anext(receiver)
        await queue.lose(message)
        assert await queue.take()
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        assert str(await anext(receiver)) == "b"


async def test_a_refused_settlement_leaves_its_grant_unread(url: str) -> None:
    """The receiver asks by itself, and learns why."""
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        message = await anext(receiver)
        await queue.client._connection.namespace.delete_entity(queue.entity.name)
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.complete_message(message)
        assert not hold_of(message).settled
        with pytest.raises(MessagingEntityNotFoundError):
            await anext(receiver)


@pytest.mark.parametrize("fate", ["is not answered", "is lost", "never arrives"])
async def test_a_settlement_that_fails_brings_each_message_once(url: str, fate: Any) -> None:
    """Its grant may have been taken. The receiver asks again for what it was given."""
    handlers = Handlers()
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.fill(20)
        with Gate(queue.client, "complete") as gate:
            gate.fates.extend([fate, "passes"] * 10)
            handlers.start(queue.receiver(), queue.receiver())
            await eventually(lambda: queue.counts_are(0, 0))
        await handlers.end()
    assert handlers.begun == {str(number): 1 for number in range(20)}


@on_servers
async def test_grants_of_several_receivers_ride_together(url: str) -> None:
    """The completions of one turn share a call, and so do the grants of their receivers: at most 16."""
    handlers = Handlers()
    async with queue_at(url, lock_duration=300_000) as queue:
        await queue.fill(400)
        receivers = [queue.receiver() for _ in range(40)]
        with Calls(queue.transport) as calls:
            handlers.start(*receivers)
            await eventually(lambda: queue.counts_are(0, 0))
            assert calls.by_script["complete"] < 400
        await handlers.end()
    assert handlers.begun == {str(number): 1 for number in range(400)}


class Stub:
    """A rider, and its ride. It notes how its ride ends."""

    in_company = False

    def __init__(self, sent: SentGrant | Exception) -> None:
        self._sent = sent
        self.ended: list[str] = []

    @property
    def sent(self) -> SentGrant:
        assert isinstance(self._sent, SentGrant)
        return self._sent

    def ride(self, settled: int) -> Stub:
        assert settled == 1
        if isinstance(self._sent, Exception):
            raise self._sent
        return self

    def answered(self, *_: object) -> None:
        self.ended.append("answered")

    def failed(self) -> None:
        self.ended.append("failed")


async def _of_stub(queue: Queue, stub: Stub) -> ServiceBusReceivedMessage:
    await queue.send("a")
    (message,) = await queue.receiver().receive_messages(1, 60)
    hold_of(message).reception.rider = stub
    return message


async def test_no_grant_makes_a_settlement_fail(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A grant that cannot be made, or that cannot be sent, is left out."""
    async with queue_at(url) as queue:
        for stub in (Stub(ValueError("no grant")), Stub(SentGrant("a b", b"", "", None))):  # type: ignore[arg-type]
            message = await _of_stub(queue, stub)
            await queue.receiver().complete_message(message)
            assert hold_of(message).settled
            assert stub.ended in ([], ["failed"])
        assert await queue.counts_are(0, 0)
    assert caplog.text.count("carries no grants because of a defect") == 2


async def test_what_is_pushed_to_a_slow_handler_is_reported(url: str) -> None:
    """A client that has a push and makes no other call says soon what it has seen, and what it has begun."""
    async with queue_at(url, lock_duration=300_000) as queue:
        receiver = queue.receiver(prefetch_count=20)
        getting = asyncio.create_task(anext(receiver))
        await queue.wait_for_waiters()
        with Calls(queue.transport) as calls:
            await queue.send("a")
            await queue.send("b")
            message = await getting

            async def reported() -> bool:
                _, _, _, _, _, _, seen, begun, *_ = await word(queue)
                return (seen, begun) == (b"2", b"1")

            await eventually(reported)
            assert calls.by_script["complete"] == 0
        await receiver.complete_message(message)


def cut(network: Scissors, times: int) -> bool:
    """Return whether the network was cut more than this number of times."""
    return network.cuts > times


async def test_lost_replies_start_no_handler_twice(server: LocalServer) -> None:
    handlers = Handlers()
    async with (
        queue_at(server.url, lock_duration=300_000) as queue,
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
    ):
        handlers.start(*(client.get_queue_receiver(queue.entity.name) for _ in range(5)))
        await queue.wait_for_waiters(5)
        for round_ in range(10):
            network.cut("complete", on_the_way=bool(round_ % 2))
            await queue.fill(20, start=20 * round_)
            await eventually(partial(cut, network, round_))
            await eventually(lambda: queue.counts_are(0, 0))
        await handlers.end()
    assert handlers.begun == {str(number): 1 for number in range(200)}


@pytest.mark.parametrize("other", [False, True])
async def test_a_message_belongs_to_the_span_of_the_caller_that_gets_it(
    url: str, listener: Listener, other: bool
) -> None:
    """The call that brings it settles another message, in the span of that settlement, perhaps in another task."""
    listener.set_up_tracing()
    tracer = trace.get_tracer("test")
    async with queue_at(url, lock_duration=300_000) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("a"))
        receiver = queue.receiver()
        first = await anext(receiver)
        await sender.send_messages(ServiceBusMessage("b"))
        with Gate(queue.client, "complete") as gate, Calls(queue.transport) as calls:
            gate.shut = other
            with tracer.start_as_current_span("the settler"):
                settling = asyncio.create_task(receiver.complete_message(first))
            await gate.reached()
            with tracer.start_as_current_span("the caller"):
                if not other:
                    await settling
                getting = asyncio.create_task(receiver.receive_messages(1, 60))
            await asyncio.sleep(0)
            gate.open()
            (message,) = await getting
            await settling
            assert not calls.by_script["grant"]
        assert str(message) == "b"
    received = [span for span in listener.all_spans if span.name == "receive q"]
    sent = [span for span in listener.all_spans if span.name == "send q"]
    (settled,) = [span for span in listener.all_spans if span.name == "complete q"]
    assert [linked(span) for span in received] == [[traceparent(span)] for span in sent]
    assert linked(settled) == [traceparent(sent[0])]
    assert received[1].parent == listener.spans["the caller"].context
    assert settled.parent == listener.spans["the settler"].context
