"""Several threads that share a client, and threads that are interrupted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from sbredis.exceptions import MessageAlreadySettled
from sbredis.model import hold_of
from tests.sync.interruptions import interrupted_when
from tests.waiting import wait_until

SOON = 5.0


def demand(receiver: ServiceBusReceiver) -> int:
    """Return the number of receive calls whose callers still wait."""
    inbox = receiver._aio._inbox
    return 0 if inbox is None else inbox.callers.demand


@pytest.mark.slow
def test_threads_share_a_sender_and_a_receiver(client: ServiceBusClient) -> None:
    threads, each = 8, 25
    with (
        client.get_queue_sender("q", create_if_missing={"enable_partitioning": True}) as sender,
        client.get_queue_receiver("q", prefetch_count=20, max_wait_time=SOON) as receiver,
    ):
        seen: Counter[str] = Counter()
        left = threading.Semaphore(threads * each)

        def send(thread: int) -> None:
            for number in range(each):
                sender.send_messages(ServiceBusMessage(f"{thread} {number}"))

        def receive(_: int) -> list[str]:
            found: list[str] = []
            while left.acquire(blocking=False):
                message = receiver.next()
                receiver.complete_message(message)
                found.append(str(message))
            return found

        with ThreadPoolExecutor(2 * threads) as pool:
            sends = [pool.submit(send, thread) for thread in range(threads)]
            for found in pool.map(receive, range(threads)):
                seen.update(found)
            for done in sends:
                done.result()
        assert len(seen) == threads * each
        assert set(seen.values()) == {1}
        assert receiver.peek_messages() == []


def test_only_one_of_two_threads_settles_a_message(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q", create_if_missing=True) as sender, client.get_queue_receiver("q") as receiver:
        sender.send_messages(ServiceBusMessage("a"))
        message = receiver.next()
        with ThreadPoolExecutor(4) as pool:
            errors = [pool.submit(receiver.complete_message, message).exception() for _ in range(4)]
        assert [type(error) for error in errors if error is not None] == [MessageAlreadySettled] * 3


def test_an_interrupted_receive_leaves_no_message_locked(
    client: ServiceBusClient, interrupt: Callable[[], None]
) -> None:
    with client.get_queue_sender("q", create_if_missing=True) as sender:
        receiver = client.get_queue_receiver("q")
        with interrupted_when(lambda: demand(receiver), interrupt), pytest.raises(KeyboardInterrupt):
            receiver.receive_messages(10)
        assert demand(receiver) == 0
        with interrupted_when(lambda: demand(receiver), interrupt), pytest.raises(KeyboardInterrupt):
            list(receiver)
        sender.send_messages(ServiceBusMessage("a"))
        with client.get_queue_receiver("q", max_wait_time=SOON) as another:
            assert another.next().delivery_count == 1


@pytest.mark.parametrize("way", ["receive_messages", "next", "receive_deferred_messages"])
def test_a_message_that_arrives_during_an_interruption_is_returned_to_the_queue(
    way: str, client: ServiceBusClient, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        AutoLockRenewer() as renewer,
        client.get_queue_sender("q", create_if_missing=True) as sender,
        client.get_queue_receiver("q", auto_lock_renewer=renewer) as receiver,
        client.get_queue_receiver("q", max_wait_time=SOON) as another,
    ):
        sender.send_messages(ServiceBusMessage("a"))
        numbers: list[int] = []
        if way == "receive_deferred_messages":
            message = another.next()
            another.defer_message(message)
            numbers.append(message.sequence_number)
        inner = "_receive" if way == "next" else way
        original = getattr(receiver._aio, inner)
        brought: list[ServiceBusReceivedMessage] = []

        async def receives(*arguments: object, **options: object) -> list[ServiceBusReceivedMessage]:
            messages: list[ServiceBusReceivedMessage] = await original(*arguments, **options)
            brought.extend(messages)
            interrupt()
            return messages

        monkeypatch.setattr(receiver._aio, inner, receives)
        with pytest.raises(KeyboardInterrupt):
            getattr(receiver, way)(*numbers)
        assert [hold_of(message).watchers for message in brought] == [()]
        if numbers:
            client._bridge.call(given_back, receiver)
            (message,) = another.receive_deferred_messages(numbers)
        else:
            message = another.next()
        assert message.delivery_count == (2 if numbers else 1)  # a deferral counts as a delivery


def test_a_message_deleted_on_receipt_is_kept_for_the_next_receive_after_an_interruption(
    client: ServiceBusClient, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        client.get_queue_sender("q", create_if_missing=True) as sender,
        client.get_queue_receiver("q", receive_mode="receiveanddelete", max_wait_time=SOON) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("a"))
        with monkeypatch.context() as patched:
            original = receiver._aio.receive_messages

            async def receives(*arguments: int | None, gather: bool) -> list[ServiceBusReceivedMessage]:
                messages = await original(*arguments, gather=gather)
                interrupt()
                return messages

            patched.setattr(receiver._aio, "receive_messages", receives)
            with pytest.raises(KeyboardInterrupt):
                receiver.receive_messages()
        assert str(receiver.next()) == "a"


async def given_back(receiver: ServiceBusReceiver) -> None:
    """Wait until all messages that the receiver returns are in the queue again."""
    entity = receiver._aio._lookup.found
    assert entity is not None
    await entity.given_back()


def test_an_interruption_withdraws_a_call_that_has_not_begun(
    client: ServiceBusClient, interrupt: Callable[[], None]
) -> None:
    """The loop is busy with another task, so the call has not taken its first step."""
    client.ensure_queue("q")
    sender = client.get_queue_sender("q")
    busy, let = threading.Event(), threading.Event()

    def occupy() -> None:
        busy.set()
        let.wait(60)

    client._bridge.post(occupy)
    assert busy.wait(60)
    loop_thread = client._bridge._thread
    assert loop_thread is not None

    def interrupt_and_let() -> None:
        wait_until(lambda: loop_thread.calls)
        interrupt()
        wait_until(lambda: any(call.cleaned_up is not None for call in list(loop_thread.calls)))
        let.set()

    thread = threading.Thread(target=interrupt_and_let)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        sender.send_messages(ServiceBusMessage("never"))
    thread.join()
    with client.get_queue_receiver("q", max_wait_time=SOON) as receiver:
        assert receiver.peek_messages(10) == []
