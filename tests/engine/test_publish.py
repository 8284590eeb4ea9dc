"""Messages of several subscriptions are stored once, and each subscription is a queue of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import (
    CallId,
    Content,
    Copy,
    Lock,
    MalformedCallError,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    RoleLostError,
    Sent,
    SessionLock,
    SettingsStaleError,
    encode,
    new_token,
    read_record,
    waiting_channel,
)
from sbredis.engine._scripts import load, operations
from sbredis.exceptions import MessageSizeExceededError, ServiceBusError, ServiceBusQuotaExceededError
from sbredis.transport import open_transport
from tests.engine.topics import SETTINGS, START, Topic
from tests.transport.ears import Ear
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_each_subscription_receives_its_matching_messages(topic: Topic) -> None:
    await topic.publish((b"both", (0, 1)), (b"first", (0,)), (b"second", (1,)))
    assert await topic.payloads(topic.one) == [b"both", b"first"]
    assert await topic.payloads(topic.two) == [b"both", b"second"]
    assert await topic.payloads(topic.brief) == []


async def test_a_record_of_several_subscriptions_is_stored_once_and_deleted_after_the_last(topic: Topic) -> None:
    await topic.publish((b"x" * 100, (0, 1, 2)))
    weight = await topic.bytes()
    assert await topic.stored() == 1
    assert 100 <= weight < 200
    for carrier in (topic.two, topic.brief):
        token = new_token()
        (message,) = (await topic.receive(carrier, token)).messages
        await topic.tell(carrier.complete(topic.call_id(), [Lock(token, message.name)]))
        assert await topic.stored() == 1
        assert await topic.bytes() == weight
    token = new_token()
    (message,) = (await topic.receive(topic.one, token)).messages
    await topic.tell(topic.one.complete(topic.call_id(), [Lock(token, message.name)]))
    assert await topic.stored() == 0
    assert await topic.bytes() == 0
    assert await topic.transport.command("EXISTS", topic.topic.keys[10], key=topic.topic.keys[10]) == 0


async def test_a_message_for_no_subscription_is_not_stored(topic: Topic) -> None:
    assert await topic.publish((b"nobody", ())) == 1
    assert await topic.publish((b"somebody", (0,))) == 2
    assert await topic.stored() == 1


async def test_abandoning_or_dead_lettering_affects_only_one_subscription(topic: Topic) -> None:
    await topic.publish((b"m", (0, 1)))
    for _ in range(2):
        token = new_token()
        (message,) = (await topic.receive(topic.one, token)).messages
        await topic.tell(topic.one.abandon(topic.call_id(), [Lock(token, message.name, b"why")]))
    assert (await topic.receive(topic.one)).messages == ()
    token = new_token()
    (dead,) = (await topic.receive(topic.one, token, side="d")).messages
    assert (dead.name, dead.reason, dead.changes, read_record(dead.record).payload) == ("d1", "M", b"why", b"m")
    (other,) = (await topic.receive(topic.two)).messages
    assert (other.failures, other.changes) == (0, b"")
    await topic.tell(topic.one.complete(topic.call_id(), [Lock(token, "d1")]))
    assert await topic.stored() == 1


async def test_a_subscription_with_a_shorter_time_to_live_expires_only_its_own_copy(topic: Topic) -> None:
    await topic.publish((b"m", (1, 2)))
    topic.now += 1000
    assert await topic.payloads(topic.brief) == []
    (dead,) = (await topic.receive(topic.brief, side="d")).messages
    assert dead.reason == "T"
    assert await topic.payloads(topic.two) == [b"m"]


async def test_a_duplicate_is_published_to_no_subscription(topic: Topic) -> None:
    settings = replace(SETTINGS, duplicate_window=60_000, topic=True)
    topic.topic = Partition("ns", "abc", "t2", "topic2", 1, settings)
    shared = replace(SETTINGS, shared=True)
    topic.one, topic.two, topic.brief = (
        Partition("ns", "abc", name, name, 1, shared, store="t2") for name in ("s7", "s8", "s9")
    )
    for partition in (topic.topic, *topic.subscriptions):
        await topic.tell(partition.configure(create=True))
    await topic.publish((b"first", (0, 1)), message_id=b"id")
    await topic.publish((b"again", (0, 1)), message_id=b"id")
    assert await topic.payloads(topic.one) == [b"first"]
    assert await topic.payloads(topic.two) == [b"first"]


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
    token = new_token()
    await topic.tell(topic.two.receive(topic.call_id(), token, 2))
    await topic.tell(topic.two.dead_letter(topic.call_id(), [Lock(token, "1")]))
    steps = 0
    while await topic.tell(topic.two.destroy(share=2)):
        steps += 1
        with pytest.raises(ServiceBusError, match="does not exist"):  # the subscription is gone from the first step on
            await topic.receive(topic.two)
    assert steps == 3
    assert await topic.stored() == 7
    token = new_token()
    names = [one.name for one in (await topic.receive(topic.one, token)).messages]
    await topic.tell(topic.one.complete(topic.call_id(), [Lock(token, name) for name in names]))
    assert await topic.stored() == 0
    assert await topic.bytes() == 0


async def test_a_repeated_publish_gets_the_first_answer(topic: Topic) -> None:
    request = topic.topic.publish(topic.call_id(), [Outgoing(b"m")], [(Copy(0), Copy(1))], topic.subscriptions)
    first = await topic.tell(request)
    assert await topic.tell(request) == first
    assert await topic.payloads(topic.one) == [b"m"]


async def test_a_copy_has_the_time_to_live_that_its_rule_set(topic: Topic) -> None:
    """The rule may set a shorter or longer time than the message's, up to the maximum of its topic and subscription."""
    lives = [
        Copy(0, b"short", time_to_live=10),
        Copy(1, b"long", time_to_live=5000),
        Copy(2, b"long", time_to_live=5000),
    ]
    await topic.hand_out([Outgoing(b"m", time_to_live=100)], [lives])
    topic.now += 10
    assert await topic.payloads(topic.one) == []
    assert [one.reason for one in (await topic.receive(topic.one, side="d")).messages] == ["T"]
    topic.now += 989
    assert [one.changes for one in (await topic.receive(topic.brief)).messages] == [b"long"]
    topic.now += 4000
    assert [one.changes for one in (await topic.receive(topic.two)).messages] == [b"long"]
    await topic.hand_out([Outgoing(b"m", time_to_live=100)], [lives])
    topic.now += 1000
    assert await topic.payloads(topic.brief) == []


