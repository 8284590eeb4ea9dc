"""Transactions: what a client sends and settles in a block happens together, or not at all."""

# Made by tools/make_sync from tests/aio/test_transactions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from sbredis import ServiceBusClient, ServiceBusSender, ServiceBusTransaction
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.management import CorrelationRuleFilter, EntityStatus, ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from tests.sync.queues import HandClock, bodies_in, receive_exactly

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def client(url: str) -> Iterator[ServiceBusClient]:
    """A client of two queues in one partition of the namespace."""
    with ServiceBusClient(url) as client:
        client.ensure_queue("inputs")
        client.ensure_queue("outputs", colocate_with="inputs")
        yield client


def send(client: ServiceBusClient, name: str, *bodies: str, **options: Any) -> None:
    with client.get_queue_sender(name) as sender:
        sender.send_messages([ServiceBusMessage(body, **options) for body in bodies])


def transact(client: ServiceBusClient, *records: Callable[[ServiceBusTransaction], object]) -> None:
    """Carry out a transaction with these calls."""
    with client.transaction() as tx:
        for record in records:
            record(tx)


def recorded(sender: ServiceBusSender, message: ServiceBusMessage, tx: ServiceBusTransaction) -> None:
    tx.send_messages(sender, message)


# -- together ----------------------------------------------------------------------------------------------------------


def test_an_input_is_completed_and_its_outputs_are_sent_together(client: ServiceBusClient) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("a"))
            tx.send_messages(sender, [ServiceBusMessage("b"), ServiceBusMessage("c")])
            assert bodies_in(client, "outputs") == []
        assert bodies_in(client, "inputs") == []
        assert bodies_in(client, "outputs") == ["a", "b", "c"]
        with pytest.raises(MessageAlreadySettled):
            receiver.complete_message(message)


def test_every_settlement_is_part_of_the_transaction(client: ServiceBusClient) -> None:
    send(client, "inputs", "complete", "abandon", "defer", "bury")
    with client.get_queue_receiver("inputs") as receiver:
        done, again, aside, dead = receive_exactly(receiver, 4)
        with client.transaction() as tx:
            tx.complete_message(done)
            tx.abandon_message(again, properties_to_modify={"tries": 1})
            tx.defer_message(aside)
            tx.dead_letter_message(dead, "unreadable", "no header")
        (message,) = receive_exactly(receiver, 1)
        assert (str(message), message.application_properties, message.delivery_count) == ("abandon", {"tries": 1}, 2)
        assert aside.sequence_number is not None
        (set_aside,) = receiver.receive_deferred_messages([aside.sequence_number])
        assert str(set_aside) == "defer"
    with client.get_queue_receiver("inputs", sub_queue="deadletter") as receiver:
        (buried,) = receive_exactly(receiver, 1)
        assert (str(buried), buried.dead_letter_reason) == ("bury", "unreadable")


