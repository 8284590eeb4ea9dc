"""Messages of several subscriptions are stored once, and each subscription is a queue of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import (
    Copy,
    Lock,
    MalformedCallError,
    Outgoing,
    Partition,
    Request,
    RoleLostError,
    Sent,
    SettingsStaleError,
)
from sbredis.exceptions import MessageSizeExceededError, ServiceBusError, ServiceBusQuotaExceededError
from tests.engine.taking import first_token
from tests.engine.topics import START, Topic


async def test_publishing_to_a_subscription_that_is_gone_is_refused_and_changes_nothing(topic: Topic) -> None:
    await topic.publish((b"before", (0, 1)))
    while await topic.tell(topic.two.destroy()):
        pass
    before = await topic.everything()
    with pytest.raises(SettingsStaleError, match="Subscription 2"):
        await topic.publish((b"m", (0, 1)))
    assert await topic.everything() == before


async def test_destroying_a_subscription_frees_its_messages_in_steps(topic: Topic) -> None:
    for number in range(7):
        await topic.publish((b"%d" % number, (0, 1)))
    token = first_token()
    await topic.take(topic.two, token, 2)
    await topic.tell(topic.two.dead_letter(topic.call_id(), [Lock(token, "1")]))
    steps = 0
    while await topic.tell(topic.two.destroy(share=2)):
        steps += 1
        with pytest.raises(ServiceBusError, match="does not exist"):  # the subscription is gone from the first step on
            await topic.receive(topic.two)
    assert steps == 3
    assert await topic.stored() == 7
    token = first_token()
    names = [one.name for one in (await topic.receive(topic.one, token)).messages]
    await topic.tell(topic.one.complete(topic.call_id(), [Lock(token, name) for name in names]))
    assert await topic.stored() == 0
    assert await topic.bytes() == 0


async def test_only_a_scheduled_message_may_be_without_a_route(topic: Topic) -> None:
    with pytest.raises(ValueError, match="only a scheduled message"):
        topic.topic.publish(topic.call_id(), [Outgoing(b"m")], [None], topic.subscriptions)


@pytest.mark.slow
async def test_the_number_of_copies_of_several_messages_in_one_call_is_limited(topic: Topic) -> None:
    """A message that is alone in its call may have more copies. The script and the client both check the limit."""
    many = [Copy(0, b"x")] * 10_001
    messages = [Outgoing(b"m")] * 2
    call_id = topic.call_id()

    def publish(*routes: list[Copy]) -> Request[Sent]:
        return topic.topic.publish(call_id, messages[: len(routes)], routes, topic.subscriptions)

    before = await topic.everything()
    with pytest.raises(MessageSizeExceededError, match="would have 20002"):
        publish(many, many)
    whole, one, more = publish(many[:-1], many[:-1]), publish(many[:-1]), publish(many)
    longer = dict(zip(one.arguments, more.arguments, strict=True))
    with pytest.raises(MalformedCallError, match="routes"):
        await topic.tell(whole._replace(arguments=tuple(longer.get(each, each) for each in whole.arguments)))
    assert await topic.everything() == before
    await topic.tell(whole)
    call_id = topic.call_id()
    await topic.tell(publish([*many, *many]))


@pytest.mark.parametrize("routes", [[], [(4,)], [(-1,)], [(1, 0)], [(0,), (1,)]])
async def test_an_impossible_route_is_refused_before_sending(topic: Topic, routes: list[tuple[int, ...]]) -> None:
    copies = [[Copy(place) for place in route] for route in routes]
    with pytest.raises(ValueError, match=r"route|copies"):
        topic.topic.publish(topic.call_id(), [Outgoing(b"m")], copies, topic.subscriptions)


# -- scheduled -------------------------------------------------------------------------------------------------------


async def test_a_client_that_lost_the_role_publishes_nothing(topic: Topic) -> None:
    """Each later holder of the role has a higher fence. A sender's call has no fence, so it is never refused for an
    older fence.
    """
    await topic.hand_out([Outgoing(b"one", due=START + 10)], [[]])
    topic.now += 10
    await topic.hand_out([Outgoing(b"m")], [[Copy(0)]], fence=5)
    before = await topic.everything()
    with pytest.raises(RoleLostError):
        await topic.hand_out([Outgoing(b"", origin="1")], [[Copy(0)]], fence=4)
    assert await topic.everything() == before
    await topic.hand_out([Outgoing(b"m")], [[Copy(0)]])
    assert (await topic.hand_out([Outgoing(b"", origin="1")], [[Copy(0)]], fence=5)).dropped == 0
    await topic.hand_out([Outgoing(b"m")], [[Copy(0)]], fence=6)
    with pytest.raises(RoleLostError):
        await topic.hand_out([Outgoing(b"m")], [[Copy(0)]], fence=5)


# -- seldom found -----------------------------------------------------------------------------------------------------
# The machine finds the bugs that these tests guard against only after thousands of steps.


async def test_properties_changed_by_rules_count_toward_the_quota(topic: Topic) -> None:
    bounded = replace(topic.topic.settings, quota=100)
    topic.topic = Partition("ns", "abc", "t", "topic", 2, bounded)
    await topic.tell(topic.topic.configure())
    before = await topic.everything()
    routes = [[Copy(0, b"c" * 60), Copy(1, b"c" * 60)]]
    with pytest.raises(ServiceBusQuotaExceededError):
        await topic.hand_out([Outgoing(b"m")], routes)
    assert await topic.everything() == before
    await topic.hand_out([Outgoing(b"m")], [[Copy(0, b"c" * 60)]])
