"""Moving dead letters back to their queue or subscription."""

# Made by tools/make_sync from tests/aio/test_redriving.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sbredis import RedriveBudget, ServiceBusMessage
from sbredis.exceptions import (
    MessageNotFoundError,
    MessagingEntityNotFoundError,
)
from sbredis.management import CorrelationRuleFilter, SqlRuleFilter
from tests.sync.queues import (
    HandClock,
    Queue,
    bodies,
    both,
    in_memory,
    queue_at,
    receive_exactly,
    topic_at,
)

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def kill(
    queue: Queue, *texts: str, reason: str | None = None, description: str | None = None, at: int | None = None
) -> list[int]:
    """Send messages, to partition ``at`` or to all, and dead-letter them. Return the letters' sequence numbers."""
    letters = queue.receiver(sub_queue="deadletter")
    before = {message.sequence_number for message in letters.peek_messages(1000, sequence_number=1)}
    queue.send(*texts, at=at)
    receiver = queue.receiver()
    for message in receive_exactly(receiver, len(texts)):
        receiver.dead_letter_message(message, reason, description)
    after = [message.sequence_number for message in all_dead(queue)]
    return [number for number in after if number not in before]


def all_dead(queue: Queue) -> list[Any]:
    """Return all dead letters of a queue."""
    letters = queue.receiver(sub_queue="deadletter")
    found: list[Any] = []
    while page := letters.peek_messages(1000):
        found += page
    return found


@both
def test_all_dead_letters_return_as_new_messages(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock, max_delivery_count=2) as queue:
        kill(queue, *"abc", reason="Timeout", description="no answer")
        clock.move(100)
        result = queue.receiver(sub_queue="deadletter").redrive_messages()
        assert (result.matched, result.moved, result.skipped, result.completed) == (3, 3, 0, True)
        assert result.by_reason == {"Timeout": 3}
        counts = queue.counts()
        assert (counts.active, counts.dead_active) == (3, 0)
        messages = receive_exactly(queue.receiver(), 3)
        assert sorted(bodies(messages)) == ["a", "b", "c"]
        for message in messages:
            assert (message.delivery_count, message.dead_letter_reason) == (1, None)
            assert message.application_properties is None
            assert message.enqueued_time_utc.timestamp() == clock.utc()


