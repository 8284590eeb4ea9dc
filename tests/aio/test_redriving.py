"""Moving dead letters back to their queue or subscription."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from sbredis import RedriveBudget, ServiceBusMessage
from sbredis.client import OWN
from sbredis.engine import role_keys
from sbredis.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    RedriveInProgressError,
    RuleSyntaxError,
)
from sbredis.management import CorrelationRuleFilter, SqlRuleFilter
from tests.aio.queues import (
    PATIENT,
    Calls,
    HandClock,
    Queue,
    bodies,
    both,
    handling,
    in_memory,
    queue_at,
    queue_with,
    receive_exactly,
)
from tests.aio.topics import topic_at
from tests.waiting import eventually


async def kill(
    queue: Queue, *texts: str, reason: str | None = None, description: str | None = None, at: int | None = None
) -> list[int]:
    """Send messages, to partition ``at`` or to all, and dead-letter them. Return the letters' sequence numbers."""
    letters = queue.receiver(sub_queue="deadletter")
    before = {message.sequence_number for message in await letters.peek_messages(1000, sequence_number=1)}
    await queue.send(*texts, at=at)
    receiver = queue.receiver()
    for message in await receive_exactly(receiver, len(texts)):
        await receiver.dead_letter_message(message, reason, description)
    after = [message.sequence_number for message in await all_dead(queue)]
    return [number for number in after if number not in before]


async def all_dead(queue: Queue) -> list[Any]:
    """Return all dead letters of a queue."""
    letters = queue.receiver(sub_queue="deadletter")
    found: list[Any] = []
    while page := await letters.peek_messages(1000):
        found += page
    return found


