"""Closing: its effects, the calls that fail afterwards, and the end of a client that its program has forgotten."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusError, ServiceBusMessage, ServiceBusReceiver
from sbredis.exceptions import ServiceBusConnectionError
from sbredis.receiving import Inbox
from tests.waiting import wait_until


def test_every_call_is_refused_after_the_client_was_closed(url: str) -> None:
    with ServiceBusClient(url) as client:
        sender = client.get_queue_sender("q", create_if_missing=True)
        receiver = client.get_queue_receiver("q")
        sender.send_messages(ServiceBusMessage("a"))
        (message,) = receiver.receive_messages()
        batch = sender.create_message_batch()
        client.ensure_queue("s", requires_session=True)
        of_session = client.get_queue_receiver("s", session_id="ann")
        of_session.__enter__()
        session = of_session.session
        assert session is not None
    now = datetime.now(UTC)
    uses: list[Callable[[], object]] = [
        lambda: client.get_queue_sender("q"),
        lambda: client.get_queue_receiver("q"),
        lambda: client.get_topic_sender("t"),
        lambda: client.get_subscription_receiver("t", "s"),
        lambda: client.accept_next_session("s"),
        lambda: client.list_queue_sessions("s"),
        lambda: client.list_subscription_sessions("t", "s"),
        lambda: client.ensure_queue("q"),
        client.__enter__,
        lambda: sender.send_messages(batch),
        lambda: sender.schedule_messages(ServiceBusMessage("a"), now),
        lambda: sender.cancel_scheduled_messages(1),
        lambda: sender.send_stream([]),
        sender.create_message_batch,
        sender.__enter__,
        receiver.receive_messages,
        receiver.next,
        lambda: receiver.receive_deferred_messages(1),
        receiver.peek_messages,
        lambda: receiver.delete_messages(1),
        receiver.purge_messages,
        lambda: receiver.complete_message(message),
        lambda: receiver.abandon_message(message),
        lambda: receiver.defer_message(message),
        lambda: receiver.dead_letter_message(message),
        lambda: receiver.renew_message_lock(message),
        receiver.__enter__,
        of_session.__enter__,
        session.renew_lock,
        session.get_state,
        lambda: session.set_state(b""),
        session.dead_letter_messages,
    ]
    for use in uses:
        with pytest.raises(ValueError, match="The client is closed"):
            use()
    assert repr(client).endswith("closed>")
    assert (of_session.session, session.session_id) == (session, "ann")
    assert str(message) == "a"


def test_client_sender_and_receiver_may_be_closed_again_in_any_order(url: str) -> None:
    client = ServiceBusClient(url)
    with (
        client,
        client.get_queue_sender("q", create_if_missing=True) as sender,
        client.get_queue_receiver("q") as receiver,
    ):
        sender.close()
        receiver.close()
        client.close()
    sender.close()
    receiver.close()
    client.close()


def test_a_closed_sender_and_a_closed_receiver_refuse_calls(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q", create_if_missing=True) as sender, client.get_queue_receiver("q") as receiver:
        sender.send_messages(ServiceBusMessage("a"))
        message = receiver.next()
    with pytest.raises(ValueError, match="The sender is closed"):
        sender.send_messages(ServiceBusMessage("a"))
    with pytest.raises(ValueError, match="The receiver is closed"):
        receiver.complete_message(message)
    with client.get_queue_receiver("q") as another:
        another.complete_message(message)


def test_a_client_that_was_never_used_can_be_closed() -> None:
    client = ServiceBusClient("memory://unused")
    client.close()
    with pytest.raises(ValueError, match="The client is closed"):
        client.get_queue_sender("q")


def test_a_failed_connection_is_reported_and_leaves_no_thread() -> None:
    client = ServiceBusClient("redis://127.0.0.1:1", connect_timeout=0.2)
    with pytest.raises(ServiceBusConnectionError), client:
        pytest.fail("there is nothing to connect to")


def test_closing_a_receiver_ends_a_wait_in_another_thread(client: ServiceBusClient) -> None:
    client.ensure_queue("q")
    receiver = client.get_queue_receiver("q")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(receiver.next)
        wait_until(lambda: receiver._aio._inbox is not None and receiver._aio._inbox.callers.demand)
        receiver.close()
        with pytest.raises(ServiceBusError, match="The receiver was closed"):
            waits.result()


def test_closing_the_client_ends_a_wait_in_another_thread(url: str) -> None:
    with ServiceBusClient(url) as client, ThreadPoolExecutor(1) as pool:
        client.ensure_queue("q")
        receiver = client.get_queue_receiver("q")
        waits = pool.submit(receiver.next)
        wait_until(lambda: receiver._aio._inbox is not None and receiver._aio._inbox.callers.demand)
        client.close()
        with pytest.raises(ServiceBusError, match="closed"):
            waits.result()


def test_closing_a_sender_waits_for_running_sends(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("q", create_if_missing=True)
    stream = sender.send_stream(ServiceBusMessage(str(number)) for number in range(100))
    next(stream)
    sender.close()
    assert sender.in_flight == 0


@pytest.mark.slow
def test_a_reference_to_a_sender_or_receiver_keeps_the_client_alive(url: str) -> None:
    client = ServiceBusClient(url)
    client.ensure_queue("q")
    thread = client._bridge._thread
    assert thread is not None
    sender = client.get_queue_sender("q", create_if_missing=True)
    receiver = client.get_queue_receiver("q", max_wait_time=60)
    del client
    gc.collect()
    stream = sender.send_stream([ServiceBusMessage("a")])
    del sender
    gc.collect()
    assert stream.count() == 1
    del stream
    assert str(receiver.next()) == "a"
    held = [receiver]
    del receiver
    with pytest.warns(ResourceWarning, match="was not closed"):
        _let_go(held, thread)
    assert not thread.is_alive()


def _let_go(held: list[Any], thread: threading.Thread) -> None:
    """Drop all references to a client, and wait until its thread has ended."""
    held.clear()

    def ended() -> bool:
        gc.collect()  # collect again each time, because the thread may hold an object of its last call for a moment
        return not thread.is_alive()

    wait_until(ended, timeout=60)


def test_a_renewer_may_outlive_the_client(url: str) -> None:
    with AutoLockRenewer() as renewer, ServiceBusClient(url) as client:
        client.ensure_queue("q")
        client.get_queue_receiver("q", auto_lock_renewer=renewer).close()


def test_a_closed_receiver_returns_unclaimed_messages_to_the_queue(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q", create_if_missing=True) as sender:
        assert sender.send_stream(ServiceBusMessage("a") for _ in range(10)).count() == 10
    with client.get_queue_receiver("q", prefetch_count=10) as ahead:
        inbox = wait_for_inbox(ahead)
        wait_until(lambda: len(inbox.buffer) == 10)
    with client.get_queue_receiver("q", max_wait_time=5) as receiver:
        assert [message.delivery_count for message in receiver.receive_messages(10)] == [1] * 10


def wait_for_inbox(receiver: ServiceBusReceiver) -> Inbox[Any]:
    inbox = receiver._aio._inbox
    assert inbox is not None
    return inbox


def test_a_thread_waits_until_the_client_is_closed(url: str) -> None:
    client = ServiceBusClient(url)
    with ThreadPoolExecutor(1) as pool, client:
        client.ensure_queue("q")
        assert not client.wait_closed(timeout=0)
        waiting = pool.submit(client.wait_closed)
        wait_until(lambda: client._aio._connection.closing._waiters)  # the call has begun
        client.close()
        assert waiting.result(60)