async def test_a_due_message_is_published_on_a_full_topic(topic: Topic) -> None:
    """Publishing needs no further room, because the message is already stored and counted."""
    await topic.hand_out([Outgoing(b"m" * 100, due=topic.now + 10)], [[]])
    full = replace(topic.topic.settings, quota=1)
    topic.topic = Partition("ns", "abc", "t", "topic", 2, full)
    await topic.tell(topic.topic.configure())
    topic.now += 10
    await topic.hand_out([Outgoing(b"", origin="1")], [[Copy(0)]])
    assert await topic.payloads(topic.one) == [b"m" * 100]
    with pytest.raises(ServiceBusQuotaExceededError):
        await topic.hand_out([Outgoing(b"m")], [[Copy(0)]])


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


async def test_a_judged_message_is_published_immediately_if_its_time_has_passed(topic: Topic) -> None:
    """The time is that of the partition's clock. The caller's clock may differ."""
    for due, route, found, waiting in (
        (START - 1, [Copy(0)], [b"m"], 0),
        (START, [Copy(0)], [b"m"], 0),
        (START, [], [], 0),
        (START + 1, [Copy(0)], [], 1),
        (START - 1, None, [], 2),
    ):
        await topic.hand_out([Outgoing(b"m", due=due)], [route])
        assert [read_record(one.record).payload for one in await topic.taken(topic.one)] == found
        assert await topic.stored() == waiting
    shown = await topic.tell(topic.topic.ripe(10, call_id=topic.at()))
    assert len(shown) == 1


async def test_only_a_scheduled_message_may_be_without_a_route(topic: Topic) -> None:
    with pytest.raises(ValueError, match="only a scheduled message"):
        topic.topic.publish(topic.call_id(), [Outgoing(b"m")], [None], topic.subscriptions)