@pytest.mark.conformance
@both
@queue_with(max_delivery_count=2)
async def test_all_dead_letters_return_as_new_messages(queue: Queue, clock: HandClock) -> None:
    await kill(queue, *"abc", reason="Timeout", description="no answer")
    clock.move(100)
    result = await queue.receiver(sub_queue="deadletter").redrive_messages()
    assert (result.matched, result.moved, result.skipped, result.completed) == (3, 3, 0, True)
    assert result.by_reason == {"Timeout": 3}
    counts = await queue.counts()
    assert (counts.active, counts.dead_active) == (3, 0)
    messages = await receive_exactly(queue.receiver(), 3)
    assert sorted(bodies(messages)) == ["a", "b", "c"]
    for message in messages:
        assert (message.delivery_count, message.dead_letter_reason) == (1, None)
        assert message.application_properties is None
        assert message.enqueued_time_utc.timestamp() == clock.utc()


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_dry_run_counts_by_reason_and_fingerprint_and_changes_nothing(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        await kill(queue, *"ab", reason="Timeout", description="order 17 took 30 s\nmore")
        await kill(queue, *"cd", reason="Timeout", description="order 4 took 5 s")
        await kill(queue, "e")
        before = await queue.stored()
        result = await queue.receiver(sub_queue="deadletter").redrive_messages(dry_run=True)
        assert (result.matched, result.moved, result.skipped) == (5, 0, 0)
        assert result.by_reason == {"Timeout": 4, "(no reason)": 1}
        assert result.by_fingerprint == {"Timeout: order # took # s": 4, "(no reason)": 1}
        assert await queue.stored() == before


@both
async def test_a_redrive_with_the_cursor_of_a_dry_run_takes_only_what_the_dry_run_has_seen(queue: Queue) -> None:
    """So a job that is killed can begin again, and redrives no message that has died again meanwhile."""
    await kill(queue, *"abc")
    letters = queue.receiver(sub_queue="deadletter")
    cursor = (await letters.redrive_messages(dry_run=True)).cursor
    await kill(queue, *"def")
    first = await letters.redrive_messages(cursor=cursor)
    assert (first.matched, first.moved) == (3, 3)
    assert sorted(bodies(await all_dead(queue))) == ["d", "e", "f"]
    again = await letters.redrive_messages(cursor=cursor)
    assert (again.matched, again.moved) == (0, 0)
    assert (await letters.redrive_messages(cursor=first.cursor)).matched == 0
    assert (await letters.redrive_messages()).moved == 3


@both
async def test_messages_are_chosen_by_reason_number_or_filter(queue: Queue) -> None:
    letters = queue.receiver(sub_queue="deadletter")
    numbers = await kill(queue, *"abc", reason="Timeout")
    await kill(queue, *"de", reason="Broken", description="disk 3 is full")
    one = await letters.redrive_messages(sequence_numbers=numbers[0])
    assert one.moved == 1
    assert (await letters.redrive_messages(cursor=one.cursor, dry_run=True)).matched == 4
    assert (await letters.redrive_messages(reason="Timeout")).moved == 2
    nothing = await letters.redrive_messages(matching="sys.DeadLetterReason = 'Timeout'")
    assert (nothing.matched, nothing.completed) == (0, True)
    like = SqlRuleFilter("sys.DeadLetterErrorDescription LIKE @what", {"@what": "disk%"})
    assert (await letters.redrive_messages(matching=like, dry_run=True)).matched == 2
    by_property = CorrelationRuleFilter(properties={"DeadLetterReason": "Broken"})
    assert (await letters.redrive_messages(matching=by_property)).moved == 2
    assert await all_dead(queue) == []


@both
async def test_changed_properties_are_added_to_those_of_the_message(queue: Queue) -> None:
    await queue.send("a", properties={"kept": 1, "replaced": 2})
    receiver = queue.receiver()
    (message,) = await receiver.receive_messages(1, 60)
    await receiver.dead_letter_message(message, "Timeout", "why")
    letters = queue.receiver(sub_queue="deadletter")
    await letters.redrive_messages(properties_to_modify={"replaced": 3, "redriven": True})
    (message,) = await receiver.receive_messages(1, 60)
    assert message.application_properties == {"kept": 1, "replaced": 3, "redriven": True}
    await receiver.dead_letter_message(message)
    (letter,) = await all_dead(queue)
    assert letter.dead_letter_reason is None  # the earlier reason is gone


@both
async def test_an_unknown_number_is_refused_and_nothing_is_moved(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, clock=HandClock()) as queue:
        numbers = await kill(queue, *"ab")
        letters = queue.receiver(sub_queue="deadletter")
        with pytest.raises(MessageNotFoundError, match="No message was moved"):
            await letters.redrive_messages(sequence_numbers=[*numbers, 77])
        (held,) = await letters.receive_messages(1, 60)
        with pytest.raises(MessageNotFoundError, match=str(held.sequence_number)):
            await letters.redrive_messages(sequence_numbers=numbers)
        assert (await queue.counts()).active == 0
        assert len(await all_dead(queue)) == 2


@in_memory
async def test_arguments_are_checked_before_anything_is_sent(queue: Queue) -> None:
    await kill(queue, "a")
    letters = queue.receiver(sub_queue="deadletter")
    with Calls(queue.transport) as calls:
        with pytest.raises(RuleSyntaxError):
            await letters.redrive_messages(matching="colour = = 'red'")
        with pytest.raises(ValueError, match="@least"):
            await letters.redrive_messages(matching="price > @least")
        with pytest.raises(TypeError, match="matching must be"):
            await letters.redrive_messages(matching=7)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="budget must be"):
            await letters.redrive_messages(budget=0.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="rate"):
            await letters.redrive_messages(rate=0)
        with pytest.raises(TypeError, match="reason"):
            await letters.redrive_messages(reason=7)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="cursor must be"):
            await letters.redrive_messages(cursor=7)  # type: ignore[arg-type]
        with pytest.raises(MessageSizeExceededError, match="properties_to_modify have"):
            await letters.redrive_messages(properties_to_modify={"long": "x" * 65_536})
        with pytest.raises(TypeError):
            await letters.redrive_messages(properties_to_modify={"wrong": object()})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="application property 'wrong' is of the type list"):
            await letters.redrive_messages(properties_to_modify={"wrong": [1]})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="sub_queue='deadletter'"):
            await queue.receiver().redrive_messages()
        with pytest.raises(ValueError, match="is not the cursor"):
            await letters.redrive_messages(cursor="wrong", dry_run=True)
    assert sum(calls.by_script.values()) == 0
    assert (await queue.counts()).dead_active == 1


