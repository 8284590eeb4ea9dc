"""Sending, scheduling and cancelling with senders, and messages that are refused."""

# Made by tools/make_sync from tests/aio/test_sending.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis import ServiceBusClient, ServiceBusSender
from sbredis.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage
from tests.sync.queues import HandClock, both, in_memory, queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


SOON = datetime(2030, 1, 1, tzinfo=UTC)


# -- scheduling --------------------------------------------------------------------------------------------------------


@both
def test_scheduled_messages_are_counted_until_they_are_due(url: str, *, partitioned: bool) -> None:
    clock = HandClock()
    when = datetime.fromtimestamp(clock.utc() + 100, UTC)
    with (
        queue_at(url, partitioned=partitioned, clock=clock) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], when)
        (single,) = sender.schedule_messages({"body": "c"}, when)
        sender.send_messages(ServiceBusMessage("d", scheduled_enqueue_time_utc=when))
        sender.send_messages(ServiceBusMessage("e", scheduled_enqueue_time_utc=when - timedelta(seconds=100)))
        counts = queue.counts()
        assert (counts.scheduled, counts.active) == (4, 1)
        assert len({*numbers, single}) == 3
        assert numbers[1] == numbers[0] + 1
        clock.move(100)
        queue.process_due()
        counts = queue.counts()
        assert (counts.scheduled, counts.active) == (0, 5)


@in_memory
def test_one_message_object_can_be_scheduled_at_several_times(url: str) -> None:
    clock = HandClock()
    times = [datetime.fromtimestamp(clock.utc() + seconds, UTC) for seconds in (10, 20)]
    with queue_at(url, clock=clock) as queue, queue.client.get_queue_sender("q") as sender:
        sender.schedule_messages([ServiceBusMessage("x")] * 2, times)
        clock.move(10)
        queue.process_due()
        counts = queue.counts()
        assert (counts.scheduled, counts.active) == (1, 1)


@both
def test_an_unknown_sequence_number_is_named_in_the_error(url: str, *, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("a"), SOON)
        for unknown in (0, -1, 4711, 10**15, 2 << 48, (77 << 48) + 1, 1 << 70):
            with pytest.raises(
                MessageNotFoundError,
                match=rf"These messages are not scheduled, or are no longer scheduled: {unknown}\.",
            ) as caught:
                sender.cancel_scheduled_messages(unknown)
            assert (caught.value.entity, caught.value.outcome) == ("q", Outcome.REFUSED)
            assert (queue.counts()).scheduled == 1
        sender.cancel_scheduled_messages([number])


def test_several_scheduled_messages_are_cancelled_together_or_not_at_all(url: str) -> None:
    with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], SOON)
        with pytest.raises(MessageNotFoundError, match="No message was cancelled") as caught:
            sender.cancel_scheduled_messages([*numbers, 99])
        assert caught.value.outcome is Outcome.REFUSED
        assert (queue.counts()).scheduled == 2


@pytest.mark.parametrize("wrong", ["12", b"12", 1.5, None, True, [True], ["1"], [None]])
@in_memory
def test_a_sequence_number_must_be_a_whole_number(url: str, wrong: Any) -> None:
    with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        with pytest.raises(TypeError, match="sequence number"):
            sender.cancel_scheduled_messages(wrong)


# -- size limits -------------------------------------------------------------------------------------------------------


@both
def test_a_message_above_a_newly_lowered_size_limit_is_refused(url: str, *, partitioned: bool) -> None:
    """This also holds if the sender does not know the new limit yet."""
    with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        large = ServiceBusMessage(bytes(3000))
        sender.send_messages(large)
        with ServiceBusAdministrationClient(url + ("&" if "?" in url else "?") + "namespace=ns") as admin:
            admin.update_queue({"name": "q"}, max_message_size_in_kilobytes=2)
        text = "^The message has 30[0-9]+ bytes.* takes messages of up to 2048 bytes.*or raise max_message_size"
        for _ in range(2):
            with pytest.raises(MessageSizeExceededError, match=text) as caught:
                sender.send_messages(large)
            assert (caught.value.entity, caught.value.outcome) == ("q", Outcome.NEVER_SENT)
        assert (queue.counts()).active == 1


