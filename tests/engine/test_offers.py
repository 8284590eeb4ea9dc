"""Offers: a send locks messages for a receiver that waits, and publishes them in its wake."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import (
    OFFER_MS,
    Asked,
    CallId,
    Last,
    Lock,
    Looked,
    MalformedCallError,
    Offer,
    Operation,
    Outgoing,
    Received,
    SettlementEvent,
    new_token,
    read_offer,
    read_settlements,
    transact,
)
from tests.engine.bench import SETTINGS, Bench, set_to
from tests.engine.receivers import Receiver, Receivers
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.everywhere("a channel belongs to a slot")]

LOCK = SETTINGS.lock_duration
GRACE = 1010
"""The time after which a woken receiver that made no call is given up."""


async def look(
    receiver: Receiver, asked: Asked | None = None, last: Last | None = None, *, waiting_for: int = 1
) -> Looked:
    bench = receiver.bench
    request = bench.partition.look(
        waiter=receiver.channel,
        waiting_for=waiting_for,
        call_id=CallId("", 0, bench.now),
        asked=asked,
        last=last,
    )
    return await bench.tell(request)


async def asks(receiver: Receiver, most: int = 1) -> str:
    """Let a receiver wait and ask for offers. Return the token that it has named."""
    asked = Asked(new_token(), most)
    assert not (await look(receiver, asked, waiting_for=max(1, most))).found
    return asked.token


async def offer_to(receiver: Receiver) -> Offer:
    """Return the offer that a receiver has heard."""
    await eventually(lambda: receiver.ear.heard)
    offer = read_offer(receiver.ear.heard.pop())
    assert offer is not None
    assert not receiver.ear.heard
    return offer


async def offered(bench: Bench, receiver: Receiver, *payloads: bytes) -> Offer:
    """Send messages to a receiver that asks for offers, and return its offer."""
    await asks(receiver, len(payloads))
    await bench.send(*payloads)
    return await offer_to(receiver)


# -- what an offer has -------------------------------------------------------------------------------------------------


async def test_a_message_is_offered_to_the_first_waiting_receiver(bench: Bench, listening: Receivers) -> None:
    first, second = await listening("a"), await listening("b")
    token = await asks(first)
    bench.later(10)
    await asks(second)
    await bench.send(b"m")
    offer = await offer_to(first)
    assert offer == Offer(token, 1, bench.now, LOCK, offer.messages)
    assert [message.record[15:] for message in offer.messages] == [b"m"]
    assert (await bench.count()).locked == 1
    await second.woken(0)


async def test_a_receiver_that_does_not_ask_for_offers_is_woken_without_one(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    await look(receiver)
    await bench.send(b"m")
    await eventually(lambda: receiver.ear.heard)
    assert read_offer(receiver.ear.heard[0]) is None
    assert (await bench.count()).active == 1


async def test_an_offer_has_no_more_messages_than_its_receiver_asked_for(bench: Bench, listening: Receivers) -> None:
    first, second = await listening("a"), await listening("b")
    await asks(first, 2)
    bench.later(10)
    await asks(second, 1)
    await bench.send(*(b"%d" % number for number in range(4)))
    assert [message.name for message in (await offer_to(first)).messages] == ["1", "2"]
    assert [message.name for message in (await offer_to(second)).messages] == ["3"]
    assert (await bench.count()).active == 1


async def test_an_offer_has_at_most_16_messages(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    await asks(receiver, 100)
    await bench.send(*[b"m"] * 20)
    assert len((await offer_to(receiver)).messages) == 16


@pytest.mark.parametrize(("sizes", "count"), [((8_000, 8_000, 8_000), 2), ((16_369, 1), 1), ((16_370, 1), 0)])
async def test_an_offer_has_at_most_16_kb(
    bench: Bench, listening: Receivers, sizes: tuple[int, ...], count: int
) -> None:
    """A larger message wakes its receiver as usual. A record has 15 bytes beside the payload."""
    receiver = await listening("a")
    await asks(receiver, 3)
    await bench.send(*(b"x" * size for size in sizes))
    await eventually(lambda: receiver.ear.heard)
    offer = read_offer(receiver.ear.heard[0])
    assert (0 if offer is None else len(offer.messages)) == count
    assert (await bench.count()).locked == count


async def test_the_facts_about_a_message_come_with_its_offer(bench: Bench, listening: Receivers) -> None:
    """An abandoned message wakes the first receiver, which does not come. The next send offers the message, with its
    failed delivery and its changes, to the second one.
    """
    first, second = await listening("a"), await listening("b")
    await bench.send(b"m")
    held = await bench.one()
    await asks(first)
    bench.later(10)
    await asks(second, 2)
    await bench.abandon(held, changes=b"changed")
    await first.woken(1)
    bench.later(GRACE)
    await bench.send(b"n")
    again, new = (await offer_to(second)).messages
    assert (again.name, again.failures, again.changes, new.name) == ("1", 1, b"changed", "2")


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40), st.booleans()), min_size=1))
def test_an_offer_is_read_as_it_was_written(messages: list[tuple[bytes, bytes, bool]]) -> None:
    texts = [b"tokentokento", b"7", b"1700000000123", b"30000", b"%d" % len(messages)]
    texts += [b"%d" % number for number, _ in enumerate(messages, 1)]
    texts += [b"a0%013d%b" % (5, record) for record, _, _ in messages]
    for place, (_, changes, known) in enumerate(messages, 1):
        texts += [b"%d" % place, b"a-000030000000000009", changes] if known else []
    offer = read_offer(b"+" + b"".join(b"%d:%b" % (len(text), text) for text in texts))
    assert offer is not None
    assert offer[:4] == ("tokentokento", 7, 1_700_000_000_123, 30_000)
    read = [(each.name, each.record[15:], each.failures, each.changes, each.expires) for each in offer.messages]
    assert read == [
        (str(place), record, 3 if known else 0, changes if known else b"", 9 if known else None)
        for place, (record, changes, known) in enumerate(messages, 1)
    ]


def test_a_plain_wake_has_no_offer() -> None:
    assert read_offer(b"sb:ns:{abc}:e:state ") is None


# -- where there are no offers -----------------------------------------------------------------------------------------


async def test_a_receiver_that_nobody_hears_gets_no_offer_and_the_next_one_does(
    bench: Bench, listening: Receivers
) -> None:
    gone, heard = Receiver(bench, "gone"), await listening("a")
    await asks(gone)
    bench.later(10)
    await asks(heard)
    await bench.send(b"m")
    assert [message.name for message in (await offer_to(heard)).messages] == ["1"]
    await bench.send(b"n")
    assert await bench.payloads() == [b"n"]


@pytest.mark.parametrize("changes", [{"status": "ReceiveDisabled"}, {"forwards": True}])
async def test_there_are_no_offers_where_nothing_may_be_received(
    bench: Bench, listening: Receivers, changes: dict[str, Any]
) -> None:
    receiver = await listening("a")
    await asks(receiver)
    await bench.change(**changes)
    await bench.send(b"m")
    await receiver.woken(1)
    assert (await bench.count()).active == 1


async def test_a_transaction_offers_the_messages_that_it_stores(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    await asks(receiver)
    send = Operation(bench.partition, bench.partition.send(CallId("", 0, bench.now), [Outgoing(b"m")]))
    await bench.tell(transact(bench.call_id(), [send]))
    assert len((await offer_to(receiver)).messages) == 1


async def test_other_calls_wake_without_an_offer(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    await bench.send(b"m")
    held = await bench.one()
    await asks(receiver)
    await bench.abandon(held)
    await receiver.woken(1)
    assert (await bench.count()).locked == 0


async def test_a_registration_without_offers_ends_an_earlier_one_with_offers(
    bench: Bench, listening: Receivers
) -> None:
    receiver = await listening("a")
    await asks(receiver)
    await look(receiver)
    await bench.send(b"m")
    await receiver.woken(1)
    assert (await bench.count()).active == 1


@set_to(audited=True)
async def test_the_settlements_show_an_offer_and_its_lapse(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    await offered(bench, receiver, b"m")
    bench.later(OFFER_MS)
    await bench.due()
    read = await bench.tell(read_settlements(bench.partition, call_id=CallId("", 0, bench.now)))
    assert [each.event for each in read.settlements] == [SettlementEvent.GIVEN, SettlementEvent.RELEASED]


# -- taking, declining, lapsing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("looking", [True, False])
async def test_a_taken_offer_is_a_lock_of_the_full_duration(bench: Bench, listening: Receivers, looking: bool) -> None:
    receiver = await listening("a")
    offer = await offered(bench, receiver, b"m")
    bench.later(OFFER_MS - 1)
    last = Last(offer.token, read=True)
    taken: Looked | Received
    if looking:
        taken = await look(receiver, last=last)
    else:
        taken = await bench.tell(bench.partition.receive(bench.call_id(), new_token(), 1, last=last))
    assert (taken.taken, taken.clock) == (LOCK, bench.now)
    bench.later(LOCK - 1)
    assert (await bench.count()).locked == 1
    bench.later(1)
    assert await bench.payloads() == [b"m"]
    assert (await bench.peek())[0].failures == 1


async def test_an_offer_lapses_after_a_second_without_a_failed_delivery(bench: Bench, listening: Receivers) -> None:
    """The receiver that takes it too late learns that it is gone."""
    receiver = await listening("a")
    offer = await offered(bench, receiver, b"m")
    bench.later(OFFER_MS - 1)
    assert (await bench.count()).locked == 1
    bench.later(1)
    looked = await look(receiver, last=Last(offer.token, read=True))
    assert (looked.taken, looked.found) == (0, True)
    assert (await bench.one()).deliveries == 1


async def test_a_declined_offer_is_given_out_again_by_the_same_call(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    offer = await offered(bench, receiver, b"m")
    last = Last(offer.token, read=False)
    received = await bench.tell(bench.partition.receive(bench.call_id(), new_token(), 1, last=last))
    assert [(each.name, each.failures) for each in received.messages] == [("1", 0)]
    assert received.taken == 0


async def test_a_look_that_leaves_passes_a_declined_offer_on(bench: Bench, listening: Receivers) -> None:
    first, second = await listening("a"), await listening("b")
    offer = await offered(bench, first, b"m")
    await asks(second)
    await look(first, last=Last(offer.token, read=False), waiting_for=0)
    await second.woken(1)
    assert (await bench.count()).active == 1


async def test_an_offer_that_was_declined_or_settled_is_not_there(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    offer = await offered(bench, receiver, b"m")
    await bench.tell(bench.partition.complete(bench.call_id(), [Lock(offer.token, "1")]))
    assert (await look(receiver, last=Last(offer.token, read=True))).taken == 0
    assert (await look(receiver, last=Last(offer.token, read=False))).taken == 0
    assert (await bench.count()).locked == 0


async def test_a_renewal_takes_an_offer(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    offer = await offered(bench, receiver, b"m")
    assert (await bench.renew(leases=[offer.token])).ended == ()
    bench.later(LOCK - 1)
    assert (await bench.count()).locked == 1
    assert (await look(receiver, last=Last(offer.token, read=False))).taken == 0
    assert (await bench.count()).locked == 1


async def test_a_repeated_call_takes_an_offer_once(bench: Bench, listening: Receivers) -> None:
    """The repetition reports the time that is left of the lock, or that the lock has ended."""
    receiver = await listening("a")
    offer = await offered(bench, receiver, b"m")
    request = bench.partition.receive(CallId("r", 1, bench.now), new_token(), 1, last=Last(offer.token, read=True))
    assert (await bench.tell(request)).taken == LOCK

    async def repeated() -> int:
        later = (*request.arguments[:4], bench.now, *request.arguments[5:])
        return (await bench.tell(request._replace(arguments=later))).taken

    bench.later(10)
    assert await repeated() == LOCK - 10
    bench.later(LOCK)
    assert await repeated() == 0


async def test_the_lapse_of_an_offer_neither_wakes_nor_announces(bench: Bench, listening: Receivers) -> None:
    first, second = await listening("a"), await listening("b")
    announced = await bench.transport.command("HGET", bench.partition.keys[0], "announced", key=bench.partition.keys[0])
    await offered(bench, first, b"m")
    looked = await look(second)
    assert looked.due == 0
    after = await bench.transport.command("HGET", bench.partition.keys[0], "announced", key=bench.partition.keys[0])
    assert after == announced
    await second.woken(0)


async def test_a_partition_without_the_field_makes_offers_too(bench: Bench, listening: Receivers) -> None:
    """Partitions that earlier releases made lack the bound of the ends of offers."""
    receiver, key = await listening("a"), bench.partition.keys[0]
    await bench.transport.command("HDEL", key, "offered", key=key)
    await offered(bench, receiver, b"m")
    bench.later(OFFER_MS)
    assert await bench.payloads() == [b"m"]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["no channel", "the dead letters", "deletes", "the same token"])
async def test_a_call_that_may_not_ask_for_offers_is_refused(bench: Bench, listening: Receivers, how: str) -> None:
    receiver, token = await listening("a"), new_token()
    given: dict[str, Any] = {"waiter": b"" if how == "no channel" else receiver.channel}
    given["side"] = "d" if how == "the dead letters" else ""
    given["mode"] = "delete" if how == "deletes" else "lock"
    asked = Asked(token if how == "the same token" else new_token(), 1)
    with pytest.raises(MalformedCallError):
        await bench.tell(bench.partition.receive(bench.call_id(), token, 1, asked=asked, **given))
