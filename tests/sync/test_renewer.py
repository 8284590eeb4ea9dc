"""The renewer renews locks while a thread is busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sbredis import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusError,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from sbredis.exceptions import AutoLockRenewTimeout
from tests.waiting import wait_until

Reports = list[tuple[ServiceBusReceivedMessage, Exception | None]]

in_memory = pytest.mark.parametrize("target", ["memory"])  # for tests that take seconds and check threads only


@pytest.fixture
def receiver(client: ServiceBusClient) -> Iterator[ServiceBusReceiver]:
    """A receiver of a queue with three messages, whose locks last ten seconds."""
    with client.get_queue_sender("q", create_if_missing={"lock_duration": "PT10S"}) as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
    with client.get_queue_receiver("q", max_wait_time=5) as receiver:
        yield receiver


@pytest.mark.slow
def test_a_lock_is_renewed_while_its_thread_is_busy(receiver: ServiceBusReceiver) -> None:
    with AutoLockRenewer() as renewer:
        message = receiver.next()
        first = message.locked_until_utc
        renewer.register(receiver, message)
        wait_until(lambda: message.locked_until_utc != first)  # this thread makes no call meanwhile
        receiver.complete_message(message)
        assert message.auto_renew_error is None


@pytest.mark.slow
@in_memory
def test_all_messages_of_a_receiver_can_be_renewed(client: ServiceBusClient, receiver: ServiceBusReceiver) -> None:
    with AutoLockRenewer() as renewer, client.get_queue_receiver("q", auto_lock_renewer=renewer) as renewed:
        messages = renewed.receive_messages(3)
        ends = [message.locked_until_utc for message in messages]
        assert len(ends) == 3
        wait_until(lambda: all(one.locked_until_utc != end for one, end in zip(messages, ends, strict=True)))
        assert receiver.peek_messages(3)


@pytest.mark.slow
def test_one_renewer_serves_several_clients(url: str, receiver: ServiceBusReceiver) -> None:
    with AutoLockRenewer() as renewer, ServiceBusClient(url) as other:
        messages: list[ServiceBusReceivedMessage] = []
        for one in (receiver, other.get_queue_receiver("q", max_wait_time=5)):
            messages.append(one.next())
            renewer.register(one, messages[-1])
        ends = [message.locked_until_utc for message in messages]
        wait_until(lambda: all(one.locked_until_utc != end for one, end in zip(messages, ends, strict=True)))


@in_memory
@pytest.mark.parametrize("own", [False, True], ids=["an executor that is given", "its own threads"])
def test_a_failure_callback_runs_in_a_worker_thread_and_may_call_the_client(
    own: bool, client: ServiceBusClient, receiver: ServiceBusReceiver
) -> None:
    reported: Reports = []
    threads: list[str] = []

    def on_failure(message: ServiceBusReceivedMessage, error: Exception | None) -> None:
        threads.append(threading.current_thread().name)
        client.ensure_queue("another")
        reported.append((message, error))

    with ThreadPoolExecutor(1, "theirs") as executor:
        options = {} if own else {"executor": executor}
        with AutoLockRenewer(0.1, on_failure, **options) as renewer:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            message = receiver.next()
            renewer.register(receiver, message)
            wait_until(lambda: reported)
    assert reported[0][0] is message
    assert reported[0][1] is message.auto_renew_error
    assert isinstance(message.auto_renew_error, AutoLockRenewTimeout)
    assert threads[0].startswith("sbredis" if own else "theirs")


@in_memory
def test_each_registration_may_have_a_callback_of_its_own(receiver: ServiceBusReceiver) -> None:
    reported: Reports = []
    with AutoLockRenewer() as renewer:
        message = receiver.next()
        receiver.purge_messages()
        renewer.register(receiver, message, 0.1, lambda *said: reported.append(said))
        wait_until(lambda: reported)
    assert isinstance(reported[0][1], AutoLockRenewTimeout)


@pytest.mark.slow
@in_memory
def test_closing_waits_for_running_callbacks_unless_the_caller_declines(receiver: ServiceBusReceiver) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def on_failure(*_: object) -> None:
        begun.set()
        go_on.wait(60)
        ended.set()

    for wait in (False, True):
        renewer = AutoLockRenewer(0.1, on_failure)
        renewer.register(receiver, receiver.next())
        assert begun.wait(60)
        if not wait:
            renewer.close(wait=False)
            assert not ended.is_set()
            go_on.set()
            assert ended.wait(60)
            for event in (begun, go_on, ended):
                event.clear()
        else:
            threading.Timer(0.05, go_on.set).start()
            renewer.close()
            assert ended.is_set()


@in_memory
def test_a_callback_may_close_the_renewer(receiver: ServiceBusReceiver) -> None:
    closed = threading.Event()

    def on_failure(*_: object) -> None:
        renewer.close()
        closed.set()

    renewer = AutoLockRenewer(0.1, on_failure)
    renewer.register(receiver, receiver.next())
    assert closed.wait(60)
    renewer.close()


def test_an_object_that_cannot_be_renewed_is_refused(receiver: ServiceBusReceiver) -> None:
    (peeked,) = receiver.peek_messages()
    with AutoLockRenewer() as renewer:
        with pytest.raises(ValueError, match="no lock"):
            renewer.register(receiver, peeked)
        with pytest.raises(TypeError, match="message"):
            renewer.register(receiver, "message")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_lock_renewal_duration"):
            renewer.register(receiver, receiver.next(), 0)
    with pytest.raises(ValueError, match="max_lock_renewal_duration"):
        AutoLockRenewer(0)


def test_a_closed_renewer_cannot_be_used_again(client: ServiceBusClient, receiver: ServiceBusReceiver) -> None:
    with AutoLockRenewer() as renewer:
        renewed = client.get_queue_receiver("q", auto_lock_renewer=renewer)
    uses = [
        lambda: renewer.register(receiver, receiver.next()),
        renewer.__enter__,
        renewer.check_open,
        lambda: client.get_queue_receiver("q", auto_lock_renewer=renewer),
        renewed.next,
    ]
    for use in uses:
        with pytest.raises(ServiceBusError, match="is closed and cannot be used again"):
            use()
    assert renewer.closed
    renewer.close()