@both
async def test_two_redrives_of_one_queue_at_once_are_refused(queue: Queue) -> None:
    await kill(queue, *"abcdefgh")
    first = asyncio.ensure_future(queue.receiver(sub_queue="deadletter").redrive_messages(rate=0.001))

    async def begun() -> bool:
        return (await queue.counts()).active > 0

    await eventually(begun)
    async with queue.other_client() as client:
        letters = client.get_queue_receiver(queue.entity.name, sub_queue="deadletter")
        with pytest.raises(RedriveInProgressError, match="Another redrive"):
            await letters.redrive_messages()
        assert (await letters.redrive_messages(dry_run=True)).moved == 0
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        left = (await queue.counts()).dead_active
        assert (await letters.redrive_messages()).moved == left
    assert (await queue.counts()).active == 8


@both
async def test_a_redrive_stops_when_too_many_messages_die_again(queue: Queue) -> None:
    await kill(queue, *(str(number) for number in range(40)))
    async with handling(queue.receiver()):
        letters = queue.receiver(sub_queue="deadletter")
        budget = RedriveBudget(share=0.2, minimum=5)
        result = await letters.redrive_messages(rate=20, budget=budget)
    assert not result.completed
    assert "have died again" in result.stopped_because
    assert 5 <= result.moved < 40
    assert result.moved * 0.2 < result.died_again <= result.moved
    rest = await letters.redrive_messages(cursor=result.cursor)
    assert (rest.moved, rest.completed) == (40 - result.moved, True)  # and none of those that died again


@pytest.mark.slow
@both
@pytest.mark.parametrize("dies", [True, False])
async def test_without_a_rate_a_budget_is_judged_portion_by_portion(queue: Queue, dies: bool) -> None:
    await kill(queue, *(str(number) for number in range(30)))
    async with handling(queue.receiver(), dies=dies):
        letters = queue.receiver(sub_queue="deadletter")
        result = await letters.redrive_messages(budget=RedriveBudget(share=0.5, minimum=4))
    if dies:
        assert (result.moved, result.completed) == (4, False)
        assert result.died_again > 2
    else:
        assert (result.moved, result.died_again, result.completed) == (30, 0, True)


@both
async def test_a_portion_that_nobody_handles_holds_a_redrive_up_for_the_window(queue: Queue) -> None:
    await kill(queue, *"abcdef")
    letters = queue.receiver(sub_queue="deadletter")
    result = await letters.redrive_messages(budget=RedriveBudget(share=0, minimum=2, window=0.1))
    assert (result.moved, result.died_again, result.completed) == (6, 0, True)


@in_memory
async def test_a_portion_is_judged_when_its_last_message_is_handled(url: str) -> None:
    """The redrive looks at the messages of the portion again and again, and moves no other one meanwhile."""
    async with queue_at(url, partitions=1) as queue:
        await kill(queue, *"ab")
        letters, receiver = queue.receiver(sub_queue="deadletter"), queue.receiver()
        with Calls(queue.transport) as calls:
            budget = RedriveBudget(share=0.5, minimum=1, window=3600)
            redriving = asyncio.ensure_future(letters.redrive_messages(budget=budget))
            await eventually(lambda: redriving.done() or calls.by_script["peek"] > 10)
        assert not redriving.done()
        assert (await queue.counts()).active == 1
        (message,) = await receiver.receive_messages(1, 60)
        await receiver.complete_message(message)
        result = await redriving
        assert (result.moved, result.died_again, result.completed) == (2, 0, True)


@in_memory
async def test_a_redrive_that_waits_keeps_its_claim(url: str) -> None:
    async with queue_at(url, timings=replace(PATIENT, renewing_redrive=0.02)) as queue:
        await kill(queue, *"ab")
        with Calls(queue.transport) as calls:
            redriving = asyncio.ensure_future(queue.receiver(sub_queue="deadletter").redrive_messages(rate=0.001))
            await eventually(lambda: calls.by_script["hold_role"] > 5)
        assert (await queue.counts()).active == 1  # it waits until it may move the second message
        redriving.cancel()
        await asyncio.wait([redriving])