def test_a_session_state_is_set_together_with_its_message_and_an_output(client: ServiceBusClient) -> None:
    client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    send(client, "jobs", "1", session_id="s")
    with (
        client.get_queue_receiver("jobs", session_id="s") as receiver,
        client.get_queue_sender("outputs") as sender,
    ):
        (message,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.set_session_state(receiver.session, "early")
            tx.set_session_state(receiver.session, "1 done")
            tx.send_messages(sender, ServiceBusMessage("a"))
        assert receiver.session.get_state() == b"1 done"
        assert bodies_in(client, "outputs") == ["a"]
        assert receiver.peek_messages(10) == []


def test_a_message_is_published_to_a_topic_under_its_present_rules(client: ServiceBusClient, url: str) -> None:
    """Another client changes the rules after this client has read them."""
    with ServiceBusAdministrationClient(url) as admin:
        sender = client.get_topic_sender("news")
        admin.create_topic("news", colocate_with="inputs")
        admin.create_subscription("news", "all")
        sender.send_messages(ServiceBusMessage("first"))
        admin.create_subscription("news", "late")
        admin.delete_rule("news", "all", "$Default")
        admin.create_rule("news", "all", "red", filter=CorrelationRuleFilter(label="red"))
        send(client, "inputs", "1")
        with client.get_queue_receiver("inputs") as receiver:
            (message,) = receive_exactly(receiver, 1)
            with client.transaction() as tx:
                tx.complete_message(message)
                tx.send_messages(sender, [ServiceBusMessage("x"), ServiceBusMessage("y", subject="red")])
        for name, expected in (("all", ["first", "y"]), ("late", ["x", "y"])):
            with client.get_subscription_receiver("news", name) as subscriber:
                assert [str(each) for each in subscriber.peek_messages(10)] == expected


def test_a_copy_is_published_to_the_subscription_whose_message_is_completed(client: ServiceBusClient, url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin:
        sender = client.get_topic_sender("news")
        admin.create_topic("news")
        admin.create_subscription("news", "all")
        sender.send_messages(ServiceBusMessage("first"))
        with client.get_subscription_receiver("news", "all") as receiver:
            (message,) = receive_exactly(receiver, 1)
            with client.transaction() as tx:
                tx.complete_message(message)
                tx.send_messages(sender, ServiceBusMessage("second"))
            assert [str(each) for each in receiver.peek_messages(10)] == ["second"]


def test_scheduled_messages_have_their_numbers_after_the_block(client: ServiceBusClient) -> None:
    with client.get_queue_sender("outputs") as sender:
        with client.transaction() as tx:
            tx.send_messages(sender, ServiceBusMessage("now"))
            numbers = tx.schedule_messages(sender, [ServiceBusMessage("a"), ServiceBusMessage("b")], LATER)
            assert numbers == []
        assert len(numbers) == 2
        sender.cancel_scheduled_messages(numbers)
        assert bodies_in(client, "outputs") == ["now"]


def test_the_transaction_names_the_messages_that_were_dropped_as_duplicates(client: ServiceBusClient) -> None:
    client.ensure_queue("once", requires_duplicate_detection=True, colocate_with="inputs")
    send(client, "once", "first", message_id="1")
    again, new = ServiceBusMessage("again", message_id="1"), ServiceBusMessage("new", message_id="2")
    with client.get_queue_sender("once") as sender:
        with client.transaction() as tx:
            tx.send_messages(sender, [new, again])
        assert tx.duplicates == (again,)
    assert bodies_in(client, "once") == ["first", "new"]


def test_messages_of_one_key_stay_together_on_colocated_partitioned_queues(client: ServiceBusClient) -> None:
    client.ensure_queue("wide-inputs", enable_partitioning=True)
    client.ensure_queue("wide-outputs", enable_partitioning=True, colocate_with="wide-inputs")
    send(client, "wide-inputs", "1", partition_key="k")
    with client.get_queue_receiver("wide-inputs") as receiver, client.get_queue_sender("wide-outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("a", partition_key="k"))
        assert (bodies_in(client, "wide-inputs"), bodies_in(client, "wide-outputs")) == ([], ["a"])


def test_an_abandoned_message_of_a_session_comes_before_prefetched_ones(client: ServiceBusClient) -> None:
    client.ensure_queue("jobs", requires_session=True)
    send(client, "jobs", "1", "2", "3", session_id="s")
    with client.get_queue_receiver("jobs", session_id="s", prefetch_count=10) as receiver:
        (first,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            tx.abandon_message(first)
        assert [str(message) for message in receive_exactly(receiver, 3)] == ["1", "2", "3"]


def test_a_transaction_that_records_nothing_makes_no_call(client: ServiceBusClient) -> None:
    with client.transaction() as tx:
        pass
    assert tx.duplicates == ()


def test_one_message_object_can_be_sent_twice_under_two_ids(client: ServiceBusClient) -> None:
    client.ensure_queue("once", requires_duplicate_detection=True, colocate_with="inputs")
    message = ServiceBusMessage("same")
    with client.get_queue_sender("once") as sender:
        with client.transaction() as tx:
            tx.send_messages(sender, [message, message])
            tx.send_messages(sender, message)
        assert tx.duplicates == ()
    assert bodies_in(client, "once") == ["same"] * 3


def test_a_message_keeps_its_id_if_the_transaction_does_not_send_it(client: ServiceBusClient) -> None:
    client.ensure_queue("once", requires_duplicate_detection=True, colocate_with="inputs")
    message = ServiceBusMessage("same")
    with client.get_queue_sender("once") as sender:
        with pytest.raises(ZeroDivisionError):
            transact(client, lambda tx: tx.send_messages(sender, message), lambda _: 1 / 0)
        first = message.message_id
        sender.send_messages(message)
        assert message.message_id == first is not None


def test_a_batch_can_be_sent_in_a_transaction(client: ServiceBusClient) -> None:
    with client.get_queue_sender("outputs") as sender:
        batch = sender.create_message_batch()
        for number in range(3):
            batch.add_message(ServiceBusMessage(str(number)))
        with client.transaction() as tx:
            tx.send_messages(sender, batch)
            tx.send_messages(sender, [])
            assert tx.schedule_messages(sender, [], LATER) == []
        assert bodies_in(client, "outputs") == ["0", "1", "2"]


def test_only_the_last_state_of_a_session_counts(client: ServiceBusClient) -> None:
    client.ensure_queue("jobs", requires_session=True)
    send(client, "jobs", "1", session_id="s")
    with client.get_queue_receiver("jobs", session_id="s") as receiver:
        with client.transaction() as tx:
            for number in range(150):
                tx.set_session_state(receiver.session, b"%d" % number * 50_000)
            tx.set_session_state(receiver.session, b"last")
        assert receiver.session.get_state() == b"last"


# -- not at all --------------------------------------------------------------------------------------------------------


def test_an_exception_in_the_block_sends_nothing_and_leaves_the_lock(client: ServiceBusClient) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with pytest.raises(ZeroDivisionError):
            transact(
                client,
                lambda tx: tx.complete_message(message),
                lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
                lambda _: 1 / 0,
            )
        assert bodies_in(client, "outputs") == []
        receiver.renew_message_lock(message)
        receiver.complete_message(message)


def test_a_rollback_sends_nothing_and_refuses_further_calls(client: ServiceBusClient) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("a"))
            tx.rollback()
            with pytest.raises(ValueError, match="was rolled back"):
                tx.send_messages(sender, ServiceBusMessage("b"))
        assert bodies_in(client, "outputs") == []
        receiver.complete_message(message)


@pytest.mark.parametrize("records", [ServiceBusTransaction.complete_message, ServiceBusTransaction.renew_message_lock])
def test_a_lost_lock_undoes_everything_and_is_named(
    client: ServiceBusClient, url: str, records: Callable[[ServiceBusTransaction, ServiceBusReceivedMessage], object]
) -> None:
    """Another client settles the message by its lock token."""
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with ServiceBusClient(url) as other, other.get_settler("inputs") as settler:
            settler.complete_message(str(message.lock_token))
        with pytest.raises(MessageLockLostError, match=r"changed nothing\. The lock on message 1 has ended") as lost:
            transact(
                client,
                lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
                lambda tx: records(tx, message),
            )
        assert lost.value.entity == "inputs"
        assert bodies_in(client, "outputs") == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda admin: admin.delete_queue("outputs"), MessagingEntityNotFoundError),
        (
            lambda admin: admin.update_queue({"name": "outputs", "status": EntityStatus.SEND_DISABLED}),
            MessagingEntityDisabledError,
        ),
    ],
    ids=["deleted", "disabled"],
)
def test_a_change_of_a_queue_that_this_client_does_not_know_undoes_everything(
    client: ServiceBusClient,
    url: str,
    change: Callable[[ServiceBusAdministrationClient], object],
    kind: type[ServiceBusError],
) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with ServiceBusAdministrationClient(url) as admin:
            change(admin)
        with pytest.raises(kind) as refused:
            transact(
                client,
                lambda tx: tx.complete_message(message),
                lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
            )
        assert refused.value.entity == "outputs"
        receiver.complete_message(message)


