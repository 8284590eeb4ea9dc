"""The promises of the client in the order of a tutorial: each test shows one promise to users.

The tests lead from the first message to sessions and topics, and every test runs on every target. The other files of
this folder test the details: sending (test_sending.py), receiving (test_receiving.py), settling (test_settling.py),
sessions (test_sessions.py, test_accepting.py), topics (test_topics.py), and so on.
"""

# Made by tools/make_sync from tests/aio/test_fundamentals.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from sbredis import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from sbredis.amqp import AmqpAnnotatedMessage
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    SessionCannotBeLockedError,
)
from sbredis.management import RuleProperties, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from tests.sync.queues import PATIENT, HandClock, bodies, receive_exactly

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers"), pytest.mark.both_shapes]


LONG = 20
"""The seconds that a receiver waits for a message that must arrive."""


@pytest.fixture
def clock() -> HandClock:
    """Return the clock of all clients of a test, which moves only when the test moves it."""
    return HandClock()


@pytest.fixture
def client(url: str, partitioned: bool, clock: HandClock) -> Iterator[ServiceBusClient]:
    """A client of a namespace with one queue, ``orders``."""
    with ServiceBusClient(url, slot_count=3, _clock=clock, _timings=PATIENT) as client:
        client.ensure_queue("orders", enable_partitioning=partitioned, lock_duration=timedelta(seconds=30))
        yield client


@pytest.fixture
def admin(url: str, clock: HandClock) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client of the same namespace."""
    with ServiceBusAdministrationClient(url, slot_count=3, _clock=clock) as admin:
        yield admin


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    """A sender of the queue."""
    with client.get_queue_sender("orders") as sender:
        yield sender


@pytest.fixture
def receiver(client: ServiceBusClient) -> Iterator[ServiceBusReceiver]:
    """A receiver of the queue."""
    with client.get_queue_receiver("orders") as receiver:
        yield receiver


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive one message, which must arrive."""
    (message,) = receiver.receive_messages(max_wait_time=LONG)
    return message


def nothing_comes(receiver: ServiceBusReceiver) -> bool:
    """Return whether no message can be received now."""
    return receiver.receive_messages(max_wait_time=0) == []


# -- the first message -------------------------------------------------------------------------------------------------


