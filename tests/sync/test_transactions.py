"""Transactions in threads: what is sent and settled in a block happens together, or not at all."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any
from uuid import UUID

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
from sbredis.engine import partition_for_name
from sbredis.exceptions import (
    KeyAlreadyUsedError,
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    WatermarkChangedError,
)
from sbredis.management import ServiceBusAdministrationClient
from tests.sync.interruptions import interrupted_when

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


def received(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        messages += receiver.receive_messages(count - len(messages), SOON)
    return messages


def session_of(receiver: ServiceBusReceiver) -> ServiceBusSession:
    assert receiver.session is not None
    return receiver.session


def transact(client: ServiceBusClient, *calls: Callable[[ServiceBusTransaction], object]) -> None:
    """Carry out a transaction with these calls."""
    with client.transaction() as tx:
        for call in calls:
            call(tx)


# -- together ----------------------------------------------------------------------------------------------------------


def test_an_input_is_completed_and_its_outputs_are_sent_together(
    client: ServiceBusClient, inputs: ServiceBusReceiver, outputs: ServiceBusSender
) -> None:
    send(client, "inputs", "1")
    (message,) = received(inputs)
    with client.transaction() as tx:
        tx.complete_message(message)
        tx.send_messages(outputs, ServiceBusMessage("a"))
        tx.send_messages(outputs, [ServiceBusMessage("b"), ServiceBusMessage("c")])
        assert repr(tx) == "<ServiceBusTransaction of 3 calls, open>"
        assert bodies(client, "inputs") == ["1"]
        assert bodies(client, "outputs") == []
    assert bodies(client, "inputs") == []
    assert bodies(client, "outputs") == ["a", "b", "c"]
    assert tx.duplicates == ()
    with pytest.raises(MessageAlreadySettled):
        inputs.complete_message(message)


def test_every_settlement_is_part_of_the_transaction(client: ServiceBusClient, inputs: ServiceBusReceiver) -> None:
    send(client, "inputs", "complete", "abandon", "defer", "bury")
    done, again, aside, dead = received(inputs, 4)
    with client.transaction() as tx:
        tx.complete_message(done)
        tx.abandon_message(again, delay=0, properties_to_modify={"tries": 1})
        tx.defer_message(aside, properties_to_modify={"tries": 2})
        tx.dead_letter_message(dead, "unreadable", "no header", properties_to_modify={"tries": 3})
    (message,) = received(inputs)
    assert (str(message), message.application_properties, message.delivery_count) == ("abandon", {"tries": 1}, 2)
    (deferred,) = inputs.receive_deferred_messages(aside.sequence_number)
    assert (str(deferred), deferred.application_properties) == ("defer", {"tries": 2})
    with client.get_queue_receiver("inputs", sub_queue="deadletter") as receiver:
        (letter,) = received(receiver)
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("unreadable", "no header")
    assert letter.application_properties is not None
    assert letter.application_properties["tries"] == 3


def test_a_session_state_is_set_together_with_a_completed_message(client: ServiceBusClient) -> None:
    client.ensure_queue("jobs", requires_session=True)
    send(client, "jobs", "1", session_id="ann")
    with client.get_queue_receiver("jobs", session_id="ann") as receiver:
        (message,) = received(receiver)
        session = session_of(receiver)
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.set_session_state(session, "begun")
            tx.set_session_state(session, b"done")
            assert session.get_state() is None
        assert session.get_state() == b"done"
        with client.transaction() as tx:
            tx.set_session_state(session, None)
        assert session.get_state() is None
    assert bodies(client, "jobs") == []


def test_the_numbers_of_scheduled_messages_are_known_after_the_block(
    client: ServiceBusClient, outputs: ServiceBusSender
) -> None:
    with client.transaction() as tx:
        numbers = tx.schedule_messages(outputs, [ServiceBusMessage("a"), ServiceBusMessage("b")], LATER)
        assert numbers == []
    first, second = peeked(client, "outputs")
    assert numbers == [first.sequence_number, second.sequence_number]
    assert first.scheduled_enqueue_time_utc == LATER
    outputs.cancel_scheduled_messages(numbers)
    assert bodies(client, "outputs") == []


def test_the_transaction_names_the_messages_that_were_dropped_as_duplicates(client: ServiceBusClient) -> None:
    client.ensure_queue("once", requires_duplicate_detection=True)
    known = ServiceBusMessage("again", message_id="m1")
    with client.get_queue_sender("once") as sender:
        sender.send_messages(ServiceBusMessage("first", message_id="m1"))
        with client.transaction() as tx:
            tx.send_messages(sender, [known, ServiceBusMessage("new", message_id="m2")])
    assert [each is known for each in tx.duplicates] == [True]
    assert bodies(client, "once") == ["first", "new"]


def test_a_message_is_sent_as_it_was_at_the_call(client: ServiceBusClient, outputs: ServiceBusSender) -> None:
    message = ServiceBusMessage("body", subject="before")
    with client.transaction() as tx:
        tx.send_messages(outputs, message)
        message.subject = "after"
    assert [found.subject for found in peeked(client, "outputs")] == ["before"]


# -- not at all --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["an exception", "a rollback", "a lost lock"])
def test_all_or_nothing_happens(
    way: str, client: ServiceBusClient, inputs: ServiceBusReceiver, outputs: ServiceBusSender, url: str
) -> None:
    client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    send(client, "inputs", "1", "2")
    first, second = received(inputs, 2)
    with client.get_queue_receiver("jobs", session_id="ann") as receiver:
        session = session_of(receiver)
        session.set_state("before")

        def run() -> None:
            transact(
                client,
                lambda tx: tx.complete_message(first),
                lambda tx: tx.send_messages(outputs, ServiceBusMessage("a")),
                lambda tx: tx.schedule_messages(outputs, ServiceBusMessage("b"), LATER),
                lambda tx: tx.set_session_state(session, "after"),
                *([lambda _: os.environ["NO-SUCH-NAME"]] if way == "an exception" else []),
                *([lambda tx: tx.rollback()] if way == "a rollback" else []),
                *([lambda tx: tx.dead_letter_message(second)] if way == "a lost lock" else []),
            )

        if way == "a rollback":
            run()
        elif way == "an exception":
            with pytest.raises(KeyError, match="NO-SUCH-NAME"):
                run()
        else:
            handle = inputs.get_lock_handle(second)
            with ServiceBusClient(url) as other, other.get_settler("inputs") as settler:
                settler.release_message(handle)
            with pytest.raises(MessageLockLostError, match="changed nothing") as lost:
                run()
            assert lost.value.entity == "inputs"
        assert session.get_state() == b"before"
    assert bodies(client, "outputs") == []
    assert bodies(client, "inputs") == ["1", "2"]
    assert inputs.renew_message_lock(first) == first.locked_until_utc
    inputs.complete_message(first)


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
    messages = received(inputs, threads * each)
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


def test_only_one_of_several_threads_settles_a_message(client: ServiceBusClient, inputs: ServiceBusReceiver) -> None:
    send(client, "inputs", "1")
    (message,) = received(inputs)
    with ThreadPoolExecutor(4) as pool, client.transaction() as tx:
        errors = [call.exception(SOON) for call in [pool.submit(tx.complete_message, message) for _ in range(4)]]
        assert [type(error) for error in errors if error is not None] == [MessageAlreadySettled] * 3
    assert bodies(client, "inputs") == []


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


def test_a_transaction_is_used_once_and_only_in_its_block(client: ServiceBusClient, outputs: ServiceBusSender) -> None:
    tx = client.transaction()
    with pytest.raises(ValueError, match="Enter the transaction first"):
        tx.send_messages(outputs, ServiceBusMessage("a"))
    with tx:
        tx.rollback()
        with pytest.raises(ValueError, match="was rolled back"):
            tx.send_messages(outputs, ServiceBusMessage("a"))
        with pytest.raises(ValueError, match="was rolled back"):
            tx.rollback()
    with pytest.raises(ValueError, match="has ended"):
        tx.send_messages(outputs, ServiceBusMessage("a"))
    with pytest.raises(ValueError, match="has ended"):
        tx.rollback()
    with pytest.raises(ValueError, match="was used already"):
        tx.__enter__()
    assert bodies(client, "outputs") == []


def test_objects_of_another_client_are_refused(client: ServiceBusClient, url: str) -> None:
    client.ensure_queue("inputs")
    client.ensure_queue("outputs", colocate_with="inputs")
    client.ensure_queue("jobs", requires_session=True)
    send(client, "inputs", "1")
    with (
        ServiceBusClient(url) as other,
        other.get_queue_receiver("inputs") as receiver,
        other.get_queue_receiver("jobs", session_id="ann") as of_session,
        client.transaction() as tx,
    ):
        (message,) = received(receiver)
        with pytest.raises(ValueError, match="sender belongs to another client"):
            tx.send_messages(other.get_queue_sender("outputs"), ServiceBusMessage("a"))
        with pytest.raises(ValueError, match="received through another client"):
            tx.complete_message(message)
        with pytest.raises(ValueError, match="accepted through another client"):
            tx.set_session_state(session_of(of_session), "kept")
        assert repr(tx) == "<ServiceBusTransaction of 0 calls, open>"
        assert session_of(of_session).get_state() is None
        receiver.complete_message(message)
    assert bodies(client, "outputs") == []


def test_objects_of_the_asynchronous_api_are_refused(client: ServiceBusClient, outputs: ServiceBusSender) -> None:
    """The objects below belong to the same connection, and still only their synchronous twins are taken."""
    client.ensure_queue("jobs", requires_session=True)
    inner: Any = outputs._aio
    with client.get_queue_receiver("jobs", session_id="ann") as receiver, client.transaction() as tx:
        session: Any = session_of(receiver)._aio
        assert (type(inner), type(session)) == (aio.ServiceBusSender, aio.ServiceBusSession)
        for send_ in (tx.send_messages, lambda sender, message: tx.schedule_messages(sender, message, LATER)):
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


# -- once, and entities elsewhere --------------------------------------------------------------------------------------


def test_the_second_transaction_with_a_key_is_refused(
    client: ServiceBusClient, inputs: ServiceBusReceiver, outputs: ServiceBusSender
) -> None:
    send(client, "inputs", "1", "1 again")
    first, second = received(inputs, 2)
    for message in (first, second):
        done = [
            lambda tx: tx.once(UUID(int=1), 3600),
            lambda tx: tx.send_messages(outputs, ServiceBusMessage("bill")),
            lambda tx, message=message: tx.complete_message(message),  # type: ignore[misc]
        ]
        if message is first:
            transact(client, *done)
        else:
            with pytest.raises(KeyAlreadyUsedError) as refused:
                transact(client, *done)
            assert refused.value.key == UUID(int=1)
    assert bodies(client, "outputs") == ["bill"]
    inputs.complete_message(second)


def test_a_watermark_advances_from_the_expected_value_only(
    client: ServiceBusClient, outputs: ServiceBusSender, inputs: ServiceBusReceiver
) -> None:
    tx = client.transaction()
    with tx:
        tx.advance(outputs, "mark", "1", expected=None)
        tx.send_messages(outputs, ServiceBusMessage("bill"))
    with client.get_queue_receiver("outputs") as receiver:
        assert tx.watermarks == {"mark": receiver.peek_messages()[0].sequence_number}
    with pytest.raises(WatermarkChangedError) as refused:
        transact(client, lambda tx: tx.advance(outputs, "mark", "2", expected=None))
    assert (refused.value.value, refused.value.sequence_number) == ("1", tx.watermarks["mark"])
    with client.transaction() as tx, pytest.raises(TypeError, match=r"with a sbredis\.ServiceBusSender, not with a"):
        tx.advance(inputs, "mark", "2", expected="1")  # type: ignore[arg-type]


def test_wrong_keys_are_refused_by_the_call_that_gives_them(client: ServiceBusClient) -> None:
    with client.transaction() as tx:
        with pytest.raises(ValueError, match="key is empty"):
            tx.once("", 1)
        with pytest.raises(TypeError, match="window must be a timedelta or a number of seconds"):
            tx.once("key", "1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has ended"):
        tx.once("key", 1)


def test_a_message_for_another_partition_is_accepted(client: ServiceBusClient, inputs: ServiceBusReceiver) -> None:
    """It waits in the queue of the settled message. tests/aio/test_transactions_elsewhere.py looks at it there."""
    here = partition_for_name("inputs", 16)
    far = next(name for number in range(100) if partition_for_name(name := f"far{number}", 16) != here)
    client.ensure_queue(far)
    send(client, "inputs", "1")
    (message,) = received(inputs)
    with client.get_queue_sender(far) as sender:
        transact(
            client,
            lambda tx: tx.complete_message(message),
            lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
        )
        with pytest.raises(ServiceBusError, match="have no sequence numbers"):
            transact(
                client,
                lambda tx: tx.send_messages(client.get_queue_sender("inputs"), ServiceBusMessage("b")),
                lambda tx: tx.schedule_messages(sender, ServiceBusMessage("a"), LATER),
            )
    assert bodies(client, "inputs") == []


def test_a_destination_in_another_partition_that_was_deleted_is_refused(
    client: ServiceBusClient, url: str, inputs: ServiceBusReceiver
) -> None:
    here = partition_for_name("inputs", 16)
    far = next(name for number in range(100) if partition_for_name(name := f"far{number}", 16) != here)
    client.ensure_queue(far)
    send(client, far, "before")
    send(client, "inputs", "1")
    (message,) = received(inputs)
    with ServiceBusAdministrationClient(url) as admin:
        admin.delete_queue(far)
    with client.get_queue_sender(far) as sender, pytest.raises(MessagingEntityNotFoundError):
        transact(
            client,
            lambda tx: tx.complete_message(message),
            lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
        )
    inputs.complete_message(message)


def test_a_lock_is_renewed_together_with_what_is_sent(
    client: ServiceBusClient, inputs: ServiceBusReceiver, outputs: ServiceBusSender
) -> None:
    send(client, "inputs", "1")
    (message,) = received(inputs)
    before = message.locked_until_utc
    with client.transaction() as tx:
        tx.send_messages(outputs, ServiceBusMessage("half done"))
        tx.renew_message_lock(message)
    assert bodies(client, "outputs") == ["half done"]
    assert before is not None
    assert message.locked_until_utc is not None
    assert message.locked_until_utc > before
    inputs.complete_message(message)
