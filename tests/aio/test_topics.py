"""Sending to topics: which subscriptions get which copies, even while rules and subscriptions change."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sbredis.client import facts_of
from sbredis.exceptions import MessagingEntityDisabledError, Outcome, ServiceBusError
from sbredis.management import EntityStatus, RuleProperties, SqlRuleAction, SqlRuleFilter
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, loop_time, receive_exactly
from tests.aio.topics import soon, topic_at

pytestmark = pytest.mark.everywhere("a topic's routes and its partitions lie in different slots")


def rule(name: str, filter_: Any, action: str | None = None) -> RuleProperties:
    return RuleProperties(name, filter=filter_, action=None if action is None else SqlRuleAction(action))


# -- copies for subscriptions ------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_a_message_on_which_a_filter_fails_is_dead_lettered_or_dropped(url: str, partitioned: bool) -> None:
    bad = [rule("bad", SqlRuleFilter("1 / zero = 1"))]
    async with topic_at(url, {"kept": bad, "fine": None}, partitioned=partitioned) as subject:
        await subject.create({"dropped": bad}, dead_lettering_on_filter_evaluation_exceptions=False)
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x", application_properties={"zero": 0}))
        (dead,) = await subject.take_all("kept", dead=True)
        assert str(dead) == "x"
        assert dead.dead_letter_reason
        assert [await subject.take_bodies(name) for name in ("kept", "dropped", "fine")] == [[], [], ["x"]]
        assert await subject.take_bodies("dropped", dead=True) == []


@pytest.mark.slow
@both
async def test_a_session_subscription_dead_letters_messages_without_a_session(url: str, partitioned: bool) -> None:
    """Other subscriptions get the message without a session as usual."""
    async with topic_at(url, {"plain": None}, partitioned=partitioned) as subject, subject.sender() as sender:
        await subject.create({"sessions": None}, requires_session=True)
        for text in "123":
            await sender.send_messages(ServiceBusMessage(text, session_id="a"))
        await sender.send_messages(ServiceBusMessage("without"))
        async with subject.receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            assert receiver.session is not None
            assert receiver.session.session_id == "a"
            assert bodies(await receiver.receive_messages(5, 60)) == list("123")
            await receiver.session.set_state("x")
        found = [name async for name in subject.client.list_subscription_sessions("t", "sessions")]
        assert found == ["a"]
        assert await subject.client.accept_next_session("t", "sessions") is not None
        (dead,) = await subject.take_all("sessions", dead=True)
        assert (str(dead), dead.dead_letter_reason) == ("without", "Session ID is null.")
        assert await subject.take_bodies("plain") == ["1", "2", "3", "without"]


@pytest.mark.slow
@both
async def test_duplicates_are_detected_before_copies_are_made(url: str, partitioned: bool) -> None:
    """This also holds for subscriptions that are created later, and if no subscription got the first message."""
    async with (
        topic_at(url, {"one": None}, partitioned=partitioned, requires_duplicate_detection=True) as subject,
        subject.sender() as sender,
    ):
        for text in ("1", "2"):
            await sender.send_messages(ServiceBusMessage(text, message_id="same"))
        await subject.create({"two": None})
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(text, message_id=text)) for text in "345345"))
        await sender.send_messages(ServiceBusMessage("6", message_id="same"))
        numbers = await sender.schedule_messages(ServiceBusMessage("7", message_id="7"), soon(3600))
        await sender.send_messages(ServiceBusMessage("7 again", message_id="7"))
        await sender.cancel_scheduled_messages(numbers)
        assert await subject.take_bodies("one") == ["1", "3", "4", "5"]
        assert await subject.take_bodies("two") == ["3", "4", "5"]


@pytest.mark.slow
@both
async def test_a_batch_is_judged_with_the_values_that_its_messages_had_when_added(url: str, partitioned: bool) -> None:
    rules = {"red": [rule("r", SqlRuleFilter("color = 'red'"))], "all": None}
    async with topic_at(url, rules, partitioned=partitioned) as subject, subject.sender() as sender:
        message = ServiceBusMessage("x", application_properties={"color": "red"}, session_id="a")
        batch = await sender.create_message_batch()
        batch.add_message(message)
        message.application_properties = {"color": "blue"}
        message.session_id = "b"
        batch.add_message(message.__class__("z", session_id="a"))
        await sender.send_messages(batch)
        await sender.send_messages(batch)
        assert await subject.take_bodies("red") == ["x", "x"]
        assert await subject.take_bodies("all") == ["x", "x", "z", "z"]


@pytest.mark.slow
@both
async def test_large_batches_reach_many_subscriptions(url: str, partitioned: bool) -> None:
    names = [f"s{number:02}" for number in range(30)]
    async with topic_at(url, dict.fromkeys(names), partitioned=partitioned) as subject, subject.sender() as sender:
        listed = [ServiceBusMessage(f"{number}", session_id="s") for number in range(400)]
        await sender.send_messages(listed)
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"{number}")) for number in range(400, 800)))
        for name in names[::10]:
            assert sorted(map(int, await subject.take_bodies(name))) == list(range(800))


# -- entities of other kinds -------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_the_status_of_a_topic_and_a_subscription_is_respected(url: str, partitioned: bool) -> None:
    subscriptions = {"one": None, "two": None}
    async with topic_at(url, subscriptions, partitioned=partitioned) as subject, subject.sender() as sender:
        await sender.send_messages(ServiceBusMessage("1"))
        await subject.admin.update_topic({"name": "t", "status": EntityStatus.SEND_DISABLED})
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("refused"))
        await subject.admin.update_topic({"name": "t", "status": "Active"})
        await sender.send_messages(ServiceBusMessage("2"))
        await subject.admin.update_subscription("t", {"name": "one", "status": "ReceiveDisabled"})
        await sender.send_messages(ServiceBusMessage("3"))
        with pytest.raises(MessagingEntityDisabledError):
            await subject.receiver("one").receive_messages(1, 60)
        await subject.admin.update_subscription("t", {"name": "one", "status": "Active"})
        assert await subject.take_bodies("one") == ["1", "2", "3"]
        assert await subject.take_bodies("two") == ["1", "2", "3"]


# -- while rules and subscriptions change ------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_an_added_or_removed_rule_applies_to_all_later_messages(url: str, partitioned: bool) -> None:
    async with topic_at(url, {"one": []}, partitioned=partitioned) as subject, subject.sender() as sender:
        async with subject.other_client() as other, other.get_topic_sender("t") as stranger:
            for turn in range(3):
                for each in (sender, stranger):
                    await each.send_messages(ServiceBusMessage("nobody's"))
                await subject.admin.create_rule("t", "one", "r", filter=SqlRuleFilter("1 = 1"))
                for each in (sender, stranger):
                    await each.send_messages(ServiceBusMessage(f"{turn}"))
                await subject.admin.delete_rule("t", "one", "r")
        assert await subject.take_bodies("one") == ["0", "0", "1", "1", "2", "2"]


@both
@pytest.mark.parametrize("way", ["queue to topic", "topic to queue"])
async def test_sends_continue_when_a_queue_is_replaced_by_a_topic_or_the_reverse(
    url: str, partitioned: bool, way: str
) -> None:
    """Concurrent sends go to the new entity."""
    async with topic_at(url, partitioned=partitioned) as subject:
        admin = subject.admin

        async def queue() -> None:
            await admin.create_queue("x", enable_partitioning=partitioned)

        async def topic() -> None:
            await admin.create_topic("x", enable_partitioning=partitioned)
            await admin.create_subscription("x", "one")

        first, then = (queue, topic) if way == "queue to topic" else (topic, queue)
        delete = admin.delete_queue if first is queue else admin.delete_topic
        await first()
        async with subject.client.get_queue_sender("x") as sender:
            await sender.send_messages(ServiceBusMessage("old", session_id="s"))
            await delete("x")
            await then()
            outcomes = await asyncio.gather(
                *(sender.send_messages(ServiceBusMessage("new", session_id="s")) for _ in range(5)),
                return_exceptions=True,
            )
            assert outcomes == [None] * 5
            await sender.send_messages(ServiceBusMessage("new"))
        if then is queue:
            receiver = subject.client.get_queue_receiver("x")
        else:
            receiver = subject.client.get_subscription_receiver("x", "one")
        assert bodies(await receive_exactly(receiver, 6)) == ["new"] * 6


@pytest.mark.slow
@both
async def test_a_lost_partition_of_a_subscription_is_recreated(url: str, partitioned: bool) -> None:
    """A failover can lose a partition. Senders and receivers continue afterwards."""
    subscriptions = {"one": None, "two": None}
    async with topic_at(url, subscriptions, partitioned=partitioned) as subject, subject.sender() as sender:
        await sender.send_messages(ServiceBusMessage("old"))
        queue = await subject.queue_of("one")
        for partition in queue.partitions:
            for key in partition.keys[:8]:
                await queue.transport.command("DEL", key, key=key)
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage(f"{number}")) for number in range(20)))
        expected = sorted(str(number) for number in range(20))
        assert await subject.take_bodies("one") == expected
        assert await subject.take_bodies("two") == sorted([*expected, "old"])


# -- rules and times to live -------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_a_change_of_rules_does_not_wake_other_receivers(url: str, partitioned: bool) -> None:
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject, subject.sender() as sender:
        await subject.admin.create_queue("q", enable_partitioning=partitioned)
        await sender.send_messages(ServiceBusMessage("1"))
        assert await subject.take_bodies("one") == ["1"]
        tasks = [
            asyncio.create_task(subject.receiver("one").receive_messages(1, 60)),
            asyncio.create_task(subject.client.get_queue_receiver("q").receive_messages(1, 60)),
        ]
        connection = subject.client._connection
        await (await subject.queue_of("one")).wait_for_waiters()
        queue = Queue(subject.client, await connection.entity("q", loop_time() + 60), url, None)
        await queue.wait_for_waiters()
        with Calls(connection.transport) as calls:
            await subject.admin.create_rule("t", "one", "more", filter=SqlRuleFilter("x = 1"))
            await sender.send_messages(ServiceBusMessage("2"))
            assert bodies(await tasks[0]) == ["2"]
            assert calls.by_script["grant"] == 1
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
@in_memory
async def test_the_shorter_time_to_live_of_topic_and_subscription_applies(url: str) -> None:
    clock = HandClock()
    async with topic_at(url, {"one": None}, clock=clock, default_message_time_to_live=timedelta(seconds=60)) as subject:
        await subject.create({"short": None}, default_message_time_to_live=timedelta(seconds=10))
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        for name, seconds in (("one", 60), ("short", 10)):
            async with subject.receiver(name) as receiver:
                (seen,) = await receiver.peek_messages()
                (message,) = await receiver.receive_messages(max_wait_time=5)
                for each in (seen, message):
                    assert each.expires_at_utc is not None
                    assert each.expires_at_utc - each.enqueued_time_utc == timedelta(seconds=seconds)
                await receiver.abandon_message(message)
        clock.move(11)
        assert [await subject.take_bodies(name) for name in ("one", "short")] == [["x"], []]
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(hours=1)))
        clock.move(61)
        assert await subject.take_bodies("one") == []


# -- messages that cannot be judged ------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
@both
@pytest.mark.parametrize("broken", [ValueError("oh"), ZeroDivisionError("oh")], ids=["error of the message", "defect"])
@pytest.mark.parametrize("way", ["one", "several", "stream", "waiting"])
async def test_a_message_that_cannot_be_judged_is_refused_and_takes_no_room(
    url: str, partitioned: bool, broken: Exception, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages before and after it are sent, and the sender can still be closed."""

    def facts(content: Any) -> Any:
        if b"odd" in content.body:
            raise broken
        return facts_of(content)

    monkeypatch.setattr("sbredis.sending._outbox.facts_of", facts)
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject:
        sender = subject.sender(max_in_flight=1 if way == "waiting" else 100)
        odd = ServiceBusMessage("odd", session_id="s")
        tasks: list[Any] = []
        if way == "several":
            tasks = [sender.send_messages([ServiceBusMessage("b", session_id="s"), odd])]
        elif way == "stream":
            tasks = [sender.send_stream([ServiceBusMessage("x", session_id="s"), odd])]
        elif way == "waiting":
            await sender.send_messages([])
            tasks = [sender.send_messages(each) for each in (ServiceBusMessage("x"), odd)]
        else:
            tasks = [sender.send_messages(odd)]
        *others, found = await asyncio.gather(*map(asyncio.ensure_future, map(_awaited, tasks)), return_exceptions=True)
        assert others in ([], [None])
        if isinstance(broken, ValueError):
            assert found is broken
        else:
            assert isinstance(found, ServiceBusError)
            assert (found.outcome, found.is_transient, found.entity) == (Outcome.NEVER_SENT, False, "t")
            assert "A defect in sbredis: ZeroDivisionError: oh" in str(found)
        assert sender.in_flight == 0
        await sender.send_messages(ServiceBusMessage("after"))
        await sender.close()
        assert await subject.take_bodies("one") == (["after", "x"] if way in {"stream", "waiting"} else ["after"])


async def _awaited(given: Any) -> Any:
    return await given
