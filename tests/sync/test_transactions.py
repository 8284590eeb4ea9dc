"""Transactions in threads: what is sent and settled in a block happens together, or not at all."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import pytest

from sbredis import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
    ServiceBusTransaction,
    aio,
)
from tests.sync.interruptions import interrupted_when
from tests.sync.queues import receive_exactly

LATER = datetime(2100, 1, 1, tzinfo=UTC)
SOON = 60.0


@pytest.fixture
def inputs(client: ServiceBusClient) -> Iterator[ServiceBusReceiver]:
    """A receiver of a queue in the partition of ``outputs``."""
    client.ensure_queue("inputs")
    with client.get_queue_receiver("inputs") as receiver:
        yield receiver


@pytest.fixture
def outputs(client: ServiceBusClient, inputs: ServiceBusReceiver) -> Iterator[ServiceBusSender]:
    """A sender to a queue in the partition of ``inputs``."""
    client.ensure_queue("outputs", colocate_with=inputs.entity_path)
    with client.get_queue_sender("outputs") as sender:
        yield sender


def send(client: ServiceBusClient, name: str, *bodies: str, **options: Any) -> None:
    with client.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage(body, **options) for body in bodies])


def peeked(client: ServiceBusClient, name: str) -> list[ServiceBusReceivedMessage]:
    """Return the messages of a queue, in every state. The receiver is not opened, so the queue may have sessions."""
    return client.get_queue_receiver(name).peek_messages(100)


def bodies(client: ServiceBusClient, name: str) -> list[str]:
    return [str(message) for message in peeked(client, name)]


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    assert receiver.session is not None
    return receiver.session


def transact(client: ServiceBusClient, *calls: Callable[[ServiceBusTransaction], object]) -> None:
    """Carry out a transaction with these calls."""
    with client.transaction() as tx:
        for call in calls:
            call(tx)


# -- not at all --------------------------------------------------------------------------------------------------------


def test_an_error_in_the_block_is_raised_even_if_the_client_was_closed(url: str) -> None:
    with ServiceBusClient(url) as client:
        client.ensure_queue("q")
        sender = client.get_queue_sender("q")

        def close(tx: ServiceBusTransaction) -> None:
            tx.send_messages(sender, ServiceBusMessage("a"))
            client.close()
            raise KeyError("the error of the block")

        with pytest.raises(KeyError, match="the error of the block"):
            transact(client, close)
    with ServiceBusClient(url) as client:
        assert bodies(client, "q") == []


def test_a_transaction_has_ended_after_an_error_in_its_block(
    client: ServiceBusClient, outputs: ServiceBusSender
) -> None:
    begun: list[ServiceBusTransaction] = []

    def fail(tx: ServiceBusTransaction) -> None:
        begun.append(tx)
        tx.send_messages(outputs, ServiceBusMessage("a"))
        raise KeyError("the error of the block")

    with pytest.raises(KeyError, match="the error of the block"):
        transact(client, fail)
    with pytest.raises(ValueError, match="The transaction has ended"):
        begun[0].send_messages(outputs, ServiceBusMessage("a"))
    assert bodies(client, "outputs") == []


def test_a_transaction_of_a_client_that_was_closed_meanwhile_is_not_committed(url: str) -> None:
    with ServiceBusClient(url) as client:
        client.ensure_queue("q")
        sender = client.get_queue_sender("q")
        with pytest.raises(ValueError, match="client is closed"):
            transact(client, lambda tx: tx.send_messages(sender, ServiceBusMessage("a")), lambda _: client.close())
    with ServiceBusClient(url) as client:
        assert bodies(client, "q") == []


def test_an_interrupted_commit_ends_before_the_interruption_is_raised(
    client: ServiceBusClient, outputs: ServiceBusSender, interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[str] = []
    tx = client.transaction()

    async def commit() -> None:
        waiting.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            waiting.append("ended")

    monkeypatch.setattr(tx._aio, "_commit", commit)
    with interrupted_when(lambda: waiting, interrupt), pytest.raises(KeyboardInterrupt), tx:
        tx.send_messages(outputs, ServiceBusMessage("a"))
    assert waiting == ["begun", "ended"]
    assert repr(tx) == "<ServiceBusTransaction of 0 calls, ended>"
    assert bodies(client, "outputs") == []


# -- threads -----------------------------------------------------------------------------------------------------------


def test_several_threads_record_at_the_same_time(
    client: ServiceBusClient, inputs: ServiceBusReceiver, outputs: ServiceBusSender
) -> None:
    threads, each = 6, 8
    send(client, "inputs", *map(str, range(threads * each)))
    messages = receive_exactly(inputs, threads * each)
    start = Barrier(threads, timeout=SOON)

    def work(tx: ServiceBusTransaction, thread: int) -> list[int]:
        start.wait()
        numbers: list[int] = []
        for number in range(each):
            message = messages[thread * each + number]
            tx.complete_message(message)
            numbers = tx.schedule_messages(outputs, ServiceBusMessage(str(message)), LATER)
        return numbers

    with ThreadPoolExecutor(threads) as pool, client.transaction() as tx:
        calls = [pool.submit(work, tx, thread) for thread in range(threads)]
        last = [call.result(SOON) for call in calls]
    assert bodies(client, "inputs") == []
    sent = {str(message): message.sequence_number for message in peeked(client, "outputs")}
    assert set(sent) == set(map(str, range(threads * each)))
    assert last == [[sent[str((thread + 1) * each - 1)]] for thread in range(threads)]


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let the interpreter switch between threads as often as it can, so that a race is found."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_send_the_same_message_send_it_under_different_ids(client: ServiceBusClient) -> None:
    """As with a sender, each send is a message of its own, which duplicate detection does not drop."""
    threads, rounds = 16, 6
    client.ensure_queue("once", requires_duplicate_detection=True)
    message, start = ServiceBusMessage("a"), Barrier(threads, timeout=SOON)

    def work(tx: ServiceBusTransaction) -> None:
        for _ in range(rounds):
            start.wait()
            tx.send_messages(sender, message)

    with client.get_queue_sender("once") as sender, ThreadPoolExecutor(threads) as pool, client.transaction() as tx:
        for call in [pool.submit(work, tx) for _ in range(threads)]:
            call.result(SOON)
    assert tx.duplicates == ()
    assert bodies(client, "once") == ["a"] * threads * rounds


def test_a_transaction_keeps_its_client_alive(url: str) -> None:
    client = ServiceBusClient(url)
    client.ensure_queue("q")
    thread = client._bridge._thread
    assert thread is not None
    with client.transaction() as tx:
        tx.send_messages(client.get_queue_sender("q"), ServiceBusMessage("a"))
        del client
        gc.collect()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del tx
    thread.join(SOON)
    assert not thread.is_alive()
    with ServiceBusClient(url) as client:
        assert bodies(client, "q") == ["a"]


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_objects_of_the_asynchronous_api_are_refused(client: ServiceBusClient, outputs: ServiceBusSender) -> None:
    """The objects below belong to the same connection, and still only their synchronous twins are taken."""
    client.ensure_queue("jobs", requires_session=True)
    inner: Any = outputs._aio
    with client.get_queue_receiver("jobs", session_id="ann") as receiver, client.transaction() as tx:
        session: Any = session_of(receiver)._aio
        assert (type(inner), type(session)) == (aio.ServiceBusSender, aio.ServiceBusSession)
        for send_ in (
            tx.send_messages,
            lambda sender, message: tx.schedule_messages(sender, message, LATER),
            lambda sender, _: tx.advance(sender, "mark", "1", expected=None),
        ):
            with pytest.raises(
                TypeError, match=r"a sbredis\.ServiceBusSender, not with a sbredis\.aio\.ServiceBusSender"
            ):
                send_(inner, ServiceBusMessage("a"))
        with pytest.raises(TypeError, match=r"a sbredis\.ServiceBusSession, not of a sbredis\.aio\.ServiceBusSession"):
            tx.set_session_state(session, "kept")
        assert session_of(receiver).get_state() is None
    assert bodies(client, "outputs") == []


def test_wrong_arguments_are_refused_with_the_names_of_the_synchronous_classes(
    client: ServiceBusClient, outputs: ServiceBusSender
) -> None:
    wrong: Any = "outputs"
    with client.transaction() as tx:
        with pytest.raises(TypeError, match=r"a sbredis\.ServiceBusSender, not with a str"):
            tx.send_messages(wrong, ServiceBusMessage("a"))
        with pytest.raises(TypeError, match=r"a sbredis\.ServiceBusSession, not of a NoneType"):
            tx.set_session_state(None, "kept")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="Only a received message"):
            tx.complete_message(ServiceBusMessage("a"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^ServiceBusTransaction\.send_messages\(\) missing 1 required"):
            tx.send_messages(outputs)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="not int"):
            tx.send_messages(outputs, 5)  # type: ignore[arg-type]
    assert bodies(client, "outputs") == []


def test_a_closed_sender_and_a_closed_client_are_refused(client: ServiceBusClient, outputs: ServiceBusSender) -> None:
    with client.transaction() as tx:
        outputs.close()
        with pytest.raises(ValueError, match="sender is closed"):
            tx.send_messages(outputs, ServiceBusMessage("a"))
    tx = client.transaction()
    client.close()
    with pytest.raises(ValueError, match="client is closed"):
        tx.__enter__()
    with pytest.raises(ValueError, match="client is closed"):
        client.transaction()
