"""Sending to topics: which subscriptions get which copies, even while rules and subscriptions change."""

# Made by tools/make_sync from tests/aio/test_topics.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sbredis.exceptions import (
    MessagingEntityDisabledError,
)
from sbredis.management import (
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TopicOptions,
    TrueRuleFilter,
)
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from tests.sync.queues import HandClock, bodies, both, in_memory, topic_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def rule(name: str, filter_: Any, action: str | None = None) -> RuleProperties:
    return RuleProperties(name, filter=filter_, action=None if action is None else SqlRuleAction(action))


# -- copies for subscriptions ------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_each_kind_of_rule_selects_messages(url: str, partitioned: bool) -> None:
    rules = {
        "all": None,
        "none": [],
        "false": [rule("f", FalseRuleFilter())],
        "red": [rule("r", SqlRuleFilter("color = 'red' AND sys.Label LIKE 'a%'"))],
        "or": [rule("r", SqlRuleFilter("color = 'red'")), rule("b", SqlRuleFilter("n > @least", {"@least": 5}))],
        "label": [rule("c", CorrelationRuleFilter(label="abc", properties={"color": "red"}))],
    }
    with topic_at(url, rules, partitioned=partitioned) as subject, subject.sender() as sender:
        for body, label, color, n in (("1", "abc", "red", 9), ("2", "b", "red", 1), ("3", "abc", "blue", 6)):
            given: dict[Any, Any] = {"color": color, "n": n}
            sender.send_messages(ServiceBusMessage(body, subject=label, application_properties=given))
        sender.send_messages(ServiceBusMessage("4"))
        assert {name: subject.take_bodies(name) for name in rules} == {
            "all": ["1", "2", "3", "4"],
            "none": [],
            "false": [],
            "red": ["1"],
            "or": ["1", "2", "3"],
            "label": ["1"],
        }


@pytest.mark.slow
@both
def test_each_rule_with_an_action_makes_its_own_copy(url: str, partitioned: bool) -> None:
    rules = {
        "acts": [
            rule("plain", SqlRuleFilter("n = 1")),
            rule("same", TrueRuleFilter()),
            rule("adds", SqlRuleFilter("n = 1"), "SET n = n + 1; SET sys.Label = 'changed'; REMOVE gone"),
            rule("marks", TrueRuleFilter(), "SET mark = 'x'"),
        ],
        "other": None,
    }
    with topic_at(url, rules, partitioned=partitioned) as subject, subject.sender() as sender:
        message = ServiceBusMessage("b", subject="was", application_properties={"n": 1, "gone": True}, session_id="s")
        sender.send_messages(message)
        sender.send_messages(ServiceBusMessage("c", application_properties={"n": 2}, session_id="s"))
        found = subject.take_all("acts")
        assert len({each.sequence_number for each in found}) == 5
        assert sorted(bodies(found)) == ["b", "b", "b", "c", "c"]
        by_rule = {(each.application_properties or {}).get("RuleName"): each for each in found if str(each) == "b"}
        assert by_rule["adds"].subject == "changed"
        assert by_rule["adds"].application_properties == {"n": 2, "RuleName": "adds"}
        assert by_rule["marks"].application_properties == {"n": 1, "gone": True, "mark": "x", "RuleName": "marks"}
        assert by_rule[None].application_properties == {"n": 1, "gone": True}
        (first, second) = subject.take_all("other")
        assert (first.application_properties, second.application_properties) == ({"n": 1, "gone": True}, {"n": 2})
        assert message.application_properties == {"n": 1, "gone": True}


@pytest.mark.slow
@both
def test_a_message_on_which_a_filter_fails_is_dead_lettered_or_dropped(url: str, partitioned: bool) -> None:
    bad = [rule("bad", SqlRuleFilter("1 / zero = 1"))]
    with topic_at(url, {"kept": bad, "fine": None}, partitioned=partitioned) as subject:
        subject.create({"dropped": bad}, dead_lettering_on_filter_evaluation_exceptions=False)
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x", application_properties={"zero": 0}))
        (dead,) = subject.take_all("kept", dead=True)
        assert str(dead) == "x"
        assert dead.dead_letter_reason
        assert [subject.take_bodies(name) for name in ("kept", "dropped", "fine")] == [[], [], ["x"]]
        assert subject.take_bodies("dropped", dead=True) == []


@pytest.mark.slow
@both
def test_a_session_subscription_dead_letters_messages_without_a_session(url: str, partitioned: bool) -> None:
    """Other subscriptions get the message without a session as usual."""
    with topic_at(url, {"plain": None}, partitioned=partitioned) as subject, subject.sender() as sender:
        subject.create({"sessions": None}, requires_session=True)
        for text in "123":
            sender.send_messages(ServiceBusMessage(text, session_id="a"))
        sender.send_messages(ServiceBusMessage("without"))
        with subject.receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            assert receiver.session is not None
            assert receiver.session.session_id == "a"
            assert bodies(receiver.receive_messages(5, 60)) == list("123")
            receiver.session.set_state("x")
        found = [name for name in subject.client.list_subscription_sessions("t", "sessions")]
        assert found == ["a"]
        assert subject.client.accept_next_session("t", "sessions") is not None
        (dead,) = subject.take_all("sessions", dead=True)
        assert (str(dead), dead.dead_letter_reason) == ("without", "Session ID is null.")
        assert subject.take_bodies("plain") == ["1", "2", "3", "without"]


