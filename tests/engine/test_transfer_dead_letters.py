"""Transfers that their destination has refused: they are dead letters, and a redrive makes them transfers again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import (
    Changes,
    Delivery,
    Lock,
    Partition,
    Recipient,
    Redrive,
    Redriven,
    calling,
    decode_changes,
    encode_changes,
    recipient_of,
)
from sbredis.exceptions import MessagingEntityDisabledError
from tests.engine.moves import NAMESPACE, SETTINGS, A, B, Town, body_of


async def refused(town: Town, *bodies: bytes, name: str = "n") -> tuple[Delivery, ...]:
    """Store transfers and let their destination refuse them; return the transfer dead letters."""
    await town.transfer(name, A, *bodies)
    messages = (await town.waiting(name)).messages
    batch = await town.freeze(A, *messages, name=name)
    assert batch is not None
    changes: dict[str, bytes] = {}
    for each in messages:
        before = decode_changes(each.changes)
        before.reason = "QuotaExceeded"
        changes[each.name] = encode_changes(before)
    assert await town.tell(town.settling(batch, "refused", await town.birth(name), changes=changes, name=name))
    return await town.peek(name, "t")


async def redrive(town: Town, *messages: Redrive, name: str = "n") -> Redriven:
    return await town.tell(town.of[name].redrive(town.call_id(), messages))


async def test_a_transfer_dead_letter_still_names_its_destination(town: Town) -> None:
    (dead,) = await refused(town, b"one")
    assert recipient_of(dead) == Recipient("a", "the-a", 1, "a")


async def test_redriven_transfers_wait_for_a_mover_again(town: Town) -> None:
    """They are stored like new transfers, have the destination that the client has given, and call for a mover."""
    one, two = await refused(town, b"one", b"two")
    await town.put("n", calling="")
    changes = Recipient("b", "the-b", 2, "b").changes(Changes(properties={"redriven": True}))
    result = await redrive(
        town, Redrive(two.name, 5000, changes), Redrive(one.name, None, changes), Redrive("t999", None, changes)
    )
    assert (result.missing, result.unfit, result.left) == (("t999",), (), 0)
    assert await town.tell(calling(NAMESPACE, "abc", ["n"])) == (True,)
    waiting = (await town.waiting("n")).messages
    assert [(each.name, each.state, body_of(each)) for each in waiting] == [
        (str(result.first), "x", b"two"),
        (str(result.first + 1), "x", b"one"),
    ]
    assert {each.changes for each in waiting} == {changes}
    assert waiting[0].record.startswith(b"a0%013d" % town.now)
    assert await town.peek("n", "t") == ()
    assert await town.field("n", "store", "bytes") == b"%d" % sum(len(e.record) + len(changes) for e in waiting)
    await town.move(B, *waiting, name="n")
    assert await town.bodies("b") == [b"two", b"one"]
    assert await town.field("n", "store", "bytes") == b"0"


async def test_a_transfer_dead_letter_is_redriven_once(town: Town) -> None:
    (dead,) = await refused(town, b"one")
    again = Redrive(dead.name, None, Recipient("a", "the-a", 1, "a").changes())
    assert (await redrive(town, again)).missing == ()
    assert (await redrive(town, again)).missing == (dead.name,)
    assert len((await town.waiting("n")).messages) == 1


async def test_locked_transfer_dead_letters_stay_and_delayed_or_deferred_ones_do_not(town: Town) -> None:
    letters = await refused(town, b"locked", b"delayed", b"deferred")
    token = "one-one-AAB"
    await town.receive("n", token, 3, side="t")
    await town.tell(town.of["n"].abandon(town.call_id(), [Lock(token, letters[1].name, delay=60_000)]))
    await town.tell(town.of["n"].defer(town.call_id(), [Lock(token, letters[2].name)]))
    changes = Recipient("a", "the-a", 1, "a").changes()
    result = await redrive(town, *(Redrive(each.name, None, changes) for each in letters))
    assert result.missing == (letters[0].name,)
    assert [body_of(each) for each in (await town.waiting("n")).messages] == [b"delayed", b"deferred"]


async def test_a_topic_redrives_its_transfer_dead_letters(town: Town) -> None:
    (dead,) = await refused(town, b"one", name="t")
    await redrive(town, Redrive(dead.name, None, Recipient("a", "the-a", 1, "a").changes()), name="t")
    assert len((await town.waiting("t")).messages) == 1


async def test_an_entity_with_sessions_redrives_transfers_without_a_session(town: Town) -> None:
    town.of["n"] = Partition(NAMESPACE, "abc", "e", "the-e", 1, replace(SETTINGS, sessions=True))
    await town.tell(town.of["n"].configure(create=True, now=town.now))
    (dead,) = await refused(town, b"one")
    result = await redrive(town, Redrive(dead.name, None, Recipient("a", "the-a", 1, "a").changes()))
    assert (result.missing, result.unfit) == ((), ())


async def test_an_entity_that_is_disabled_refuses_the_redrive(town: Town) -> None:
    (dead,) = await refused(town, b"one")
    town.of["n"] = Partition(NAMESPACE, "abc", "n", "the-n", 2, replace(SETTINGS, status="Disabled"))
    await town.tell(town.of["n"].configure(now=town.now))
    before = await town.everything()
    with pytest.raises(MessagingEntityDisabledError):
        await redrive(town, Redrive(dead.name, None, Recipient("a", "the-a", 1, "a").changes()))
    assert await town.everything() == before


async def test_the_purpose_of_a_batch_is_given_to_every_mover(town: Town) -> None:
    purpose = b"any \x00 bytes\n, also blanks "
    (name,) = await town.bury("n", b"one")
    messages = await town.peek("n", "d")
    batch = await town.freeze(A, *messages, name="n", purpose=purpose)
    assert batch is not None
    assert (batch.names, batch.purpose) == ((name,), purpose)
    assert await town.freeze(A, *messages, name="n", purpose=b"other") == batch
    assert (await town.waiting("n")).batches == (await town.read(A, "n")).batches == (batch,)
    assert await town.tell(town.settling(batch, "taken", await town.birth("n"), name="n"))
    assert await town.peek("n", "d") == ()