@both
def test_a_dry_run_counts_by_reason_and_fingerprint_and_changes_nothing(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        kill(queue, *"ab", reason="Timeout", description="order 17 took 30 s\nmore")
        kill(queue, *"cd", reason="Timeout", description="order 4 took 5 s")
        kill(queue, "e")
        before = queue.stored()
        result = queue.receiver(sub_queue="deadletter").redrive_messages(dry_run=True)
        assert (result.matched, result.moved, result.skipped) == (5, 0, 0)
        assert result.by_reason == {"Timeout": 4, "(no reason)": 1}
        assert result.by_fingerprint == {"Timeout: order # took # s": 4, "(no reason)": 1}
        assert queue.stored() == before


@both
def test_a_redrive_with_the_cursor_of_a_dry_run_takes_only_what_the_dry_run_has_seen(
    url: str, partitioned: bool
) -> None:
    """So a job that is killed can begin again, and redrives no message that has died again meanwhile."""
    with queue_at(url, partitioned=partitioned) as queue:
        kill(queue, *"abc")
        letters = queue.receiver(sub_queue="deadletter")
        cursor = (letters.redrive_messages(dry_run=True)).cursor
        kill(queue, *"def")
        first = letters.redrive_messages(cursor=cursor)
        assert (first.matched, first.moved) == (3, 3)
        assert sorted(bodies(all_dead(queue))) == ["d", "e", "f"]
        again = letters.redrive_messages(cursor=cursor)
        assert (again.matched, again.moved) == (0, 0)
        assert (letters.redrive_messages(cursor=first.cursor)).matched == 0
        assert (letters.redrive_messages()).moved == 3


@both
def test_messages_are_chosen_by_reason_number_or_filter(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        letters = queue.receiver(sub_queue="deadletter")
        numbers = kill(queue, *"abc", reason="Timeout")
        kill(queue, *"de", reason="Broken", description="disk 3 is full")
        one = letters.redrive_messages(sequence_numbers=numbers[0])
        assert one.moved == 1
        assert (letters.redrive_messages(cursor=one.cursor, dry_run=True)).matched == 4
        assert (letters.redrive_messages(reason="Timeout")).moved == 2
        nothing = letters.redrive_messages(matching="sys.DeadLetterReason = 'Timeout'")
        assert (nothing.matched, nothing.completed) == (0, True)
        like = SqlRuleFilter("sys.DeadLetterErrorDescription LIKE @what", {"@what": "disk%"})
        assert (letters.redrive_messages(matching=like, dry_run=True)).matched == 2
        by_property = CorrelationRuleFilter(properties={"DeadLetterReason": "Broken"})
        assert (letters.redrive_messages(matching=by_property)).moved == 2
        assert all_dead(queue) == []


@both
def test_changed_properties_are_added_to_those_of_the_message(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("a", properties={"kept": 1, "replaced": 2})
        receiver = queue.receiver()
        (message,) = receiver.receive_messages(1, 60)
        receiver.dead_letter_message(message, "Timeout", "why")
        letters = queue.receiver(sub_queue="deadletter")
        letters.redrive_messages(properties_to_modify={"replaced": 3, "redriven": True})
        (message,) = receiver.receive_messages(1, 60)
        assert message.application_properties == {"kept": 1, "replaced": 3, "redriven": True}
        receiver.dead_letter_message(message)
        (letter,) = all_dead(queue)
        assert letter.dead_letter_reason is None  # the earlier reason is gone


@both
def test_a_message_that_a_receiver_holds_stays(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        kill(queue, *"abc")
        letters = queue.receiver(sub_queue="deadletter")
        (held,) = letters.receive_messages(1, 60)
        result = letters.redrive_messages()
        assert (result.moved, result.completed) == (2, True)
        letters.complete_message(held)


@both
def test_an_unknown_number_is_refused_and_nothing_is_moved(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        numbers = kill(queue, *"ab")
        letters = queue.receiver(sub_queue="deadletter")
        with pytest.raises(MessageNotFoundError, match="No message was moved"):
            letters.redrive_messages(sequence_numbers=[*numbers, 77])
        (held,) = letters.receive_messages(1, 60)
        with pytest.raises(MessageNotFoundError, match=str(held.sequence_number)):
            letters.redrive_messages(sequence_numbers=numbers)
        assert (queue.counts()).active == 0
        assert len(all_dead(queue)) == 2


@both
def test_a_redrive_with_a_budget_ends_normally_if_the_messages_live(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        kill(queue, *"abcdef")
        letters = queue.receiver(sub_queue="deadletter")
        result = letters.redrive_messages(rate=1000, budget=RedriveBudget(share=0, minimum=1))
        assert (result.moved, result.died_again, result.completed) == (6, 0, True)


@both
def test_a_portion_that_nobody_handles_holds_a_redrive_up_for_the_window(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        kill(queue, *"abcdef")
        letters = queue.receiver(sub_queue="deadletter")
        result = letters.redrive_messages(budget=RedriveBudget(share=0, minimum=2, window=0.1))
        assert (result.moved, result.died_again, result.completed) == (6, 0, True)


@in_memory
def test_large_messages_are_found_by_their_numbers(url: str) -> None:
    """One call does not return all of them."""
    with queue_at(url, partitions=1) as queue:
        numbers = kill(queue, *(str(number) * 900_000 for number in range(7)))
        result = queue.receiver(sub_queue="deadletter").redrive_messages(sequence_numbers=numbers)
        assert (result.matched, result.moved) == (7, 7)


@both
def test_all_conditions_must_hold(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        letters = queue.receiver(sub_queue="deadletter")
        numbers = [*kill(queue, "a", reason="Timeout"), *kill(queue, "b", reason="Broken")]
        kill(queue, "c", reason="Timeout")
        kill(queue, "d")
        chosen: dict[str, Any] = {"sequence_numbers": numbers, "reason": "Timeout", "rate": 1000}
        chosen["matching"] = "sys.DeadLetterReason LIKE 'T%'"
        found = letters.redrive_messages(**chosen, dry_run=True)
        assert (found.matched, found.by_reason) == (1, {"Timeout": 1})
        result = letters.redrive_messages(**chosen, cursor=found.cursor)
        assert (result.matched, result.moved) == (1, 1)
        assert (letters.redrive_messages(matching="sys.DeadLetterReason IS NULL", rate=float("inf"))).moved == 1
        assert sorted(bodies(all_dead(queue))) == ["b", "c"]


@both
def test_the_dead_letters_of_a_subscription_return_to_it_only(url: str, partitioned: bool) -> None:
    with topic_at(url, partitioned=partitioned) as topic:
        topic.create({"one": None, "two": None})
        topic.sender().send_messages([ServiceBusMessage(text) for text in "abc"])
        receiver = topic.receiver("one")
        for message in receive_exactly(receiver, 3):
            receiver.dead_letter_message(message)
        result = topic.receiver("one", sub_queue="deadletter").redrive_messages()
        assert result.moved == 3
        assert sorted(bodies(receive_exactly(receiver, 3))) == ["a", "b", "c"]
        assert len(topic.take_all("two")) == 3


@both
def test_a_redriven_message_lives_as_long_as_its_topic_allows(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with topic_at(
        url, partitioned=partitioned, clock=clock, default_message_time_to_live=timedelta(seconds=60)
    ) as topic:
        topic.create({"one": None})
        topic.sender().send_messages(ServiceBusMessage("a"))
        receiver = topic.receiver("one")
        (message,) = receive_exactly(receiver, 1)
        receiver.dead_letter_message(message)
        clock.move(1000)
        assert (topic.receiver("one", sub_queue="deadletter").redrive_messages()).moved == 1
        (message,) = receive_exactly(receiver, 1)
        assert message.expires_at_utc is not None
        assert message.expires_at_utc.timestamp() == clock.utc() + 60


@both
def test_dead_letters_can_be_moved_to_another_queue(url: str, partitioned: bool) -> None:
    """Messages move within a slot or between slots. They know where they died."""
    with queue_at(url, partitioned=partitioned) as queue:
        queue.client.ensure_queue("other", enable_partitioning=partitioned)
        queue.send(*"abcdefg", properties={"kept": 1})
        receiver = queue.receiver()
        for message in receive_exactly(receiver, 7):
            receiver.dead_letter_message(message, "Timeout", "why")
        letters = queue.receiver(sub_queue="deadletter")
        result = letters.redrive_messages(to="other", properties_to_modify={"redriven": True}, rate=1000)
        assert (result.matched, result.moved, result.skipped, result.completed) == (7, 7, 0, True)
        assert all_dead(queue) == []
        with queue.client.get_queue_receiver("other") as other:
            messages = receive_exactly(other, 7)
        assert sorted(bodies(messages)) == list("abcdefg")
        for message in messages:
            assert message.application_properties == {"kept": 1, "redriven": True}
            assert (message.dead_letter_source, message.delivery_count) == (queue.entity.name, 1)
        assert (letters.redrive_messages(to="other")).matched == 0


@both
def test_dead_letters_can_be_moved_to_a_topic(url: str, partitioned: bool) -> None:
    with topic_at(url, partitioned=partitioned) as topic:
        topic.create({"one": None})
        topic.client.ensure_queue("q")
        with topic.client.get_queue_sender("q") as sender:
            sender.send_messages([ServiceBusMessage(text) for text in "abc"])
        receiver = topic.client.get_queue_receiver("q")
        for message in receive_exactly(receiver, 3):
            receiver.dead_letter_message(message)
        result = topic.client.get_queue_receiver("q", sub_queue="deadletter").redrive_messages(to="t")
        assert result.moved == 3
        assert len(topic.take_all("one")) == 3


@both
def test_messages_that_the_destination_does_not_take_stay_dead_letters(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.client.ensure_queue("sessions", requires_session=True)
        queue.client.ensure_queue("closed", status="SendDisabled")
        kill(queue, *"abc")
        letters = queue.receiver(sub_queue="deadletter")
        for to in ("sessions", "closed"):
            result = letters.redrive_messages(to=to)
            assert (result.matched, result.moved, result.skipped) == (3, 0, 3)
            assert len(all_dead(queue)) == 3
        assert (letters.redrive_messages()).moved == 3


@in_memory
@pytest.mark.parametrize("near", [True, False], ids=["one slot", "several slots"])
def test_deferred_letters_are_moved_elsewhere_with_the_others(url: str, near: bool) -> None:
    with queue_at(url, partitions=1 if near else 3, partitioned=True) as queue:
        queue.client.ensure_queue("other", enable_partitioning=near)
        kill(queue, *"abc")
        letters = queue.receiver(sub_queue="deadletter")
        (first,) = letters.receive_messages(1, 60)
        letters.defer_message(first)
        result = letters.redrive_messages(to="other")
        assert (result.matched, result.moved, result.skipped) == (3, 3, 0)
        assert all_dead(queue) == []
        with queue.client.get_queue_receiver("other") as receiver:
            assert sorted(map(str, receive_exactly(receiver, 3))) == ["a", "b", "c"]


@in_memory
def test_a_wrong_destination_is_refused_and_nothing_is_moved(url: str) -> None:
    with queue_at(url) as queue:
        kill(queue, "a")
        letters = queue.receiver(sub_queue="deadletter")
        with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
            letters.redrive_messages(to="nowhere")
        with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
            letters.redrive_messages(to="nowhere", dry_run=True)
        with pytest.raises(ValueError, match="leave out `to`"):
            letters.redrive_messages(to=queue.entity.name.upper())
        assert (queue.counts()).dead_active == 1
