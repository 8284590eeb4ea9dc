"""A message with very many copies is spread: several calls make its copies, in the order of the incarnations."""

from __future__ import annotations

import pytest

from sbredis.engine import Copy, Outgoing, Sent
from sbredis.exceptions import ScriptRefusedError, ServiceBusError
from tests.engine.topics import Topic

WAITS = Outgoing(b"m", due=1)


async def spread(topic: Topic, name: str, places: tuple[int, ...], bounds: tuple[str, str]) -> Sent:
    """Make the copies of a message that waits for these subscriptions, between these bounds."""
    messages, routes = [Outgoing(b"", origin=name)], [[Copy(place) for place in places]]
    return await topic.tell(
        topic.topic.publish(topic.call_id(), messages, routes, topic.subscriptions, fence=1, bounds=bounds)
    )


async def waiting(topic: Topic) -> list[tuple[str, str]]:
    """Return the names of the messages that wait, and how far each has come."""
    ripe = await topic.tell(topic.topic.ripe(10, call_id=topic.at()))
    return [(one.message.name, one.reached) for one in ripe]


async def test_each_call_makes_the_copies_of_some_subscriptions(topic: Topic) -> None:
    assert (await topic.hand_out([WAITS], [None])).scheduled == (1,)
    assert (await spread(topic, "1", (0,), ("", "b"))).first == 2
    assert await waiting(topic) == [("2", "b")]
    assert [await topic.payloads(each) for each in (topic.one, topic.two)] == [[b"m"], []]
    await spread(topic, "2", (1,), ("b", ""))
    assert await waiting(topic) == []
    (copy,) = await topic.taken(topic.two)
    assert (copy.name, await topic.refs()) == ("2", {})


async def test_a_copy_comes_after_later_messages_that_were_there_before_it(topic: Topic) -> None:
    await topic.hand_out([WAITS, Outgoing(b"brief", 1000, due=1)], [None, None])
    await spread(topic, "1", (0,), ("", "b"))
    await topic.hand_out([Outgoing(b"", origin="2")], [[Copy(1)]])
    await spread(topic, "3", (1,), ("b", ""))
    there = await topic.tell(topic.two.peek(0, 10, call_id=topic.at()))
    assert [one.name for one in there.messages] == ["4", "5"]
    topic.now += 1000
    assert await topic.payloads(topic.two) == [b"m"], "the one that was there before it expires in time"
    assert [one.name for one in await topic.dead(topic.two)] == ["d1"]


async def test_no_later_message_overtakes_one_whose_scheduled_time_has_passed(topic: Topic) -> None:
    await topic.hand_out([Outgoing(b"for a past time", due=topic.now - 5000)], [None])
    await topic.publish((b"later", (0,)))
    assert await waiting(topic) == [("1", ""), ("2", "")]
    assert await topic.payloads(topic.one) == []


@pytest.mark.parametrize("message", [Outgoing(b"m"), WAITS])
async def test_only_a_message_that_waits_is_spread(topic: Topic, message: Outgoing) -> None:
    with pytest.raises(ValueError, match="only messages that wait can be spread"):
        topic.topic.publish(topic.call_id(), [message], [[]], topic.subscriptions, bounds=("", "b"))


@pytest.mark.parametrize("bounds", ["b", "b:c:d", "b:?"])
async def test_malformed_bounds_are_refused_and_change_nothing(topic: Topic, bounds: str) -> None:
    await topic.hand_out([WAITS], [None])
    before = await topic.everything()
    request = topic.topic.publish(
        topic.call_id(), [Outgoing(b"", origin="1")], [[Copy(0)]], topic.subscriptions, bounds=("", "b")
    )
    arguments = tuple(bounds if each == ":b" else each for each in request.arguments)
    with pytest.raises((ServiceBusError, ScriptRefusedError)):
        await topic.tell(request._replace(arguments=arguments))
    assert await topic.everything() == before
