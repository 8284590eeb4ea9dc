"""Fundamentals, part six: a receiver grants credit, and gets messages in replies and in pushes."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.engine import (
    NO_CALL_ID,
    Carried,
    CreditAnswer,
    GiftPlace,
    Lock,
    Operation,
    Outgoing,
    PartRefusedError,
    SentGrant,
    Settled,
    SidePrefix,
    Transacted,
    carrying,
    push_channel,
    read_push,
    transact,
    transact_together,
)
from sbredis.exceptions import MessagingEntityNotFoundError, ScriptRefusedError
from tests.engine.bench import SALT, SETTINGS, Bench, Everything, everything, set_to
from tests.engine.granting import Grantors, granting, names
from tests.engine.topics import Topic
from tests.transport.ears import Ear
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("a channel belongs to a slot")


# -- gifts -------------------------------------------------------------------------------------------------------------


async def test_a_grant_gets_what_is_ready(bench: Bench, receiver: Grantors) -> None:
    """The rest of the credit stays open."""
    a = await receiver("a")
    await bench.send(b"one", b"two")
    reply = await a.grant(3)
    assert reply.answer is CreditAnswer.TAKEN
    assert names(reply) == ["1", "2"]
    [gift] = reply.gifts
    assert (gift.place, gift.fence) == (GiftPlace(1, 2, 36), 1)
    assert gift.until == bench.now + SETTINGS.lock_duration
    assert (reply.last, reply.limit, reply.there, reply.again) == (gift.place, 3, False, False)
    await bench.send(b"three")
    assert await a.pushed() == ["3"]
    await bench.send(b"four")
    assert await a.pushed() == []


async def test_a_pushed_message_is_locked(bench: Bench, receiver: Grantors) -> None:
    a = await receiver("a")
    await a.grant()
    [name] = await bench.send(b"one")
    assert await a.pushed() == [name]
    assert await bench.receive() == []
    settled = await bench.tell(bench.partition.complete(bench.call_id(), [Lock("aAAAAAAAAAB", name)]))
    assert settled.lost == ()


async def test_a_call_without_open_grants_reads_no_key_of_credit(bench: Bench, receiver: Grantors) -> None:
    a = await receiver("a")
    await a.grant()
    await a.grant(0)
    before = await bench.whole()
    await bench.send(b"one")
    after = await bench.whole()
    for kind in ("words", "grants", "kept"):
        key = bench.partition.keys[0].decode().replace("state", kind)
        assert after.get(key) == before.get(key)
    assert await a.pushed() == []


async def test_a_receiver_that_deletes_gets_messages_in_replies_only(bench: Bench, receiver: Grantors) -> None:
    a = await receiver("a")
    await a.grant(2, delete=True)
    await bench.send(b"one")
    assert await a.pushed() == [""]
    reply = await a.grant(2, delete=True)
    assert names(reply) == ["1"]
    assert (await bench.count()).active == (await bench.count()).locked == 0
    a.number -= 1
    assert names(await a.grant(2, delete=True)) == [], "a repetition gives nothing twice"


@pytest.mark.parametrize("side", ["", "d"])
async def test_sides_have_credit_of_their_own(bench: Bench, receiver: Grantors, side: SidePrefix) -> None:
    a = await receiver("a")
    await a.grant(5, source=side)
    await bench.send(b"one", b"two")
    assert await a.pushed() == ([] if side else ["1", "2"])
    if side:
        await bench.dead_letter(*await bench.receive())
        assert await a.pushed() == ["d1", "d2"]


async def test_a_large_message_is_announced(bench: Bench, receiver: Grantors) -> None:
    a = await receiver("a")
    await a.grant(2)
    await bench.send(b"x" * 17_000)
    assert await a.pushed() == [""]
    assert names(await a.grant(2)) == ["1"]


@pytest.mark.parametrize("large", [False, True], ids=["push", "interest"])
async def test_receivers_that_are_gone_hide_no_other_one(bench: Bench, receiver: Grantors, large: bool) -> None:
    """A call looks at 32 receivers, and those that do not listen make room for the next ones."""
    for number in range(80):
        await (await receiver(f"a{number}", listens=False)).grant()
    last = await receiver("z")
    await last.grant()
    await bench.send(b"x" * (17_000 if large else 10))
    assert await last.pushed() == ["" if large else "1"]


async def test_a_reply_leaves_a_portion_for_the_first_32_other_receivers(bench: Bench, receiver: Grantors) -> None:
    """Large messages are announced and not pushed, so the others have got none."""
    for number in range(40):
        await (await receiver(f"a{number}")).grant()
    await bench.send(*[b"x" * 17_000] * 100)
    assert len(names(await (await receiver("z")).grant(50))) == 100 // 33


async def test_a_call_gives_up_a_hundred_receivers_that_are_gone(bench: Bench, receiver: Grantors) -> None:
    """The next call goes on where it has stopped."""
    gone = await receiver("a", listens=False)
    for number in range(140):
        gone.name, gone.number = f"a{number}", 0
        await gone.grant()
    last = await receiver("z")
    await last.grant()
    await bench.send(b"x")
    assert await last.pushed() == []
    await bench.tell(bench.partition.due(bench.call_id()))
    assert await last.pushed() == ["1"]


async def test_a_call_that_looks_twice_finds_the_receivers_behind_forgotten_ones(
    bench: Bench, receiver: Grantors
) -> None:
    """The caller counts its rivals, and then the call serves them. It has to remove 60 forgotten ones only once."""
    gone = await receiver("a", listens=False)
    for number in range(60):
        gone.name, gone.number = f"a{number:02}", 0
        await gone.grant()
    bench.now += 300_001
    there = await receiver("b")
    channel = there.channel
    for number in range(60):  # each of them lets the partition forget ten others
        there.name, there.number, there.channel = f"b{number:02}", 0, gone.channel if number < 30 else channel
        await there.grant()
    await bench.send(*[b"x"] * 100, due=bench.now + 1)
    bench.now += 1
    await (await receiver("z")).grant(40)
    there.channel = channel
    assert sum(push.gift is not None for _, push in await there.heard()) == 16


# -- settlements -------------------------------------------------------------------------------------------------------

SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter")


@pytest.mark.parametrize("operation", SETTLEMENTS)
async def test_a_settlement_brings_the_next_messages(bench: Bench, receiver: Grantors, operation: str) -> None:
    """Each repetition shows the same messages again, because its grant is known."""
    a = await receiver("a")
    await bench.send(b"one", b"two", b"three")
    await a.grant(1)
    settle: Any = getattr(bench.partition, operation)
    request = carrying(settle(bench.call_id(), [Lock("aAAAAAAAAAB", "1")]), [a.sent(1)])
    first: Carried[Settled] = await bench.tell(request)
    assert first.result.lost == first.result.unfit == ()
    assert names(first.credits[0]) == (["1"] if operation == "abandon" else ["2"])
    for _ in range(2):
        again: Carried[Settled] = await bench.tell(request)
        assert again.result.lost == ()
        assert again.credits[0].answer is CreditAnswer.KNOWN
        assert names(again.credits[0]) == names(first.credits[0])


async def test_a_transaction_brings_the_next_messages(bench: Bench, receiver: Grantors) -> None:
    """Each repetition shows the same messages again, and has the same results."""
    a, partition = await receiver("a"), bench.partition
    await bench.send(b"one", b"two")
    await a.grant(1)
    complete = Operation(partition, partition.complete(NO_CALL_ID, [Lock("aAAAAAAAAAB", "1")]))
    send = Operation(partition, partition.send(NO_CALL_ID, [Outgoing(b"three")]))
    request = carrying(transact_together(bench.call_id(), [[complete], [send]]), [a.sent(1)])
    first = await bench.tell(request)
    assert [isinstance(each, Transacted) for each in first.result.outcomes] == [True, True]
    assert names(first.credits[0]) == ["2"]
    for _ in range(2):
        again = await bench.tell(request)
        assert again.result == first.result
        assert again.credits[0].answer is CreditAnswer.KNOWN
        assert names(again.credits[0]) == ["2"]


async def test_what_a_transaction_abandons_goes_to_others_first(bench: Bench, receiver: Grantors) -> None:
    a, b, partition = await receiver("a"), await receiver("b"), bench.partition
    await bench.send(b"one")
    await a.grant(1)
    await b.grant(1)
    abandon = Operation(partition, partition.abandon(NO_CALL_ID, [Lock("aAAAAAAAAAB", "1")]))
    carried = await bench.tell(carrying(transact(bench.call_id(), [abandon]), [a.sent(1)]))
    assert names(carried.credits[0]) == []
    assert await b.pushed() == ["1"]


async def test_a_refused_transaction_leaves_its_grants_unread(bench: Bench, receiver: Grantors) -> None:
    a, partition = await receiver("a"), bench.partition
    await bench.send(b"one")
    complete = Operation(partition, partition.complete(NO_CALL_ID, [Lock("x" * 11, "1")]))
    sent, before = a.sent(1), await bench.whole()
    with pytest.raises(PartRefusedError):
        await bench.tell(carrying(transact(bench.call_id(), [complete]), [sent]))
    assert await bench.whole() == before
    other = partition.complete(bench.call_id(), [Lock("x" * 11, "7")])
    assert names((await bench.tell(carrying(other, [sent]))).credits[0]) == ["1"]


# -- due times and ends ------------------------------------------------------------------------------------------------


async def test_each_receiver_calls_some_time_after_what_is_due(bench: Bench, receiver: Grantors) -> None:
    """One has the task, its deputy calls five seconds later, and the others call later still. A lock lasts 30 s."""
    keeper, deputy, other = [await receiver(name) for name in "abc"]
    tasks = [(reply.keeps, reply.due) for reply in (await keeper.grant(), await deputy.grant(), await other.grant())]
    assert tasks == [(True, 30), (True, 35), (False, None)]  # each receiver calls every two minutes
    await bench.send(b"1", due=bench.now + 4_000)
    assert await keeper.pushed() == await deputy.pushed() == [""]
    assert await other.pushed() == []
    tasks = [(reply.keeps, reply.due) for reply in (await keeper.grant(), await deputy.grant(), await other.grant())]
    assert tasks == [(True, 4), (True, 9), (False, 60)]
    bench.now += 20_000  # the other two stand still
    reply = await other.grant()
    assert (names(reply), reply.keeps, reply.due) == (["2"], True, 30)  # the number was given when it was due


@set_to(sessions=True)
async def test_an_entity_with_sessions_refuses_credit_without_one(receiver: Grantors) -> None:
    reply = await (await receiver("a")).grant()
    assert (reply.answer, reply.refusal) == (CreditAnswer.REFUSED, "SESSIONS required")


async def test_an_entity_without_sessions_refuses_credit_for_them(bench: Bench, receiver: Grantors) -> None:
    """No credit is open then. The partition remembers only that the grant was made."""
    a = await receiver("a")
    await bench.send(b"1")

    async def stored() -> Everything:
        found = await everything(bench.transport, bench.partition.keys)
        return {key: held for key, held in found.items() if not key.endswith((":words", ":kept"))}

    before = await stored()
    for sent in (a.sent(source="next"), a.sent(source="=s")):
        reply = await a.call(sent._replace(receiver="a" * 11))
        assert (reply.answer, reply.refusal, reply.gifts) == (CreditAnswer.REFUSED, "SESSIONS none", [])
    assert await stored() == before


async def test_a_gift_that_was_given_back_can_be_settled_by_nobody(bench: Bench, receiver: Grantors) -> None:
    """Neither while the message waits, nor when another receiver holds it."""
    a, b = await receiver("a"), await receiver("b")
    await a.grant()
    [name] = await bench.send(b"1")
    assert await a.pushed() == [name]
    gift, partition = [Lock("aAAAAAAAAAB", name)], bench.partition
    await bench.tell(partition.abandon(bench.call_id(), gift, counted=False))

    async def nothing_happens() -> None:
        before = await bench.count()
        for settle in (partition.complete, partition.abandon, partition.defer, partition.dead_letter):
            assert (await bench.tell(settle(bench.call_id(), gift))).lost == (name,)
        assert await bench.count() == before

    await nothing_happens()
    assert names(await b.grant()) == [name]
    await nothing_happens()
    settled = await bench.tell(partition.complete(bench.call_id(), [Lock("bAAAAAAAAAB", name)]))
    assert settled.lost == ()


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "disabled": ({"status": "ReceiveDisabled"}, "DISABLED ReceiveDisabled"),
    "forwards": ({"forwards": True}, "FORWARDS receive"),
    "reserved": ({"reserved": True}, "RESERVED receive"),
}


@pytest.mark.parametrize(("settings_then", "refusal"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_newer_settings_end_all_credit(
    bench: Bench, receiver: Grantors, settings_then: dict[str, Any], refusal: str
) -> None:
    """The receivers are told, and their next call learns why."""
    a, b = await receiver("a"), await receiver("b")
    await a.grant()
    await b.grant(1, source="d")
    await bench.change(**settings_then)
    assert (await a.pushed(), await b.pushed()) == ([""], [""])
    reply = await a.grant()
    assert (reply.answer, reply.refusal, reply.limit) == (CreditAnswer.REFUSED, refusal, 0)
    await bench.due()
    assert (await a.pushed(), await b.pushed()) == ([], [])


async def test_more_than_sixteen_receivers_are_told_of_an_end_by_later_calls(bench: Bench, receiver: Grantors) -> None:
    receivers = [await receiver(f"r{number}") for number in range(20)]
    for each in receivers:
        await each.grant()
    await bench.change(status="ReceiveDisabled")
    assert sum([len(await each.pushed()) for each in receivers]) == 16
    await bench.due()
    assert sum([len(await each.pushed()) for each in receivers]) == 4
    await bench.due()
    assert sum([len(await each.pushed()) for each in receivers]) == 0


async def test_an_end_is_told_to_receivers_behind_a_hundred_forgotten_ones(bench: Bench, receiver: Grantors) -> None:
    gone = await receiver("a", listens=False)
    for number in range(134):
        gone.name, gone.number = f"a{number}", 0
        await gone.grant()
    bench.now += 300_001
    for number in range(14):  # each of them lets the partition forget ten others
        gone.name, gone.number = f"b{number}", 0
        await gone.grant()
    last = await receiver("z")
    await last.grant()
    await bench.change(lock_duration=20_000)
    for _ in range(7):  # a call tells 16 receivers
        await bench.due()
    assert await last.pushed() == [""]


async def test_a_deletion_tells_the_receivers(bench: Bench, receiver: Grantors) -> None:
    a = await receiver("a")
    await a.grant()
    await bench.tell(bench.partition.destroy(share=0))
    assert await a.pushed() == [""]
    with pytest.raises((MessagingEntityNotFoundError, ScriptRefusedError)):
        await a.grant()


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def test_a_publish_announces_its_copies(topic: Topic) -> None:
    """A call that publishes lacks the keys of the subscriptions' leases. So it makes no gifts."""
    one, ear = topic.one, Ear()
    sent = SentGrant("r", push_channel("ns", SALT, "s1", "c"), "", granting(1))
    await topic.transport.subscribe(sent.channel, ear)
    [reply] = (await topic.tell(one.grant([sent], topic.at()))).credits
    sent = sent._replace(grant=granting(2, run=reply.run))
    [reply] = (await topic.tell(one.grant([sent], topic.at()))).credits
    assert reply.answer is CreditAnswer.TAKEN
    await topic.publish((b"m", (0,)), (b"n", (1,)))
    await eventually(lambda: ear.heard)
    assert [read_push(text).push.gift for text in ear.heard] == [None]
    sent = sent._replace(grant=granting(3, run=reply.run))
    [reply] = (await topic.tell(one.grant([sent], topic.at()))).credits
    assert names(reply) == ["1"]