@in_memory
async def test_large_messages_are_found_by_their_numbers(url: str) -> None:
    """One call does not return all of them."""
    async with queue_at(url, partitions=1) as queue:
        numbers = await kill(queue, *(str(number) * 900_000 for number in range(7)))
        result = await queue.receiver(sub_queue="deadletter").redrive_messages(sequence_numbers=numbers)
        assert (result.matched, result.moved) == (7, 7)


@pytest.mark.slow
@both
async def test_a_redrive_by_number_goes_on_at_the_cursor_of_the_one_that_its_budget_stopped(queue: Queue) -> None:
    numbers = await kill(queue, *map(str, range(12)))
    others = await kill(queue, "x")
    letters = queue.receiver(sub_queue="deadletter")
    async with handling(queue.receiver()):
        first = await letters.redrive_messages(sequence_numbers=numbers, budget=RedriveBudget(share=0.5, minimum=4))
    assert (first.moved, first.completed) == (4, False)
    with pytest.raises(MessageNotFoundError, match="No message was moved"):
        await letters.redrive_messages(sequence_numbers=numbers)
    again = await letters.redrive_messages(sequence_numbers=numbers, cursor=first.cursor, dry_run=True)
    assert again.matched == 8
    later = await kill(queue, "later")
    with pytest.raises(MessageNotFoundError, match="No message was moved"):
        await letters.redrive_messages(sequence_numbers=[*numbers, *later], cursor=first.cursor)
    rest = await letters.redrive_messages(sequence_numbers=numbers, cursor=first.cursor)
    assert (rest.moved, rest.completed) == (8, True)
    assert (await letters.redrive_messages(sequence_numbers=numbers, cursor=rest.cursor)).matched == 0
    assert (await letters.redrive_messages(sequence_numbers=others)).moved == 1


@both
async def test_all_conditions_must_hold(queue: Queue) -> None:
    letters = queue.receiver(sub_queue="deadletter")
    numbers = [*await kill(queue, "a", reason="Timeout"), *await kill(queue, "b", reason="Broken")]
    await kill(queue, "c", reason="Timeout")
    await kill(queue, "d")
    chosen: dict[str, Any] = {"sequence_numbers": numbers, "reason": "Timeout", "rate": 1000}
    chosen["matching"] = "sys.DeadLetterReason LIKE 'T%'"
    found = await letters.redrive_messages(**chosen, dry_run=True)
    assert (found.matched, found.by_reason) == (1, {"Timeout": 1})
    result = await letters.redrive_messages(**chosen, cursor=found.cursor)
    assert (result.matched, result.moved) == (1, 1)
    assert (await letters.redrive_messages(matching="sys.DeadLetterReason IS NULL", rate=float("inf"))).moved == 1
    assert sorted(bodies(await all_dead(queue))) == ["b", "c"]


@both
async def test_the_dead_letters_of_a_subscription_return_to_it_only(url: str, partitioned: bool) -> None:
    async with topic_at(url, partitioned=partitioned) as topic:
        await topic.create({"one": None, "two": None})
        await topic.sender().send_messages([ServiceBusMessage(text) for text in "abc"])
        receiver = topic.receiver("one")
        for message in await receive_exactly(receiver, 3):
            await receiver.dead_letter_message(message)
        result = await topic.receiver("one", sub_queue="deadletter").redrive_messages()
        assert result.moved == 3
        assert sorted(bodies(await receive_exactly(receiver, 3))) == ["a", "b", "c"]
        assert len(await topic.take_all("two")) == 3


