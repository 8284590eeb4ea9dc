"""Actions of rules, and how senders and receivers see their changes to messages."""

# Made by tools/make_sync from tests/aio/test_actions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sbredis.exceptions import MessageSizeExceededError
from sbredis.management import RuleProperties, SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from sbredis.model import ServiceBusMessage
from tests.sync.queues import HandClock, in_memory, topic_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


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
def test_an_action_changes_the_time_to_live_of_a_copy(url: str) -> None:
    """The time to live of the copy may be longer than that of the message."""
    clock = HandClock()
    subscriptions = {
        "same": acting("SET a = 1"),
        "longer": acting("SET sys.TimeToLive = '00:01:00'"),
        "shorter": acting("SET sys.TimeToLive = '00:00:05'"),
        "for ever".replace(" ", "-"): acting("REMOVE sys.TimeToLive"),
    }
    with topic_at(url, subscriptions, clock=clock) as subject:
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(seconds=10)))
        lives: dict[str, timedelta | None] = {}
        for name in subscriptions:
            with subject.receiver(name) as receiver:
                (seen,) = receiver.peek_messages()
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
        assert [subject.take_bodies(name) for name in subscriptions] == [[], ["x"], [], ["x"]]


@in_memory
def test_scheduling_at_a_past_time_returns_the_numbers_of_the_first_copies(
    url: str,
) -> None:
    rules = [*acting("SET a = 1"), RuleProperties("q", filter=TrueRuleFilter(), action=SqlRuleAction("SET a = 2"))]
    with topic_at(url, {"s": rules}) as subject, subject.sender() as sender:
        messages = [ServiceBusMessage(str(number)) for number in range(3)]
        numbers = sender.schedule_messages(messages, datetime.now(UTC) - timedelta(minutes=1))
        first: dict[str, int] = {}
        for message in subject.take_all("s"):
            assert message.sequence_number is not None
            first[str(message)] = min(message.sequence_number, first.get(str(message), message.sequence_number))
        assert numbers == [first[str(number)] for number in range(3)]


@in_memory
@pytest.mark.parametrize("ahead", [timedelta(minutes=5), timedelta(hours=1)], ids=str)
def test_the_partition_clock_decides_whether_a_message_is_due(url: str, ahead: timedelta) -> None:
    """The clock of the sender may be ahead of the partition clock, or behind it."""
    clock = WrongClock()
    with topic_at(url, {"s": None}, clock=clock) as subject, subject.sender() as sender:
        for clock.ahead in (ahead, -timedelta(minutes=9)):
            for text, seconds in (("early", -60), ("late", 240)):
                due = datetime.fromtimestamp(clock.told() / 1000 + seconds, UTC)
                sender.schedule_messages([ServiceBusMessage(text)], due)
        clock.ahead = timedelta(0)
        assert subject.take_bodies("s") == ["early", "early"]
        assert subject.scheduled() == 2


@pytest.mark.slow
@in_memory
def test_date_arithmetic_in_rules_is_correct_across_a_time_change(url: str) -> None:
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
    with topic_at(url, {"s": rules}) as subject:
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x", application_properties={"w": there}))
        (message,) = subject.take_all("s")
        assert message.application_properties is not None
        assert message.application_properties["w"] == same + timedelta(hours=12)


@in_memory
def test_a_bytearray_property_equals_a_bytes_parameter(url: str) -> None:
    rules = [RuleProperties("r", filter=SqlRuleFilter("b = @b", {"@b": b"xy"}))]
    with topic_at(url, {"s": rules}) as subject:
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x", application_properties={"b": bytearray(b"xy")}))
        assert subject.take_bodies("s") == ["x"]


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize("dead_letters", [True, False], ids=["dead-lettered", "dropped"])
@pytest.mark.parametrize(
    ("names", "size", "text"),
    [("abc", 30_000, "the properties would have"), ("a", 33_000, "the property 'a' would have")],
    ids=["all together", "one of them"],
)
def test_an_action_that_makes_properties_too_large_fails_its_rule(
    url: str, dead_letters: bool, names: str, size: int, text: str
) -> None:
    enlarging = acting("; ".join(f"SET {name} = @large" for name in names), {"@large": "x" * size})
    with topic_at(url, {"other": None}) as subject:
        subject.create({"s": enlarging}, dead_lettering_on_filter_evaluation_exceptions=dead_letters)
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert subject.take_bodies("other") == ["x"]
        assert subject.take_bodies("s") == []
        dead = [message.dead_letter_error_description or "" for message in subject.take_all("s", dead=True)]
        assert len(dead) == dead_letters
        assert all(text in each for each in dead)


@pytest.mark.slow
@in_memory
def test_actions_may_add_at_most_4_mb_to_a_list_of_messages(url: str) -> None:
    subscriptions = {f"s{number}": acting("SET x = @p", {"@p": "p" * 30_000}) for number in range(3)}
    with topic_at(url, subscriptions) as subject, subject.sender() as sender:
        with pytest.raises(MessageSizeExceededError, match="would add more to the 50 messages than the 4 MB"):
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(50)])
        assert subject.take_bodies("s0") == []
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(40)])
        sender.send_messages(ServiceBusMessage("one"))
        assert len(subject.take_bodies("s2")) == 41


@in_memory
def test_each_copy_of_a_message_keeps_its_number_as_a_dead_letter(url: str) -> None:
    """Two rules with actions make two copies in a subscription, which share a stored message."""
    rules = [RuleProperties(name, action=SqlRuleAction(f"SET rule = '{name}'")) for name in "ab"]
    with topic_at(url, {"s": rules}) as subject:
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with subject.receiver("s") as receiver:
            copies = receiver.receive_messages(2, 60)
            numbers = {str((each.application_properties or {})["rule"]): each.sequence_number for each in copies}
            assert len(set(numbers.values())) == 2
            for each in copies:
                receiver.dead_letter_message(each)
        with subject.receiver("s", sub_queue="deadletter") as letters:
            found = letters.receive_messages(2, 60)
            assert {
                str((each.application_properties or {})["rule"]): each.dead_letter_source_sequence_number
                for each in found
            } == numbers
