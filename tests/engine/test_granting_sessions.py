"""Fundamentals, part seven: a receiver grants credit for free sessions, and for the messages of a session it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import (
    NEXT_SESSION,
    CreditAnswer,
    CreditGift,
    CreditGrant,
    CreditReply,
    Delivery,
    GiftPlace,
    Lock,
    PartitionSettings,
    SentGrant,
    SessionLock,
    carrying,
    lease_token,
    push_channel,
    read_push,
)
from sbredis.exceptions import SessionLockLostError
from tests.engine.bench import SALT, SETTINGS, Bench
from tests.engine.granting import Grantor, Grantors, granting, names
from tests.engine.holding import Holder, accept, body, of_session, put
from tests.engine.topics import Topic
from tests.transport.ears import Ear
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("a channel belongs to a slot")

LOCK = SETTINGS.lock_duration
FIRST: dict[str, Any] = {"source": NEXT_SESSION, "first": 10, "first_size": 1 << 16}
PLAIN = GiftPlace(0, 0, 0)


@pytest.fixture
def settings() -> PartitionSettings:
    return replace(SETTINGS, sessions=True)


class Held:
    """A held session: the receiver of its messages."""

    def __init__(self, of: Grantor, gift: CreditGift[Delivery]) -> None:
        assert gift.session is not None
        self.of, self.gift, self.session = of, gift, gift.session
        self.token = lease_token(gift.prefix, gift.place.serial)
        self.key = f"{self.token} ={self.session.name}"
        self.seen = self.session.gifts[-1].place if self.session.gifts else PLAIN
        self.number = 0

    @property
    def lock(self) -> SessionLock:
        return SessionLock(self.session.name, self.token)

    def sent(self, credit: int = 1, **changed: Any) -> SentGrant:
        self.number += 1
        until = self.seen.messages + credit
        grant = granting(self.number, run=self.of.run, prefix=self.gift.prefix)._replace(
            begins=False, callers=until, limit=until, seen=self.seen, size_limit=self.seen.size + (1 << 20)
        )
        return SentGrant(self.token, self.of.channel, f"={self.session.name}", grant._replace(**changed))

    async def grant(self, credit: int = 1, **changed: Any) -> CreditReply[Delivery]:
        return self.see(await self.of.call(self.sent(credit, **changed)))

    def see(self, reply: CreditReply[Delivery]) -> CreditReply[Delivery]:
        for gift in reply.gifts:
            self.seen = max(self.seen, gift.place)
        return reply

    async def complete(self, name: str, *grants: SentGrant) -> tuple[CreditReply[Delivery], ...]:
        bench = self.of.bench
        request = bench.partition.complete(bench.call_id(), [Lock(self.token, name)])
        if not grants:
            assert (await bench.tell(request)).lost == ()
            return ()
        carried = await bench.tell(carrying(request, grants))
        assert carried.result.lost == ()
        return carried.credits


def given(reply: CreditReply[Delivery]) -> list[tuple[str, list[str]]]:
    """Return the sessions in a reply, with the names of their first messages."""
    return [shown(gift) for gift in reply.gifts]


def shown(gift: CreditGift[Delivery] | None) -> tuple[str, list[str]]:
    assert gift is not None
    assert gift.session is not None
    return gift.session.name, [message.name for first in gift.session.gifts for message in first.messages]


async def hold(of: Grantor, **changed: Any) -> Held:
    [gift] = (await of.grant(1, **{**FIRST, **changed})).gifts
    return Held(of, gift)


# -- sessions and their first messages ---------------------------------------------------------------------------------


async def test_a_grant_gets_free_sessions_with_their_first_messages(bench: Bench, receiver: Grantors) -> None:
    """The session that is free for longest comes first. Each is locked under the token of its gift."""
    await put(bench, "s", b"1", b"2")
    bench.later(1)
    await put(bench, "a b", b"3")
    a = await receiver("a")
    reply = await a.grant(3, **FIRST)
    assert given(reply) == [("s", ["1", "2"]), ("a b", ["3"])]
    first, second = reply.gifts
    assert (first.place, second.place) == (GiftPlace(1, 1, 0), GiftPlace(2, 2, 0))
    assert (first.fence, second.fence, first.until) == (1, 2, bench.now + LOCK)
    assert (reply.limit, reply.last, reply.there) == (3, second.place, False)
    assert first.session is not None
    [messages] = first.session.gifts
    assert (messages.prefix, messages.place.serial, messages.place.messages) == (first.prefix, 1, 2)
    assert (messages.fence, messages.until) == (0, first.until)
    assert [body(message) for message in messages.messages] == [b"1", b"2"]
    assert (await accept(bench, "s")).outcome == "locked"
    settled = await bench.tell(
        bench.partition.complete(bench.call_id(), [Lock(lease_token(first.prefix, 1), name) for name in ("1", "2")])
    )
    assert settled.lost == ()


async def test_gifts_of_a_session_that_were_not_seen_are_shown_again(bench: Bench, receiver: Grantors) -> None:
    """The prefix begins with a digit: the word of a held session has its gifts where others have two numbers."""
    await put(bench, "s", b"1")
    a = await receiver("7")
    held = await hold(a)
    assert (await held.grant(2, seen=PLAIN)).answer is CreditAnswer.TAKEN
    await put(bench, "s", b"2")
    [(_, push)] = await a.heard()
    assert push.gift is not None
    assert names(await held.grant(2, seen=PLAIN, again=True)) == ["1", "2"]


async def test_a_named_session_comes_with_its_messages(bench: Bench, receiver: Grantors) -> None:
    """The receiver of the messages is the token that the call has chosen. A repetition shows them again."""
    await put(bench, "s", b"1", b"2")
    a = await receiver("a")
    token, call_id = lease_token("aAAAAAAA", 7), bench.call_id()
    sent = SentGrant(token, a.channel, "=s", a.sent(1).grant)
    for answer in (CreditAnswer.TAKEN, CreditAnswer.KNOWN):
        carried = await bench.tell(carrying(bench.partition.accept_session(call_id, token, "s"), [sent]))
        assert carried.result.outcome == "taken"
        [reply] = carried.credits
        assert (reply.answer, names(reply)) == (answer, ["1"])
    other = lease_token("aAAAAAAA", 8)
    request = bench.partition.accept_session(bench.call_id(), other, "s")
    carried = await bench.tell(carrying(request, [sent._replace(receiver=other)]))
    assert (carried.result.outcome, carried.credits[0].refusal) == ("locked", "LOST session")


# -- a held session ----------------------------------------------------------------------------------------------------


async def test_the_messages_of_a_session_keep_their_order(bench: Bench, receiver: Grantors) -> None:
    """What its holder gives back comes before what is later."""
    await put(bench, "s", b"1", b"2", b"3")
    a = await receiver("a")
    held = await hold(a, first=2)
    request = bench.partition.abandon(bench.call_id(), [Lock(held.token, name) for name in ("1", "2")], counted=False)
    carried = await bench.tell(carrying(request, [held.sent(5)]))
    assert names(carried.credits[0]) == ["1", "2", "3"]


async def test_renewing_a_session_renews_its_messages(bench: Bench, receiver: Grantors) -> None:
    await put(bench, "s", b"1", b"2")
    a = await receiver("a")
    held = await hold(a, first=1)
    bench.later(LOCK - 1)
    await bench.tell(bench.partition.renew_session(bench.call_id(), held.lock))
    [gift] = (await held.grant()).gifts
    assert gift.until == bench.now + LOCK
    bench.later(LOCK - 1)
    await held.complete("1")
    await held.complete("2")


async def test_a_receiver_may_delete_the_messages_of_sessions(bench: Bench, receiver: Grantors) -> None:
    """A session that is pushed comes without any, because a deleted message must not get lost."""
    a = await receiver("a")
    await put(bench, "s", b"1", b"2")
    [gift] = (await a.call(a.sent(1, delete=True, **{**FIRST, "first": 1}))).gifts
    assert shown(gift) == ("s", ["1"])
    held = Held(a, gift)
    reply = await a.call(held.sent(5)._replace(delete=True))
    assert names(reply) == ["2"]
    assert (await bench.count()).locked == 0
    assert await bench.tell(bench.partition.release_session(bench.call_id(), held.lock)) == 0


# -- letting go --------------------------------------------------------------------------------------------------------


async def test_a_session_with_one_message_takes_one_call(bench: Bench, receiver: Grantors) -> None:
    """The last settlement leaves the session and brings the next one."""
    a = await receiver("a")
    await put(bench, "s", b"1")
    held = await hold(a)
    await put(bench, "t", b"2")
    left, sessions = await held.complete("1", held.sent(1, leaves=True), a.sent(1, **FIRST))
    assert (left.answer, left.refusal) == (CreditAnswer.REFUSED, "LOST released")
    assert given(sessions) == [("t", ["2"])]
    assert await a.heard() == []
    repeated = await held.grant(1, leaves=True)
    assert (repeated.answer, repeated.refusal) == (CreditAnswer.REFUSED, "LOST session")
    assert (await accept(bench, "s")).outcome == "taken"


async def test_holders_that_do_not_let_go_hide_no_other_one(bench: Bench, receiver: Grantors) -> None:
    """Many do not yield, and one has received a deferred message. The holder behind them learns that others wait."""
    a = await receiver("a")
    [name] = await put(bench, "s34", b"1")
    for number in range(36):
        token = lease_token("aAAAAAAA", 7 + number)
        grant = granting(1, 2, run=a.run, prefix=f"{number:A>8}")._replace(yields=number > 33)
        request = bench.partition.accept_session(bench.call_id(), token, f"s{number}")
        carried = await bench.tell(carrying(request, [SentGrant(token, a.channel, f"=s{number}", grant)]))
        if names(carried.credits[0]):
            busy = Holder(bench, SessionLock("s34", token))
            await busy.defer(name)
            await busy.receive_deferred(name)
    await put(bench, "t", b"2")
    await put(bench, "u", b"3")
    assert [(key.split(" ")[1], push.others_wait) for key, push in await a.heard()] == [("=s35", True)]


async def test_a_holder_is_told_when_its_last_message_is_settled(bench: Bench, receiver: Grantors) -> None:
    """The settlement carries no grant, and others wait already."""
    a = await receiver("a")
    await put(bench, "s", b"1")
    held = await hold(a)
    await held.grant(1, yields=True)
    await put(bench, "t", b"2")
    assert await a.heard() == []
    await held.complete("1")
    assert [(key, push.others_wait) for key, push in await a.heard()] == [(held.key, True)]


async def test_the_release_of_a_session_may_take_the_next_one(bench: Bench, receiver: Grantors) -> None:
    """Another session is given first, and so are other receivers."""
    a = await receiver("a")
    await put(bench, "s", b"1")
    held = await hold(a)
    await put(bench, "t", b"2")
    bench.later(1)
    call_id, sent = bench.call_id(), a.sent(1, **FIRST)
    for answer in (CreditAnswer.TAKEN, CreditAnswer.KNOWN):
        carried = await bench.tell(carrying(bench.partition.release_session(call_id, held.lock), [sent]))
        assert (carried.result, carried.credits[0].answer) == (1, answer)
        assert given(carried.credits[0]) == [("t", ["2"])]


async def test_a_refused_release_reads_no_grant(bench: Bench, receiver: Grantors) -> None:
    a = await receiver("a")
    await put(bench, "s", b"1")
    held = await hold(a)
    await bench.tell(bench.partition.release_session(bench.call_id(), held.lock))
    before = await bench.whole()
    request = carrying(bench.partition.release_session(bench.call_id(), held.lock), [a.sent(1, **FIRST)])
    with pytest.raises(SessionLockLostError):
        await bench.tell(request)
    assert await bench.whole() == before


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def test_a_publish_announces_sessions_and_their_messages(topic: Topic) -> None:
    """A call that publishes makes no gifts. The call that follows gets the session, and then its next messages."""
    of, ear = topic.sessions, Ear()
    channel = push_channel("ns", SALT, "s4", "c")
    await topic.transport.subscribe(channel, ear)

    async def grant(receiver: str, source: str, sent: CreditGrant) -> CreditReply[Delivery]:
        request = of.grant([SentGrant(receiver, channel, source, sent)], topic.at())
        return (await topic.tell(request)).credits[0]

    run = (await grant("r", NEXT_SESSION, granting(1))).run
    first = granting(2, run=run)._replace(first=10, first_size=1 << 16)
    assert (await grant("r", NEXT_SESSION, first)).answer is CreditAnswer.TAKEN
    await topic.publish((of_session("s"), (3,)))
    await eventually(lambda: ear.heard)
    assert read_push(ear.heard.pop()).push.gift is None
    [gift] = (await grant("r", NEXT_SESSION, first._replace(number=3))).gifts
    assert shown(gift) == ("s", ["1"])
    assert gift.session is not None
    token, seen = lease_token(gift.prefix, 1), gift.session.gifts[0].place
    next_one = granting(1, 2, run=run)._replace(begins=False, seen=seen, callers=2, size_limit=1 << 20)
    assert (await grant(token, "=s", next_one)).answer is CreditAnswer.TAKEN
    await topic.publish((of_session("s"), (3,)))
    await eventually(lambda: ear.heard)
    heard = read_push(ear.heard.pop())
    assert (heard.receiver, heard.source, heard.push.gift) == (token, "=s", None)
    assert names(await grant(token, "=s", next_one._replace(number=2))) == ["2"]


# -- the end of a lock -------------------------------------------------------------------------------------------------


async def failures(bench: Bench) -> list[int]:
    return [message.failures for message in await bench.peek()]


async def test_a_deferred_message_that_was_received_has_begun_and_needs_no_hand(
    bench: Bench, receiver: Grantors
) -> None:
    await put(bench, "s", *[b"x"] * 3)
    a = await receiver("a")
    held = await hold(a, first=3, hands=1)
    by_number = Holder(bench, held.lock)
    await by_number.defer("1")
    assert len((await by_number.receive_deferred("1")).messages) == 1
    bench.later(LOCK)
    assert await failures(bench) == [2, 1, 0]


async def test_hands_reach_over_the_passes_that_end_a_lock(bench: Bench, receiver: Grantors) -> None:
    await put(bench, "s", *[b"x"] * 300)
    a = await receiver("a")
    await hold(a, first=300, hands=260)
    bench.later(LOCK)
    while (await bench.due()).more:
        pass
    shown = [*await bench.peek(0, 300), *await bench.peek(251, 300)]
    assert {message.name: message.failures for message in shown} == {
        str(number): int(number <= 260) for number in range(1, 301)
    }