@pytest.mark.slow
@both
def test_a_batch_is_judged_with_the_values_that_its_messages_had_when_added(url: str, partitioned: bool) -> None:
    rules = {"red": [rule("r", SqlRuleFilter("color = 'red'"))], "all": None}
    with topic_at(url, rules, partitioned=partitioned) as subject, subject.sender() as sender:
        message = ServiceBusMessage("x", application_properties={"color": "red"}, session_id="a")
        batch = sender.create_message_batch()
        batch.add_message(message)
        message.application_properties = {"color": "blue"}
        message.session_id = "b"
        batch.add_message(message.__class__("z", session_id="a"))
        sender.send_messages(batch)
        sender.send_messages(batch)
        assert subject.take_bodies("red") == ["x", "x"]
        assert subject.take_bodies("all") == ["x", "x", "z", "z"]


# -- entities of other kinds -------------------------------------------------------------------------------------------


@both
def test_create_if_missing_creates_a_topic_and_a_subscription(url: str, partitioned: bool) -> None:
    with topic_at(url, partitioned=partitioned) as subject:
        made: TopicOptions = {"enable_partitioning": partitioned}
        with (
            subject.client.get_topic_sender("new", create_if_missing=made) as sender,
            subject.client.get_subscription_receiver("new", "one", create_if_missing=True) as receiver,
        ):
            sender.send_messages(ServiceBusMessage("x"))
            assert bodies(receiver.receive_messages(1, 60)) == ["x"]


@pytest.mark.slow
@both
def test_the_status_of_a_topic_and_a_subscription_is_respected(url: str, partitioned: bool) -> None:
    subscriptions = {"one": None, "two": None}
    with topic_at(url, subscriptions, partitioned=partitioned) as subject, subject.sender() as sender:
        sender.send_messages(ServiceBusMessage("1"))
        subject.admin.update_topic({"name": "t", "status": EntityStatus.SEND_DISABLED})
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("refused"))
        subject.admin.update_topic({"name": "t", "status": "Active"})
        sender.send_messages(ServiceBusMessage("2"))
        subject.admin.update_subscription("t", {"name": "one", "status": "ReceiveDisabled"})
        sender.send_messages(ServiceBusMessage("3"))
        with pytest.raises(MessagingEntityDisabledError):
            subject.receiver("one").receive_messages(1, 60)
        subject.admin.update_subscription("t", {"name": "one", "status": "Active"})
        assert subject.take_bodies("one") == ["1", "2", "3"]
        assert subject.take_bodies("two") == ["1", "2", "3"]


# -- while rules and subscriptions change ------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_an_added_or_removed_rule_applies_to_all_later_messages(url: str, partitioned: bool) -> None:
    with topic_at(url, {"one": []}, partitioned=partitioned) as subject, subject.sender() as sender:
        with subject.other_client() as other, other.get_topic_sender("t") as stranger:
            for turn in range(3):
                for each in (sender, stranger):
                    each.send_messages(ServiceBusMessage("nobody's"))
                subject.admin.create_rule("t", "one", "r", filter=SqlRuleFilter("1 = 1"))
                for each in (sender, stranger):
                    each.send_messages(ServiceBusMessage(f"{turn}"))
                subject.admin.delete_rule("t", "one", "r")
        assert subject.take_bodies("one") == ["0", "0", "1", "1", "2", "2"]


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
def test_the_shorter_time_to_live_of_topic_and_subscription_applies(url: str) -> None:
    clock = HandClock()
    with topic_at(url, {"one": None}, clock=clock, default_message_time_to_live=timedelta(seconds=60)) as subject:
        subject.create({"short": None}, default_message_time_to_live=timedelta(seconds=10))
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x"))
        for name, seconds in (("one", 60), ("short", 10)):
            with subject.receiver(name) as receiver:
                (seen,) = receiver.peek_messages()
                (message,) = receiver.receive_messages(max_wait_time=5)
                for each in (seen, message):
                    assert each.expires_at_utc is not None
                    assert each.expires_at_utc - each.enqueued_time_utc == timedelta(seconds=seconds)
                receiver.abandon_message(message)
        clock.move(11)
        assert [subject.take_bodies(name) for name in ("one", "short")] == [["x"], []]
        with subject.sender() as sender:
            sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(hours=1)))
        clock.move(61)
        assert subject.take_bodies("one") == []