@both
def test_a_message_below_a_newly_raised_size_limit_is_sent(url: str, *, partitioned: bool) -> None:
    """The sender and the transaction read the limit again before they refuse a message because of it."""
    with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        large = ServiceBusMessage(bytes(2**20), partition_key="k")
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(large)
        with ServiceBusAdministrationClient(url + ("&" if "?" in url else "?") + "namespace=ns") as admin:
            admin.update_queue({"name": "q"}, max_message_size_in_kilobytes=2048)
            sender.send_messages(large)
            admin.update_queue({"name": "q"}, max_message_size_in_kilobytes=3072)
        with queue.client.transaction() as transaction:
            transaction.send_messages(sender, ServiceBusMessage(bytes(2**21), partition_key="k"))
        assert (queue.counts()).active == 2


def test_a_size_error_of_a_topic_names_the_topic(url: str) -> None:
    with ServiceBusClient(url) as client, client.get_topic_sender("t", create_if_missing=True) as sender:
        large = ServiceBusMessage(bytes(2**20))
        with pytest.raises(MessageSizeExceededError, match="; the topic takes messages of up to 1048576 bytes"):
            sender.send_messages(large)
        with pytest.raises(ValueError, match="the topic 't' takes batches of up to 1048576 bytes"):
            sender.create_message_batch(2**21)


@in_memory
def test_a_batch_may_not_exceed_the_size_limit_of_the_queue(url: str) -> None:
    with queue_at(url, largest_message=2000) as queue, queue.client.get_queue_sender("q") as sender:
        assert (sender.create_message_batch(1000)).max_size_in_bytes == 1000
        with pytest.raises(ValueError, match="takes batches of up to 2000 bytes"):
            sender.create_message_batch(2001)
        with pytest.raises(ValueError, match="max_size_in_bytes"):
            sender.create_message_batch(0)


# -- messages that the queue refuses -----------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize("way", ["one", "list", "batch"])
@pytest.mark.parametrize(
    ("settings", "name", "size", "kind", "outcome", "says"),
    [
        (
            {},
            "unknown",
            10,
            MessagingEntityNotFoundError,
            Outcome.REFUSED,
            ("There is no entity", "Create it", "will not help"),
        ),
        (
            {"status": "SendDisabled"},
            "q",
            10,
            MessagingEntityDisabledError,
            Outcome.REFUSED,
            ("status is SendDisabled", "Nothing was changed", "when the status is Active", "a retry may help"),
        ),
        (
            {"largest_message": 2000},
            "q",
            3000,
            MessageSizeExceededError,
            Outcome.NEVER_SENT,
            ("bytes", "2000", "will not help"),
        ),
        (
            {"quota": 2000},
            "q",
            3000,
            ServiceBusQuotaExceededError,
            Outcome.REFUSED,
            ("The entity is full", "Receive or purge"),
        ),
    ],
)
def test_the_error_of_a_refused_send_says_what_happened_and_whether_a_retry_can_help(  # noqa: PLR0917 -- the columns of a table
    url: str,
    way: str,
    settings: Any,
    name: str,
    size: int,
    kind: type[ServiceBusError],
    outcome: Outcome,
    says: tuple[str, ...],
) -> None:
    with queue_at(url, **settings) as queue, queue.client.get_queue_sender("q") as other:
        batch = other.create_message_batch()
        before = queue.contents()
        sender = queue.client.get_queue_sender(name)
        message = ServiceBusMessage(bytes(size))

        def send() -> None:
            if way == "batch":
                batch.add_message(message)
            several = batch if way == "batch" else [message, ServiceBusMessage("y")]
            sender.send_messages(message if way == "one" else several)

        with pytest.raises(kind) as caught:
            send()
        text = str(caught.value)
        assert [said for said in says if said not in text] == []
        by_batch = way == "batch" and outcome is Outcome.NEVER_SENT  # the batch refuses it, without an entity or a call
        expected = (None, None) if by_batch else (name, outcome)
        assert (caught.value.entity, caught.value.outcome) == expected
        assert caught.value.tracking_id in text
        assert text[0].isupper()
        assert queue.contents() == before
        assert sender.in_flight == 0


