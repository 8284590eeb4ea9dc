"""Actions of rules, and how senders and receivers see their changes to messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sbredis.management import RuleProperties, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.model import ServiceBusMessage
from tests.aio.queues import HandClock, in_memory
from tests.aio.topics import topic_at


class WrongClock(HandClock):
    """A clock whose wall time differs from the time of the servers."""

    ahead = timedelta(0)

    def utc(self) -> float:
        return super().utc() + self.ahead.total_seconds()

    def told(self) -> int:
        return round(super().utc() * 1000)


def acting(text: str, parameters: dict[str, Any] | None = None, *, where: str | None = None) -> list[RuleProperties]:
    """Return one rule with this action."""
    chosen = TrueRuleFilter() if where is None else SqlRuleFilter(where)
    return [RuleProperties("r", filter=chosen, action=SqlRuleAction(text, parameters or {}))]


@pytest.mark.slow
@in_memory
async def test_an_action_changes_the_time_to_live_of_a_copy(url: str) -> None:
    """The time to live of the copy may be longer than that of the message."""
    clock = HandClock()
    subscriptions = {
        "same": acting("SET a = 1"),
        "longer": acting("SET sys.TimeToLive = '00:01:00'"),
        "shorter": acting("SET sys.TimeToLive = '00:00:05'"),
        "for ever".replace(" ", "-"): acting("REMOVE sys.TimeToLive"),
    }
    async with topic_at(url, subscriptions, clock=clock) as subject:
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(seconds=10)))
        lives: dict[str, timedelta | None] = {}
        for name in subscriptions:
            async with subject.receiver(name) as receiver:
                (seen,) = await receiver.peek_messages()
                end = seen.expires_at_utc
                lives[name] = None if end is None else end - seen.enqueued_time_utc
                assert seen.time_to_live == lives[name]
        assert lives == {
            "same": timedelta(seconds=10),
            "longer": timedelta(seconds=60),
            "shorter": timedelta(seconds=5),
            "for-ever": None,
        }
        clock.move(11)
        assert [await subject.take_bodies(name) for name in subscriptions] == [[], ["x"], [], ["x"]]


@in_memory
async def test_rules_see_a_message_with_its_values_at_the_time_of_sending(url: str) -> None:
    """Later changes by the sender do not matter."""
    message = ServiceBusMessage("x", application_properties={"n": 0, "text": ""})
    properties = message.application_properties
    assert properties is not None

    def several() -> Iterator[ServiceBusMessage]:
        for number in range(4):
            properties["n"] = number
            properties["text"] = str(number)
            yield message

    async with topic_at(url, {"s": acting("SET seen = n", where="n >= 0")}) as subject:
        async with subject.sender() as sender:
            await sender.send_stream(several())
        found = [received.application_properties for received in await subject.take_all("s")]
        assert sorted((each["n"], each["seen"], each["text"]) for each in found if each) == [
            (number, number, str(number)) for number in range(4)
        ]


@in_memory
async def test_scheduling_at_a_past_time_returns_the_numbers_of_the_first_copies(url: str) -> None:
    rules = [*acting("SET a = 1"), RuleProperties("q", filter=TrueRuleFilter(), action=SqlRuleAction("SET a = 2"))]
    async with topic_at(url, {"s": rules}) as subject, subject.sender() as sender:
        messages = [ServiceBusMessage(str(number)) for number in range(3)]
        numbers = await sender.schedule_messages(messages, datetime.now(UTC) - timedelta(minutes=1))
        first: dict[str, int] = {}
        for message in await subject.take_all("s"):
            assert message.sequence_number is not None
            first[str(message)] = min(message.sequence_number, first.get(str(message), message.sequence_number))
        assert numbers == [first[str(number)] for number in range(3)]


@in_memory
@pytest.mark.parametrize("ahead", [timedelta(minutes=5), timedelta(hours=1)], ids=str)
async def test_the_partition_clock_decides_whether_a_message_is_due(url: str, ahead: timedelta) -> None:
    """The clock of the sender may be ahead of the partition clock, or behind it."""
    clock = WrongClock()
    async with topic_at(url, {"s": None}, clock=clock) as subject, subject.sender() as sender:
        for clock.ahead in (ahead, -timedelta(minutes=9)):
            for text, seconds in (("early", -60), ("late", 240)):
                due = datetime.fromtimestamp(clock.told() / 1000 + seconds, UTC)
                await sender.schedule_messages([ServiceBusMessage(text)], due)
        clock.ahead = timedelta(0)
        assert await subject.take_bodies("s") == ["early", "early"]
        assert await subject.scheduled() == 2


@pytest.mark.slow
@in_memory
async def test_date_arithmetic_in_rules_is_correct_across_a_time_change(url: str) -> None:
    """In the repeated hour at the end of summer time, Python never considers times of different zones equal."""
    same = datetime(2025, 10, 26, 0, 30, tzinfo=UTC)
    there = same.astimezone(ZoneInfo("Europe/Berlin"))
    rules = [
        RuleProperties(
            "r",
            filter=SqlRuleFilter(
                "w = @same AND w - @before = @hour",
                {"@same": same, "@before": same - timedelta(hours=1), "@hour": timedelta(hours=1)},
            ),
            action=SqlRuleAction("SET w = w + @hours", {"@hours": timedelta(hours=12)}),
        )
    ]
    async with topic_at(url, {"s": rules}) as subject:
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x", application_properties={"w": there}))
        (message,) = await subject.take_all("s")
        assert message.application_properties is not None
        assert message.application_properties["w"] == same + timedelta(hours=12)


@in_memory
async def test_a_bytearray_property_equals_a_bytes_parameter(url: str) -> None:
    rules = [RuleProperties("r", filter=SqlRuleFilter("b = @b", {"@b": b"xy"}))]
    async with topic_at(url, {"s": rules}) as subject:
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x", application_properties={"b": bytearray(b"xy")}))
        assert await subject.take_bodies("s") == ["x"]


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize("dead_letters", [True, False], ids=["dead-lettered", "dropped"])
@pytest.mark.parametrize(
    ("names", "size", "text"),
    [("abc", 30_000, "the properties would have"), ("a", 33_000, "the property 'a' would have")],
    ids=["all together", "one of them"],
)
async def test_an_action_that_makes_properties_too_large_fails_its_rule(
    url: str, dead_letters: bool, names: str, size: int, text: str
) -> None:
    enlarging = acting("; ".join(f"SET {name} = @large" for name in names), {"@large": "x" * size})
    async with topic_at(url, {"other": None}) as subject:
        await subject.create({"s": enlarging}, dead_lettering_on_filter_evaluation_exceptions=dead_letters)
        async with subject.sender() as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        assert await subject.take_bodies("other") == ["x"]
        assert await subject.take_bodies("s") == []
        dead = [message.dead_letter_error_description or "" for message in await subject.take_all("s", dead=True)]
        assert len(dead) == dead_letters
        assert all(text in each for each in dead)


@pytest.mark.slow
@in_memory
async def test_actions_may_add_more_to_a_list_of_messages_than_one_call_takes(url: str) -> None:
    """Several calls make the copies."""
    subscriptions = {f"s{number}": acting("SET x = @p", {"@p": "p" * 30_000}) for number in range(3)}
    bodies = [str(number) for number in range(50)]
    async with topic_at(url, subscriptions) as subject, subject.sender() as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])
        assert [await subject.take_bodies(name) for name in subscriptions] == [sorted(bodies)] * 3