@pytest.mark.slow
async def test_the_number_of_copies_of_several_messages_in_one_call_is_limited(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is alone in its call may have more copies. The script and the client both check the limit."""
    many = [Copy(0, b"x")] * 10_001
    messages = [Outgoing(b"m")] * 2
    before = await topic.everything()
    with pytest.raises(MessageSizeExceededError, match="would have 20002"):
        topic.topic.publish(topic.call_id(), messages, [many, many], topic.subscriptions)
    monkeypatch.setattr("sbredis.engine._packing.MAXIMUM_CALL_COPIES", 1_000_000)
    with pytest.raises(MalformedCallError, match="routes"):
        await topic.tell(topic.topic.publish(topic.call_id(), messages, [many, many], topic.subscriptions))
    assert await topic.everything() == before
    await topic.tell(topic.topic.publish(topic.call_id(), messages, [many[:-1], many[:-1]], topic.subscriptions))
    await topic.tell(topic.topic.publish(topic.call_id(), messages[:1], [[*many, *many]], topic.subscriptions))


@pytest.mark.parametrize("routes", [[], [(4,)], [(-1,)], [(1, 0)], [(0,), (1,)]])
async def test_an_impossible_route_is_refused_before_sending(topic: Topic, routes: list[tuple[int, ...]]) -> None:
    copies = [[Copy(place) for place in route] for route in routes]
    with pytest.raises(ValueError, match=r"route|copies"):
        topic.topic.publish(topic.call_id(), [Outgoing(b"m")], copies, topic.subscriptions)


# -- copies ----------------------------------------------------------------------------------------------------------


async def test_each_rule_with_an_action_makes_a_copy_of_its_own(topic: Topic) -> None:
    """Each copy has its own number and its own changes. The copies of later messages have higher numbers."""
    sent = await topic.hand_out(
        [Outgoing(b"one"), Outgoing(b"two"), Outgoing(b"three")],
        [
            [Copy(0, b"red"), Copy(0), Copy(0, b"blue"), Copy(1)],
            [Copy(0), Copy(1, b"green"), Copy(1)],
            [Copy(1)],
        ],
    )
    assert (sent.first, sent.dropped, sent.scheduled) == (1, 0, ())
    given = await topic.receive(topic.one)
    assert [(message.name, message.changes, read_record(message.record).payload) for message in given.messages] == [
        ("1", b"red", b"one"),
        ("2", b"", b"one"),
        ("3", b"blue", b"one"),
        ("4", b"", b"two"),
    ]
    given = await topic.receive(topic.two)
    assert [(message.name, message.changes, read_record(message.record).payload) for message in given.messages] == [
        ("1", b"", b"one"),
        ("4", b"green", b"two"),
        ("5", b"", b"two"),
        ("6", b"", b"three"),
    ]
    assert await topic.stored() == 3
    assert await topic.refs() == {b"1": b"4", b"4": b"3"}


async def test_a_record_with_several_copies_is_deleted_with_the_last_copy(topic: Topic) -> None:
    """Any copy may be the last. The changes of a copy are deleted with the copy."""
    await topic.hand_out(
        [Outgoing(b"x" * 100)],
        [
            [
                Copy(0, b"red"),
                Copy(0, b"blue"),
                Copy(1),
                Copy(2, b"r", dead=True),
            ]
        ],
    )
    assert await topic.bytes() == 115 + 3 + 4 + 1
    token = new_token()
    received = await topic.receive(topic.one, token)
    assert [message.name for message in received.messages] == ["1", "2"]
    await topic.complete(topic.one, token, "1")
    assert (await topic.bytes(), await topic.refs()) == (115 + 4 + 1, {b"1": b"3"})
    assert [message.changes for message in await topic.dead(topic.brief)] == [b"r"]
    assert len(await topic.taken(topic.two)) == 1
    assert (await topic.bytes(), await topic.refs()) == (115 + 4, {})
    await topic.complete(topic.one, token, "2")
    assert (await topic.bytes(), await topic.stored()) == (0, 0)


async def test_both_copies_of_a_message_may_be_settled_in_one_call(topic: Topic) -> None:
    await topic.hand_out([Outgoing(b"m")], [[Copy(0, b"red"), Copy(0, b"blue")]])
    token = new_token()
    await topic.receive(topic.one, token)
    await topic.complete(topic.one, token, "1", "2")
    assert (await topic.bytes(), await topic.stored(), await topic.refs()) == (0, 0, {})


async def test_copies_of_a_message_are_settled_independently(topic: Topic) -> None:
    """One copy is dead-lettered, one is abandoned, and one is deferred and expires. All keep their changes."""
    await topic.hand_out(
        [Outgoing(b"m", 5000)],
        [[Copy(0, b"red"), Copy(0, b"blue"), Copy(0, b"green")]],
    )
    token = new_token()
    await topic.receive(topic.one, token)
    red, blue, green = (Lock(token, str(number)) for number in (1, 2, 3))
    await topic.tell(topic.one.dead_letter(topic.call_id(), [red]))
    await topic.tell(topic.one.defer(topic.call_id(), [blue]))
    await topic.tell(topic.one.abandon(topic.call_id(), [green]))
    topic.now += 5000
    assert await topic.taken(topic.one) == []
    dead = await topic.dead(topic.one)
    assert [(message.changes, message.reason) for message in dead] == [(b"red", "A"), (b"green", "T")]
    asked = await topic.tell(topic.one.receive_deferred(topic.call_id(), new_token(), ["2"], mode="delete"))
    assert (asked.messages, asked.missing) == ((), ("2",))
    (deferred,) = await topic.dead(topic.one)
    assert (deferred.changes, deferred.reason, read_record(deferred.record).payload) == (b"blue", "T", b"m")
    assert (await topic.bytes(), await topic.stored()) == (0, 0)


async def test_a_copy_whose_rule_failed_is_a_dead_letter_of_its_subscription(topic: Topic) -> None:
    await topic.hand_out([Outgoing(b"m", level=3)], [[Copy(0, b"why", dead=True), Copy(1)]])
    assert await topic.taken(topic.one) == []
    (dead,) = await topic.dead(topic.one)
    assert (dead.name, dead.reason, dead.changes, read_record(dead.record).payload) == ("d1", "F", b"why", b"m")
    assert len(await topic.taken(topic.two)) == 1


async def test_a_session_subscription_dead_letters_messages_without_a_session(topic: Topic) -> None:
    payloads = [encode(Content(b"%d" % at, session_id="s" if at % 2 else None)) for at in range(4)]
    await topic.hand_out([Outgoing(payload) for payload in payloads], [[Copy(0), Copy(3)]] * 4)
    assert [message.reason for message in await topic.dead(topic.sessions)] == ["S", "S"]
    token = new_token()
    accepted = await topic.tell(topic.sessions.accept_session(topic.call_id(), token, None))
    assert accepted.session == "s"
    request = topic.sessions.receive(topic.call_id(), token, 10, session="s")
    names = [message.name for message in (await topic.tell(request)).messages]
    assert names == ["2", "4"]
    assert (await topic.tell(topic.one.receive(topic.call_id(), new_token(), 10))).messages != ()
    await topic.tell(topic.sessions.abandon(topic.call_id(), [Lock(token, "2")]))
    await topic.complete(topic.sessions, token, "4")
    request = topic.sessions.receive(topic.call_id(), token, 10, session="s")
    assert [(message.name, message.failures) for message in (await topic.tell(request)).messages] == [("2", 1)]


async def test_session_states_count_in_the_topics_bytes_and_are_deleted_with_the_subscription(topic: Topic) -> None:
    token = new_token()
    await topic.tell(topic.sessions.accept_session(topic.call_id(), token, "s"))
    lock = SessionLock("s", token)
    await topic.tell(topic.sessions.set_state(topic.call_id(), lock, b"x" * 100))
    await topic.tell(topic.sessions.set_state(topic.call_id(), lock, b"x" * 70))
    await topic.hand_out([Outgoing(encode(Content(b"m", session_id="s")))] * 5, [[Copy(3, b"changed")]] * 5)
    await topic.tell(topic.sessions.receive(topic.call_id(), token, 2, session="s"))
    assert await topic.bytes() > 70
    while await topic.tell(topic.sessions.destroy(share=2)):
        pass
    assert (await topic.bytes(), await topic.stored()) == (0, 0)
    found = await topic.everything()
    assert not [key for key in found if ":s4:" in key]


# -- scheduled -------------------------------------------------------------------------------------------------------


async def test_a_scheduled_message_waits_on_the_topic_and_uses_later_routes(topic: Topic) -> None:
    """The topic does not activate the message. A client finds the due message, judges it and publishes it by number."""
    later = [Outgoing(b"later", 5000, 2, due=START + 1000), Outgoing(b"latest", due=START + 2000)]
    sent = await topic.hand_out([Outgoing(b"now"), *later], [[Copy(0)], [], []])
    assert (sent.first, sent.scheduled) == (1, (2, 3))
    assert await shown_ripe(topic) == []
    topic.now += 999
    await topic.tell(topic.topic.due(topic.call_id()))
    assert await shown_ripe(topic) == []
    topic.now += 1
    assert (await topic.tell(topic.topic.due(topic.call_id()))).due == 1
    assert await shown_ripe(topic) == [("2", b"later")]
    assert [message.state for message in (await topic.tell(topic.topic.peek(0, 10, call_id=topic.at()))).messages] == [
        "s",
        "s",
    ]
    topic.now += 10
    sent = await topic.hand_out([Outgoing(b"", origin="2")], [[Copy(0), Copy(1, b"changed")]], fence=7)
    assert (sent.first, sent.dropped) == (4, 0)
    assert await shown_ripe(topic) == []
    given = await topic.taken(topic.one)
    assert [message.name for message in given] == ["1", "4"]
    record = read_record(given[1].record)
    assert (record.payload, record.level, record.enqueued, record.expires) == (b"later", 2, topic.now, topic.now + 5000)
    (other,) = await topic.taken(topic.two)
    assert (other.name, other.changes) == ("4", b"changed")
    counts = await topic.tell(topic.topic.count(topic.at()))
    assert (counts.scheduled, counts.due) == (1, 990)


async def shown_ripe(topic: Topic, wanted: int = 10, room: int = 1000) -> list[tuple[str, bytes]]:
    """Return the messages that are to be published by now."""
    shown = await topic.tell(topic.topic.ripe(wanted, room=room, call_id=topic.at()))
    return [(message.name, read_record(message.record).payload) for message in shown]


async def test_due_messages_are_listed_in_order_of_time_in_pages(topic: Topic) -> None:
    later = [Outgoing(b"%d" % at * 100, due=START + 100 - at) for at in range(5)]
    await topic.hand_out(later, [[]] * 5)
    topic.now += 1000
    assert [name for name, _ in await shown_ripe(topic)] == ["5", "4", "3", "2", "1"]
    assert [name for name, _ in await shown_ripe(topic, 2)] == ["5", "4"]
    assert [name for name, _ in await shown_ripe(topic, room=250)] == ["5", "4"]
    assert [name for name, _ in await shown_ripe(topic, room=1)] == ["5"]


async def test_a_scheduled_message_is_published_only_once(topic: Topic) -> None:
    """A message that is named twice, was published before or cancelled, or never existed counts as dropped."""
    await topic.hand_out([Outgoing(b"one", due=START + 10), Outgoing(b"two", due=START + 10)], [[], []])
    topic.now += 10
    both = [Outgoing(b"", origin="1"), Outgoing(b"", origin="1")]
    sent = await topic.hand_out(both, [[Copy(0)], [Copy(0)]])
    assert sent.dropped == 1
    assert (await topic.hand_out(both[:1], [[Copy(0)]])).dropped == 1
    assert (await topic.tell(topic.topic.cancel(topic.call_id(), ["2"]))).missing == ()
    assert (await topic.hand_out([Outgoing(b"", origin="2"), Outgoing(b"", origin="99")], [[Copy(0)]] * 2)).dropped == 2
    assert [read_record(message.record).payload for message in await topic.taken(topic.one)] == [b"one"]
    assert (await topic.bytes(), await topic.stored()) == (0, 0)


async def test_a_cancelled_message_is_gone(topic: Topic) -> None:
    """A call cancels none of its messages if one of them belongs to a subscription."""
    await topic.hand_out([Outgoing(b"one", due=START + 10), Outgoing(b"now")], [[], [Copy(0)]])
    assert (await topic.tell(topic.topic.cancel(topic.call_id(), ["1", "2"]))).missing == ("2",)
    assert (await topic.tell(topic.topic.cancel(topic.call_id(), ["1"]))).missing == ()
    topic.now += 10
    assert await shown_ripe(topic) == []
    assert await topic.stored() == 1


async def test_a_scheduled_message_for_no_subscription_is_deleted_when_it_is_published(topic: Topic) -> None:
    await topic.hand_out([Outgoing(b"one", due=START + 10)], [[]])
    topic.now += 10
    assert (await topic.hand_out([Outgoing(b"", origin="1")], [[]])).dropped == 0
    assert (await topic.bytes(), await topic.stored()) == (0, 0)


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


async def test_a_repeated_publish_returns_the_same_result_and_publishes_nothing(topic: Topic) -> None:
    await topic.hand_out([Outgoing(b"one", due=START + 10)], [[]])
    topic.now += 10
    messages = [
        Outgoing(b"", origin="1"),
        Outgoing(b"later", due=START + 100),
        Outgoing(b"m"),
        Outgoing(b"", origin="7"),
    ]
    routes = [[Copy(0), Copy(0, b"red")], [], [Copy(0)], [Copy(0)]]
    request = topic.topic.publish(topic.call_id(), messages, routes, topic.subscriptions)
    first = await topic.tell(request)
    assert (first.first, first.dropped, first.scheduled) == (2, 1, (4,))
    after = await topic.everything()
    assert await topic.tell(request) == first
    assert await topic.everything() == after


# -- waking ----------------------------------------------------------------------------------------------------------


async def test_publishing_wakes_the_waiters_of_the_subscriptions_that_get_a_copy(topic: Topic) -> None:
    """Four kinds of waiters are woken: for messages, for dead letters, for a session, and in a session."""
    ears = {name: Ear() for name in ("one", "two", "dead", "acceptor", "holder")}
    channels = {name: waiting_channel("ns", "abc", "q", name) for name in ears}
    for name, ear in ears.items():
        await topic.transport.subscribe(channels[name], ear)
    token = new_token()
    await topic.tell(topic.sessions.accept_session(topic.call_id(), token, "s"))
    for request in (
        topic.one.receive(topic.call_id(), new_token(), 1, waiter=channels["one"]),
        topic.two.receive(topic.call_id(), new_token(), 1, waiter=channels["two"]),
        topic.one.receive(topic.call_id(), new_token(), 1, side="d", waiter=channels["dead"]),
        topic.sessions.receive(topic.call_id(), token, 1, session="s", waiter=channels["holder"]),
    ):
        assert (await topic.tell(request)).messages == ()
    await topic.tell(topic.sessions.accept_session(topic.call_id(), new_token(), None, waiter=channels["acceptor"]))

    async def woken(*routes: Copy, session: str | None = None) -> set[str]:
        await topic.hand_out([Outgoing(encode(Content(b"m", session_id=session)))], [routes])
        for name, ear in ears.items():
            await topic.transport.command("SPUBLISH", channels[name], b"enough", key=channels[name])
            await eventually(lambda ear=ear: b"enough" in ear.heard)
        heard = {name for name, ear in ears.items() if len(ear.heard) > 1}
        for ear in ears.values():
            ear.heard.clear()
        return heard

    assert await woken(Copy(0)) == {"one"}
    assert await woken(Copy(1)) == {"two"}
    assert await woken(Copy(0, dead=True)) == {"dead"}
    assert await woken(Copy(2)) == set()
    assert await woken(Copy(3)) == set()  # the message has no session, and no waiter there waits for dead letters
    assert await woken(Copy(3), session="s") == {"holder"}
    assert await woken(Copy(3), session="t") == {"acceptor"}


# -- failover --------------------------------------------------------------------------------------------------------


async def test_after_a_failover_dead_letters_of_a_subscription_get_numbers_that_were_never_used(url: str) -> None:
    """The numbers jump although no call has reached the subscription since the failover."""
    topic_settings = PartitionSettings(clock="test", topic=True)
    scripts = [load(name) for name in operations()]
    async with await open_transport(url, scripts=scripts) as transport:
        topic = Partition("ns", "abc", "t", "topic", 1, topic_settings)
        sub = Partition("ns", "abc", "s", "sub", 1, PartitionSettings(clock="test", shared=True), store="t")

        async def ask(request: Request[Any], run_id: str) -> Any:
            script = request.script if "memory" not in url else request.script.without_shebang()
            arguments = (run_id, *request.arguments)
            sha, keys = script.sha, request.keys
            return request.read(await transport.command("EVALSHA", sha, len(keys), *keys, *arguments, key=keys[0]))

        for partition in (topic, sub):
            await ask(partition.configure(create=True), "before")

        def failing(number: int) -> Request[Sent]:
            return topic.publish(CallId("lane", number, START), [Outgoing(b"m")], [[Copy(0, dead=True)]], [sub])

        await ask(failing(1), "before")
        await ask(failing(2), "after")
        received = await ask(sub.receive(CallId("lane", 1, START), new_token(), 5, side="d"), "after")
        assert [message.name for message in received.messages] == ["d1", f"d{2**24 + 2}"]