def test_the_error_for_an_unknown_queue_says_how_to_create_it(url: str) -> None:
    with queue_at(url) as queue:
        sender = queue.client.get_queue_sender("nowhere")
        for call in (
            lambda: sender.send_messages(ServiceBusMessage("x")),
            lambda: sender.send_messages([]),
            lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON),
            lambda: sender.cancel_scheduled_messages([1]),
            sender.create_message_batch,
            sender.__enter__,
        ):
            with pytest.raises(MessagingEntityNotFoundError, match=r"ensure_queue.*create_if_missing") as caught:
                call()
            assert caught.value.outcome is Outcome.REFUSED


@in_memory
def test_properties_for_create_if_missing_are_validated_immediately(url: str) -> None:
    with queue_at(url) as queue:
        with pytest.raises(TypeError, match="create_if_missing does not take 'wrong'"):
            queue.client.get_queue_sender("new", create_if_missing={"wrong": 1})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_delivery_count"):
            queue.client.get_queue_sender("new", create_if_missing={"max_delivery_count": 0})


@in_memory
def test_a_queue_created_by_a_client_uses_the_clock_of_the_client(url: str) -> None:
    with (
        queue_at(url, clock=HandClock()) as queue,
        queue.client.get_queue_sender("new", create_if_missing=True) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


# -- closed senders and clients ----------------------------------------------------------------------------------------


def calls_of(sender: ServiceBusSender) -> list[Callable[[], Any]]:
    return [
        lambda: sender.send_messages(ServiceBusMessage("x")),
        lambda: sender.send_messages([]),
        lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON),
        lambda: sender.schedule_messages([], SOON),
        lambda: sender.cancel_scheduled_messages(1),
        lambda: sender.cancel_scheduled_messages([]),
        sender.create_message_batch,
        sender.__enter__,
    ]


def test_a_closed_sender_refuses_every_call(url: str) -> None:
    with queue_at(url) as queue:
        with queue.client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        for call in calls_of(sender):
            with pytest.raises(ValueError, match="The sender is closed"):
                call()
        with pytest.raises(ValueError, match="The sender is closed"):
            sender.send_stream([]).count()
        sender.close()


def test_a_closed_client_refuses_every_call(url: str) -> None:
    with queue_at(url) as queue:
        used, unused = queue.client.get_queue_sender("q"), queue.client.get_queue_sender("q")
        used.send_messages(ServiceBusMessage("x"))
        queue.client.close()
        for call in calls_of(used) + calls_of(unused):
            with pytest.raises(ValueError, match="closed"):
                call()
        with pytest.raises(ValueError, match="The client is closed"):
            queue.client.get_queue_sender("q")
        with pytest.raises(ValueError, match="The client is closed"):
            queue.client.ensure_queue("q")
        queue.client.close()


# -- invalid arguments -------------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize(("timeout", "error"), [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)])
def test_a_timeout_must_be_positive(url: str, timeout: Any, error: type[Exception]) -> None:
    with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        for call in (
            lambda: sender.send_messages(ServiceBusMessage("x"), timeout=timeout),
            lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON, timeout=timeout),
            lambda: sender.cancel_scheduled_messages(1, timeout=timeout),
            lambda: queue.client.ensure_queue("q", timeout=timeout),
        ):
            with pytest.raises(error, match="timeout"):
                call()
        with pytest.raises(error, match="timeout"):
            sender.send_stream([], timeout=timeout).count()


@in_memory
def test_a_sender_has_properties_for_its_name_and_state(url: str) -> None:
    with queue_at(url) as queue:
        sender = queue.client.get_queue_sender("Q", client_identifier="me")
        assert (sender.entity_name, sender.client_identifier) == ("Q", "me")
        assert repr(sender) == "<ServiceBusSender 'Q' open>"
        assert (
            queue.client.get_queue_sender("q").client_identifier != queue.client.get_queue_sender("q").client_identifier
        )
        sender.close()
        assert repr(sender) == "<ServiceBusSender 'Q' closed>"
        with pytest.raises(TypeError, match="client_identifier must be text"):
            queue.client.get_queue_sender("q", client_identifier=5)  # type: ignore[arg-type]