def test_a_message_is_sent_received_and_completed(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """A receiver gets the message. When the receiver completes the message, it is gone."""
    sender.send_messages(ServiceBusMessage("hello"))
    message = one(receiver)
    assert (str(message), message.delivery_count) == ("hello", 1)
    receiver.complete_message(message)
    assert (message.lock_token, message.locked_until_utc) == (None, None)
    assert nothing_comes(receiver)
    assert receiver.peek_messages() == []


def test_a_received_message_has_the_properties_that_were_sent(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    """The receiver reads the properties that the sender set."""
    sender.send_messages(
        ServiceBusMessage(
            b"\x00\x01",
            subject="order",
            content_type="application/octet-stream",
            message_id="7",
            correlation_id="12",
            reply_to="answers",
            time_to_live=timedelta(hours=1),
            application_properties={"colour": "red", "pieces": 3},
        )
    )
    message = one(receiver)
    assert (message.body, message.subject, message.content_type) == (b"\x00\x01", "order", "application/octet-stream")
    assert (message.message_id, message.correlation_id, message.reply_to) == ("7", "12", "answers")
    assert message.time_to_live == timedelta(hours=1)
    assert message.application_properties == {"colour": "red", "pieces": 3}


def test_a_message_gets_an_id_when_it_is_sent(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """A message without an id gets one, and the sender can read it."""
    message = ServiceBusMessage("x")
    sender.send_messages(message)
    assert message.message_id
    assert (one(receiver)).message_id == message.message_id


def test_messages_lists_mappings_amqp_messages_and_batches_are_sent(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    """A sender accepts messages in each of these forms, one or several in a call."""
    sender.send_messages(ServiceBusMessage("one"))
    sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage(b"three")])
    sender.send_messages({"body": "four", "subject": "s"})
    sender.send_messages([{"body": "five"}, {"body": "six"}])
    sender.send_messages(AmqpAnnotatedMessage(data_body=b"seven"))
    batch = sender.create_message_batch()
    batch.add_message(ServiceBusMessage("eight"))
    batch.add_message({"body": "nine"})
    sender.send_messages(batch)
    expected = ["eight", "five", "four", "nine", "one", "seven", "six", "three", "two"]
    assert sorted(bodies(receive_exactly(receiver, 9))) == expected
    assert nothing_comes(receiver)


def test_messages_with_one_key_arrive_in_order(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """Messages with one partition key are stored in one partition, which keeps their order."""
    for text in "abcde":
        sender.send_messages(ServiceBusMessage(text, partition_key="ann"))
    assert bodies(receive_exactly(receiver, 2)) == ["a", "b"]
    assert bodies([next(receiver) for _ in range(3)]) == ["c", "d", "e"]


# -- receiving ---------------------------------------------------------------------------------------------------------


def test_a_receiver_gets_no_more_than_it_asks_for(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """Messages that were not requested stay in the queue for any receiver."""
    sender.send_messages([ServiceBusMessage(text) for text in "abcde"])
    assert len(receive_exactly(receiver, 2)) == 2
    assert len(receive_exactly(receiver, 3)) == 3


def test_receiving_from_an_empty_queue_returns_an_empty_list(receiver: ServiceBusReceiver) -> None:
    """It is no error if no message arrives in time."""
    assert receiver.receive_messages(max_wait_time=0) == []
    assert receiver.receive_messages(5, max_wait_time=0.01) == []


def test_a_receiver_can_be_iterated_over(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    """An iteration ends when no message arrives within the ``max_wait_time`` of the receiver."""
    sender.send_messages([ServiceBusMessage(text) for text in "abc"])
    with client.get_queue_receiver("orders", max_wait_time=0) as receiver:
        seen = []
        for message in receiver:
            seen.append(str(message))
            receiver.complete_message(message)
    assert sorted(seen) == ["a", "b", "c"]


def test_a_message_can_be_deleted_when_it_is_received(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    """In the receive-and-delete mode there is no lock, so a message need not be settled."""
    sender.send_messages(ServiceBusMessage("tick"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("orders", receive_mode=mode) as receiver:
        message = one(receiver)
        assert (str(message), message.lock_token) == ("tick", None)
        assert receiver.peek_messages() == []


def test_messages_can_be_peeked_without_receiving_them(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """A peek shows messages. It locks no message, and does not increase a delivery count."""
    sender.send_messages([ServiceBusMessage(text) for text in "ab"])
    assert sorted(bodies(receiver.peek_messages(10))) == ["a", "b"]
    assert [message.delivery_count for message in receive_exactly(receiver, 2)] == [1, 1]


# -- locks -------------------------------------------------------------------------------------------------------------


def test_a_locked_message_is_not_delivered_to_another_receiver(
    client: ServiceBusClient, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    """A message is locked for the receiver that got it."""
    sender.send_messages(ServiceBusMessage("mine"))
    message = one(receiver)
    assert message.locked_until_utc is not None
    with client.get_queue_receiver("orders") as other:
        assert nothing_comes(other)
    receiver.complete_message(message)


def test_a_message_is_delivered_again_when_its_lock_ends(
    sender: ServiceBusSender, receiver: ServiceBusReceiver, clock: HandClock
) -> None:
    """If the first receiver does not settle the message in time, its lock is lost, and the next receiver gets the
    message.
    """
    sender.send_messages(ServiceBusMessage("slow"))
    late = one(receiver)
    clock.move(31)
    again = one(receiver)
    assert (str(again), again.delivery_count) == ("slow", 2)
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(late)
    receiver.complete_message(again)


def test_renewing_a_lock_restarts_its_whole_duration(
    sender: ServiceBusSender, receiver: ServiceBusReceiver, clock: HandClock
) -> None:
    """A receiver that needs more time can renew its lock as often as needed."""
    sender.send_messages(ServiceBusMessage("long"))
    message = one(receiver)
    for _ in range(3):
        clock.move(20)
        assert receiver.renew_message_lock(message) == message.locked_until_utc
    receiver.complete_message(message)


# -- settling ----------------------------------------------------------------------------------------------------------


def test_a_message_can_be_settled_only_once(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """A message that was completed can be neither completed nor abandoned."""
    sender.send_messages(ServiceBusMessage("x"))
    message = one(receiver)
    receiver.complete_message(message)
    with pytest.raises(MessageAlreadySettled):
        receiver.complete_message(message)
    with pytest.raises(MessageAlreadySettled):
        receiver.abandon_message(message)


def test_an_abandoned_message_is_delivered_again_with_a_higher_delivery_count(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    """A receiver abandons a message that it cannot handle now."""
    sender.send_messages(ServiceBusMessage("x"))
    receiver.abandon_message(one(receiver))
    assert (one(receiver)).delivery_count == 2


def test_a_message_can_be_abandoned_with_a_delay(
    sender: ServiceBusSender, receiver: ServiceBusReceiver, clock: HandClock
) -> None:
    """A message that is abandoned with a delay is delivered again when the delay has ended."""
    sender.send_messages(ServiceBusMessage("x"))
    receiver.abandon_message(one(receiver), delay=600)
    assert nothing_comes(receiver)
    clock.move(600)
    assert (one(receiver)).delivery_count == 2


def test_a_deferred_message_is_received_by_its_sequence_number(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    """A deferred message stays in the queue until a receiver requests its sequence number."""
    sender.send_messages(ServiceBusMessage("step 3"))
    message = one(receiver)
    assert message.sequence_number is not None
    receiver.defer_message(message)
    assert nothing_comes(receiver)
    (again,) = receiver.receive_deferred_messages(message.sequence_number)
    receiver.complete_message(again)
    assert receiver.peek_messages() == []


def test_a_message_can_be_dead_lettered_with_a_reason(
    client: ServiceBusClient, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    """The dead-letter queue keeps the message together with the reason."""
    sender.send_messages(ServiceBusMessage("?"))
    receiver.dead_letter_message(one(receiver), "Unreadable", "It is no JSON.")
    assert nothing_comes(receiver)
    with client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        letter = one(letters)
        assert (str(letter), letter.dead_letter_reason) == ("?", "Unreadable")
        assert letter.dead_letter_error_description == "It is no JSON."
        letters.complete_message(letter)


def test_a_message_that_fails_too_often_is_dead_lettered(client: ServiceBusClient, partitioned: bool) -> None:
    """After ``max_delivery_count`` deliveries no receiver of the queue gets the message any more."""
    client.ensure_queue("fragile", max_delivery_count=2, enable_partitioning=partitioned)
    with client.get_queue_sender("fragile") as sender, client.get_queue_receiver("fragile") as receiver:
        sender.send_messages(ServiceBusMessage("fails"))
        for _ in range(2):
            receiver.abandon_message(one(receiver))
        assert nothing_comes(receiver)
    with client.get_queue_receiver("fragile", sub_queue="deadletter") as letters:
        assert (one(letters)).dead_letter_reason == "MaxDeliveryCountExceeded"


# -- time --------------------------------------------------------------------------------------------------------------


def test_an_expired_message_is_not_received(
    sender: ServiceBusSender, receiver: ServiceBusReceiver, clock: HandClock
) -> None:
    """After its time to live, no receiver gets a message."""
    sender.send_messages(ServiceBusMessage("milk", time_to_live=timedelta(minutes=1)))
    clock.move(60)
    assert nothing_comes(receiver)


def test_a_scheduled_message_is_received_when_it_is_due(
    sender: ServiceBusSender, receiver: ServiceBusReceiver, clock: HandClock
) -> None:
    """A message can be sent now for delivery at a later time."""
    sender.schedule_messages(ServiceBusMessage("wake"), datetime.fromtimestamp(clock.utc() + 100, UTC))
    assert nothing_comes(receiver)
    clock.move(100)
    assert str(one(receiver)) == "wake"


def test_a_scheduled_message_can_be_cancelled(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """A scheduled message can be cancelled by its sequence number, and only once."""
    (number,) = sender.schedule_messages(ServiceBusMessage("never"), datetime(2030, 1, 1, tzinfo=UTC))
    sender.cancel_scheduled_messages(number)
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(number)
    assert receiver.peek_messages() == []


def test_a_duplicate_is_dropped(client: ServiceBusClient, partitioned: bool) -> None:
    """A queue with duplicate detection stores each message id once. Sending the id again raises no error."""
    client.ensure_queue("once", requires_duplicate_detection=True, enable_partitioning=partitioned)
    with client.get_queue_sender("once") as sender, client.get_queue_receiver("once") as receiver:
        for _ in range(3):
            sender.send_messages(ServiceBusMessage("x", message_id="same"))
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("x", message_id="same"))
        sender.send_messages(batch)
        assert bodies(receiver.peek_messages(10)) == ["x"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def chats(client: ServiceBusClient, partitioned: bool) -> Iterator[ServiceBusSender]:
    """A sender of ``chats``, a queue that requires sessions."""
    client.ensure_queue("chats", requires_session=True, enable_partitioning=partitioned)
    with client.get_queue_sender("chats") as sender:
        yield sender


def test_the_messages_of_a_session_arrive_in_order(client: ServiceBusClient, chats: ServiceBusSender) -> None:
    """A session receiver gets the messages of its session in order, and no others."""
    for text in "123":
        chats.send_messages(ServiceBusMessage(text, session_id="ann"))
        chats.send_messages(ServiceBusMessage(text, session_id="bob"))
    with client.get_queue_receiver("chats", session_id="ann") as receiver:
        messages = receive_exactly(receiver, 3)
        assert [(str(message), message.session_id) for message in messages] == [(text, "ann") for text in "123"]
        receiver.complete_messages(messages)


def test_a_session_has_one_receiver_at_a_time(client: ServiceBusClient, chats: ServiceBusSender) -> None:
    """A session is locked for its receiver until the receiver is closed."""
    chats.send_messages(ServiceBusMessage("hello", session_id="ann"))
    with client.get_queue_receiver("chats", session_id="ann") as receiver:
        assert str(one(receiver)) == "hello"
        with pytest.raises(SessionCannotBeLockedError):
            with client.get_queue_receiver("chats", session_id="ann", max_wait_time=0) as other:
                other.receive_messages()
    with client.get_queue_receiver("chats", session_id="ann") as next_one:
        assert str(one(next_one)) == "hello"


def test_a_receiver_can_accept_the_next_free_session(client: ServiceBusClient, chats: ServiceBusSender) -> None:
    """A receiver that names no session gets a session that has messages and is not locked."""
    chats.send_messages(ServiceBusMessage("hello", session_id="ann"))
    with client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=LONG) as receiver:
        assert (one(receiver)).session_id == "ann"
        with pytest.raises(OperationTimeoutError):
            with client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.01) as other:
                other.receive_messages()


@pytest.mark.usefixtures("chats")
def test_a_session_has_a_state(client: ServiceBusClient) -> None:
    """The state of a session outlives its receiver. A session with a state is listed."""
    with client.get_queue_receiver("chats", session_id="ann") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("greeted")
    with client.get_queue_receiver("chats", session_id="ann") as receiver:
        assert receiver.session.get_state() == b"greeted"
    assert [name for name in client.list_queue_sessions("chats")] == ["ann"]


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def news(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, partitioned: bool
) -> Iterator[ServiceBusSender]:
    """A sender of ``news``, which is a topic."""
    admin.create_topic("news", enable_partitioning=partitioned)
    with client.get_topic_sender("news") as sender:
        yield sender


def test_every_subscription_gets_a_copy(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, news: ServiceBusSender
) -> None:
    """Each subscription of the topic gets its own copy of a message."""
    for name in ("kitchen", "office"):
        admin.create_subscription("news", name)
    news.send_messages(ServiceBusMessage("sale"))
    for name in ("kitchen", "office"):
        with client.get_subscription_receiver("news", name) as receiver:
            message = one(receiver)
            assert str(message) == "sale"
            receiver.complete_message(message)


def test_the_rules_of_a_subscription_select_its_messages(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, news: ServiceBusSender
) -> None:
    """A subscription gets the messages that match the filter of one of its rules."""
    admin.create_subscription("news", "dear", rules=[RuleProperties("dear", filter=SqlRuleFilter("price > 100"))])
    for text, price in (("pen", 1), ("piano", 9000)):
        news.send_messages(ServiceBusMessage(text, application_properties={"price": price}))
    with client.get_subscription_receiver("news", "dear") as receiver:
        assert bodies(receiver.peek_messages(10)) == ["piano"]


def test_an_action_changes_the_copy_of_a_subscription(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, news: ServiceBusSender
) -> None:
    """The action of a rule changes only the copy that its rule makes."""
    action = SqlRuleAction("SET price = price / 2")
    admin.create_subscription("news", "sale", rules=[RuleProperties("half", action=action)])
    admin.create_subscription("news", "archive")
    news.send_messages(ServiceBusMessage("pen", application_properties={"price": 10}))
    prices = {}
    for name in ("sale", "archive"):
        with client.get_subscription_receiver("news", name) as receiver:
            prices[name] = ((one(receiver)).application_properties or {})["price"]
    assert prices == {"sale": 5, "archive": 10}


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_missing_queue_raises_an_error(client: ServiceBusClient) -> None:
    """The client creates an entity only if the program asks for this."""
    with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
        client.get_queue_sender("nowhere").send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
        client.get_queue_receiver("nowhere").receive_messages(max_wait_time=0)


def test_closed_clients_senders_and_receivers_cannot_be_used(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    """Closing a client also closes its senders and receivers. Closing it a second time is no error."""
    receiver = client.get_queue_receiver("orders")
    for _ in range(2):
        client.close()
    with pytest.raises(ValueError, match="closed"):
        sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(ValueError, match="closed"):
        receiver.receive_messages()