def test_changed_settings_of_every_entity_are_read_again(client: ServiceBusClient, url: str) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        with ServiceBusAdministrationClient(url) as admin:
            admin.update_queue({"name": "outputs", "max_delivery_count": 3})
            admin.update_queue({"name": "inputs", "max_delivery_count": 3})
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("a"))
        assert (bodies_in(client, "inputs"), bodies_in(client, "outputs")) == ([], ["a"])


def test_a_session_that_another_client_holds_now_undoes_everything(client: ServiceBusClient, url: str) -> None:
    client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    send(client, "jobs", "1", session_id="s")
    with client.get_queue_receiver("jobs", session_id="s") as receiver:
        session = receiver.session
        with ServiceBusClient(url) as other, other.get_settler("jobs") as settler:
            settler.release_session(session.lock_token)
        with client.get_queue_sender("outputs") as sender:
            with pytest.raises(SessionLockLostError) as lost:
                transact(
                    client,
                    lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
                    lambda tx: tx.set_session_state(session, b"x"),
                )
        assert lost.value.entity == "jobs"
        assert bodies_in(client, "outputs") == []


def test_a_message_that_was_settled_outside_undoes_everything(client: ServiceBusClient) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = receive_exactly(receiver, 1)
        tx = client.transaction().__enter__()
        tx.complete_message(message)
        tx.send_messages(sender, ServiceBusMessage("a"))
        receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled, match="was settled, or is being settled, outside"):
            tx.__exit__(None, None, None)
        assert bodies_in(client, "outputs") == []
        with pytest.raises(MessageAlreadySettled):
            receiver.complete_message(message)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_transaction_is_used_once_and_only_in_its_block(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("outputs")
    tx = client.transaction()
    with pytest.raises(ValueError, match="Enter the transaction first"):
        tx.send_messages(sender, ServiceBusMessage("a"))
    with tx:
        pass
    with pytest.raises(ValueError, match="The transaction has ended"):
        tx.send_messages(sender, ServiceBusMessage("a"))
    with pytest.raises(ValueError, match="The transaction was used already"):
        tx.__enter__()
    assert bodies_in(client, "outputs") == []


def test_senders_messages_and_sessions_of_another_client_are_refused(client: ServiceBusClient, url: str) -> None:
    client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    send(client, "inputs", "1")
    with (
        ServiceBusClient(url) as other,
        other.get_queue_receiver("inputs") as receiver,
        other.get_queue_receiver("jobs", session_id="s") as of_session,
    ):
        (message,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            with pytest.raises(ValueError, match="sender belongs to another client"):
                tx.send_messages(other.get_queue_sender("outputs"), ServiceBusMessage("a"))
            with pytest.raises(ValueError, match="message was received through another client"):
                tx.complete_message(message)
            with pytest.raises(ValueError, match="session was accepted through another client"):
                tx.set_session_state(of_session.session, b"x")
        receiver.complete_message(message)


def test_a_message_can_be_settled_once_in_a_transaction(client: ServiceBusClient) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver:
        (message,) = receive_exactly(receiver, 1)
        with client.transaction() as tx:
            tx.complete_message(message)
            with pytest.raises(MessageAlreadySettled, match="settles this message or renews its lock already"):
                tx.abandon_message(message)
        assert bodies_in(client, "inputs") == []


def test_more_than_a_hundred_messages_are_refused(client: ServiceBusClient) -> None:
    with client.get_queue_sender("outputs") as sender:
        with client.transaction() as tx:
            tx.send_messages(sender, [ServiceBusMessage("a")] * 100)
            with pytest.raises(
                MessageSizeExceededError,
                match="with this call it would have 101",
            ):
                tx.send_messages(sender, ServiceBusMessage("b"))
        assert bodies_in(client, "outputs") == ["a"] * 100


def test_more_than_four_megabytes_are_refused(client: ServiceBusClient) -> None:
    with client.get_queue_sender("outputs") as sender, client.transaction() as tx:
        tx.send_messages(sender, [ServiceBusMessage("x" * 1_000_000)] * 4)
        with pytest.raises(MessageSizeExceededError, match="up to 4194304 bytes"):
            tx.send_messages(sender, ServiceBusMessage("x" * 1_000_000))
        tx.rollback()


def test_more_than_eight_queues_are_refused(client: ServiceBusClient) -> None:
    names = [f"out{number}" for number in range(9)]
    for name in names:
        client.ensure_queue(name, colocate_with="inputs")
    with pytest.raises(ValueError, match="up to 8 queues, topics and subscriptions, and this one has 9"):
        transact(client, *(partial(recorded, client.get_queue_sender(name), ServiceBusMessage("a")) for name in names))
    assert [bodies_in(client, name) for name in names] == [[]] * 9


def test_messages_with_too_many_copies_for_one_call_are_spread(client: ServiceBusClient, url: str) -> None:
    """The transaction stores the messages, and this client makes their copies before the commit returns."""
    with ServiceBusAdministrationClient(url) as admin:
        admin.create_topic("news", colocate_with="inputs")
        for number in range(30):
            admin.create_subscription("news", f"s{number}")
        sender = client.get_topic_sender("news")
        transact(client, partial(recorded_all, sender, [ServiceBusMessage("a")] * 100))
        for number in (0, 29):
            properties = admin.get_subscription_runtime_properties("news", f"s{number}")
            assert properties.active_message_count == 100
        assert (admin.get_topic_runtime_properties("news")).scheduled_message_count == 0


def recorded_all(sender: ServiceBusSender, messages: list[ServiceBusMessage], tx: ServiceBusTransaction) -> None:
    tx.send_messages(sender, messages)


@pytest.mark.parametrize(
    ("keys", "text"),
    [([None], "needs a key"), (["k", None], "needs a key"), (["k", "l"], r"different keys \('k', 'l'\)")],
)
def test_keys_on_a_partitioned_queue_are_compared_before_the_call(
    client: ServiceBusClient, keys: list[str | None], text: str
) -> None:
    client.ensure_queue("wide", enable_partitioning=True)
    with client.get_queue_sender("wide") as sender:
        messages = [ServiceBusMessage("a", partition_key=key) for key in keys]
        with pytest.raises(ValueError, match=text):
            transact(client, *(partial(recorded, sender, message) for message in messages))
        assert bodies_in(client, "wide") == []


# -- renewing locks ----------------------------------------------------------------------------------------------------


def test_a_lock_is_renewed_together_with_what_is_sent(url: str) -> None:
    """Only this message gets a longer lock, and it can be renewed and settled afterwards."""
    clock = HandClock()
    with ServiceBusClient(url, _clock=clock) as client:
        client.ensure_queue("inputs", lock_duration=timedelta(seconds=30))
        client.ensure_queue("outputs", colocate_with="inputs")
        send(client, "inputs", "1", "2")
        with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
            first, second = receive_exactly(receiver, 2)
            before, untouched = first.locked_until_utc, second.locked_until_utc
            clock.move(20)
            with client.transaction() as tx:
                tx.send_messages(sender, ServiceBusMessage("half done"))
                tx.renew_message_lock(first)
                assert first.locked_until_utc == before
            assert bodies_in(client, "outputs") == ["half done"]
            assert before is not None
            assert first.locked_until_utc is not None
            assert timedelta(seconds=19) < first.locked_until_utc - before < timedelta(seconds=21)
            assert second.locked_until_utc == untouched
            clock.move(15)  # the other lock has ended
            (again,) = receive_exactly(receiver, 1)
            assert str(again) == "2"
            receiver.renew_message_lock(first)
            clock.move(25)
            receiver.complete_message(first)


def test_a_renewal_that_is_rolled_back_leaves_the_lock(client: ServiceBusClient) -> None:
    send(client, "inputs", "1")
    with client.get_queue_receiver("inputs") as receiver:
        (message,) = receive_exactly(receiver, 1)
        before = message.locked_until_utc
        with client.transaction() as tx:
            tx.renew_message_lock(message)
            tx.rollback()
        assert message.locked_until_utc == before
        receiver.complete_message(message)


def test_a_message_is_renewed_or_settled_and_a_session_has_another_lock(client: ServiceBusClient) -> None:
    client.ensure_queue("sessions", requires_session=True)
    send(client, "inputs", "1")
    send(client, "sessions", "1", session_id="a")
    with (
        client.get_queue_receiver("inputs") as receiver,
        client.get_queue_receiver("sessions", session_id="a") as of_session,
    ):
        (message,), (in_session,) = receive_exactly(receiver, 1), receive_exactly(of_session, 1)
        with client.transaction() as tx:
            tx.renew_message_lock(message)
            with pytest.raises(MessageAlreadySettled, match="settles this message or renews its lock already"):
                tx.complete_message(message)
            with pytest.raises(TypeError, match="renew the lock of the session"):
                tx.renew_message_lock(in_session)
        receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled):
            with client.transaction() as tx:
                tx.renew_message_lock(message)