@in_memory
async def test_a_copy_without_the_session_that_its_subscription_requires_stays_and_is_counted(url: str) -> None:
    async with topic_at(url) as topic:
        await topic.create({"one": None}, requires_session=True)
        messages = [ServiceBusMessage("a", session_id="s"), ServiceBusMessage("b"), ServiceBusMessage("c")]
        await topic.sender().send_messages(messages)
        letters = topic.receiver("one", sub_queue="deadletter")
        result = await asyncio.wait_for(letters.redrive_messages(), 60)
        assert (result.matched, result.moved, result.skipped, result.completed) == (2, 0, 2, True)
        assert sorted(bodies(await letters.peek_messages(10))) == ["b", "c"]


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_dead_letters_can_be_moved_to_another_queue(queue: Queue, partitioned: bool) -> None:
    """Messages move within a slot or between slots, deferred ones too. They know where they died."""
    await queue.client.ensure_queue("other", enable_partitioning=partitioned)
    await queue.send(*"abcdefg", properties={"kept": 1})
    receiver = queue.receiver()
    for message in await receive_exactly(receiver, 7):
        await receiver.dead_letter_message(message, "Timeout", "why")
    letters = queue.receiver(sub_queue="deadletter")
    (deferred,) = await letters.receive_messages(1, 60)
    await letters.defer_message(deferred)
    result = await letters.redrive_messages(to="other", properties_to_modify={"redriven": True}, rate=1000)
    assert (result.matched, result.moved, result.skipped, result.completed) == (7, 7, 0, True)
    assert await all_dead(queue) == []
    async with queue.client.get_queue_receiver("other") as other:
        messages = await receive_exactly(other, 7)
    assert sorted(bodies(messages)) == list("abcdefg")
    for message in messages:
        assert message.application_properties == {"kept": 1, "redriven": True}
        assert (message.dead_letter_source, message.delivery_count) == (queue.entity.name, 1)
    assert (await letters.redrive_messages(to="other")).matched == 0


@both
async def test_dead_letters_can_be_moved_to_a_topic(url: str, partitioned: bool) -> None:
    async with topic_at(url, partitioned=partitioned) as topic:
        await topic.create({"one": None})
        await topic.client.ensure_queue("q")
        async with topic.client.get_queue_sender("q") as sender:
            await sender.send_messages([ServiceBusMessage(text) for text in "abc"])
        receiver = topic.client.get_queue_receiver("q")
        for message in await receive_exactly(receiver, 3):
            await receiver.dead_letter_message(message)
        result = await topic.client.get_queue_receiver("q", sub_queue="deadletter").redrive_messages(to="t")
        assert result.moved == 3
        assert len(await topic.take_all("one")) == 3


@both
async def test_messages_that_the_destination_does_not_take_stay_dead_letters(queue: Queue) -> None:
    await queue.client.ensure_queue("sessions", requires_session=True)
    await queue.client.ensure_queue("closed", status="SendDisabled")
    await kill(queue, *"abc")
    letters = queue.receiver(sub_queue="deadletter")
    for to in ("sessions", "closed"):
        result = await letters.redrive_messages(to=to)
        assert (result.matched, result.moved, result.skipped) == (3, 0, 3)
        assert len(await all_dead(queue)) == 3
    assert (await letters.redrive_messages()).moved == 3


@in_memory
async def test_a_wrong_destination_is_refused_and_nothing_is_moved(queue: Queue) -> None:
    await kill(queue, "a")
    letters = queue.receiver(sub_queue="deadletter")
    with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
        await letters.redrive_messages(to="nowhere")
    with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
        await letters.redrive_messages(to="nowhere", dry_run=True)
    with pytest.raises(ValueError, match="leave out `to`"):
        await letters.redrive_messages(to=queue.entity.name.upper())
    assert (await queue.counts()).dead_active == 1


@in_memory
async def test_a_redrive_that_loses_its_claim_ends(url: str) -> None:
    """It says that messages were moved, and the other redrive goes on."""
    async with queue_at(url, timings=replace(PATIENT, renewing_redrive=0.05)) as queue:
        await kill(queue, *"abcd")
        first = asyncio.ensure_future(queue.receiver(sub_queue="deadletter").redrive_messages(rate=0.001))

        async def begun() -> bool:
            return (await queue.counts()).active > 0

        await eventually(begun)
        connection = queue.entity.connection
        role = f"{OWN}sbredis-redrive.{queue.entity.record.id}"
        (key,) = role_keys(connection.namespace.name)
        await queue.transport.command(
            "HSET", key, role, f"0;other {round(time.time() * 1000) + 60_000} 1;;other 1", key=key
        )
        with pytest.raises(RedriveInProgressError, match="another one has begun"):
            await first
