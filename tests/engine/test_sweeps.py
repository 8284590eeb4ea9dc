"""Moves of many sources at once: a sweep of several sources, and a take of several batches."""

from __future__ import annotations

import pytest

from sbredis.engine import (
    MOST_SWEPT,
    MOST_TAKEN,
    Batch,
    Origin,
    Partition,
    PartitionSettings,
    Request,
    Swept,
    Taken,
    sweep_together,
    take_together,
)
from tests.engine.moves import A, Town, body_of


async def sweep(town: Town, *sources: tuple[str, Batch | None], wanted: int = 100, room: int = 1 << 20) -> list[Swept]:
    """Sweep sources, each with the batch that its destination has taken."""
    requests = [
        town.of[name].sweep(
            A, "the-a", taken, await town.birth(name) if taken else "", wanted=wanted, room=room, now=town.now
        )
        for name, taken in sources
    ]
    return [*await town.tell(sweep_together(requests))]


def taking(town: Town, *found: tuple[str, Swept]) -> list[Request[Taken]]:
    """Return the requests that let the destination take batches."""
    return [town.taking(of.batch, of.birth, *of.messages, name=name) for name, of in found if of.batch is not None]


async def test_several_sources_move_their_messages_in_three_calls(town: Town) -> None:
    """One call freezes in all sources, one takes all batches, and one settles them and finds that nothing waits."""
    await town.put("n", forwards="1")
    before = await town.everything("q", "n", "e")
    await town.send("q", b"one", b"two")
    await town.send("n", b"three")
    q, n, e = await sweep(town, ("q", None), ("n", None), ("e", None))
    assert [each.state for each in (q, n, e)] == ["frozen", "frozen", "nothing"]
    assert [[body_of(one) for one in each.messages] for each in (q, n)] == [[b"one", b"two"], [b"three"]]
    taken = await town.tell(take_together(taking(town, ("q", q), ("n", n))))
    assert [each.verdict for each in taken] == ["taken", "taken"]
    assert {*taken[1].strangers} == {Origin("q", q.birth)}
    left = await sweep(town, ("q", q.batch), ("n", n.batch), ("e", None))
    assert [each.state for each in left] == ["nothing"] * 3
    assert await town.bodies("a") == [b"one", b"two", b"three"]
    after = await town.everything("q", "n", "e")
    for key in (key for key in before if key.rpartition(":")[2] in {"order", "entries", "due", "refs", "m0"}):
        assert after.get(key) == before[key]
    for name in "qn":
        assert await town.field(name, "store", "bytes") == b"0"
        assert await town.field(name, "state", "calling") == b""


async def test_a_sweep_keeps_its_limits_over_all_sources(town: Town) -> None:
    """At least one message is frozen, however large it is."""
    await town.put("n", forwards="1")
    await town.send("q", *[b"%d" % number for number in range(5)])
    await town.send("n", b"x" * 1000)
    q, n = await sweep(town, ("q", None), ("n", None), wanted=3)
    assert (len(q.messages), n.state) == (3, "limits")
    q, n = await sweep(town, ("q", q.batch), ("n", None), room=500)
    assert (len(q.messages), n.state) == (2, "limits")
    q, n = await sweep(town, ("q", q.batch), ("n", None), room=500)
    assert (q.state, len(n.messages)) == ("nothing", 1)
    q, n = await sweep(town, ("q", None), ("n", n.batch), wanted=0)
    assert (q.state, n.state) == ("limits", "limits")
    assert await town.bodies("n") == []


async def test_a_sweep_goes_on_beside_a_source_that_refuses_it(town: Town) -> None:
    await town.send("q", b"one")
    await town.put("n", forwards="1", version="2")
    q, n = await sweep(town, ("q", None), ("n", None))
    assert (q.state, n.state) == ("frozen", "other")


async def test_each_batch_of_a_call_has_a_verdict_of_its_own(town: Town) -> None:
    """A batch that comes twice in a call is stored once, and one that is refused does not hold up the next."""
    await town.put("n", forwards="1")
    await town.send("q", b"one")
    await town.send("n", b"x" * 100)
    found = await sweep(town, ("q", None), ("n", None))
    key = town.of["a"].keys[8]
    await town.transport.command("HSET", key, "quota", 60, key=key)
    q, n = taking(town, *zip("qn", found, strict=True))
    taken = await town.tell(take_together([n, q, q]))
    assert [each.verdict for each in taken] == ["QUOTA", "taken", "taken"]
    assert await town.bodies("a") == [b"one"]
    after = await town.everything("a")
    assert [each.verdict for each in await town.tell(take_together([q, n]))] == ["taken", "QUOTA"]
    assert await town.everything("a") == after


def test_malformed_groups_are_refused_before_they_are_sent() -> None:
    of = {
        name: Partition("n", salt, name, "i", 1, PartitionSettings())
        for name, salt in (("q", "abc"), ("r", "abc"), ("a", "abd"))
    }
    one, other, elsewhere = (of[name].sweep(A, "i") for name in "qra")
    for wrong in ([], [one, one], [one, elsewhere], [one] * (MOST_SWEPT + 1)):
        with pytest.raises(ValueError, match=r"source"):
            sweep_together(wrong)
    assert sweep_together([one, other]).keys == (*one.keys, *other.keys)
    batch = Batch(A, "i", 1, ("1",))
    takes = [of[name].take(Origin("x", "birth"), batch, "", None) for name in "qr"]
    for wrong_takes in ([], takes, [takes[0]] * (MOST_TAKEN + 1)):
        with pytest.raises(ValueError, match=r"batch"):
            take_together(wrong_takes)
    with pytest.raises(ValueError, match="birth"):
        of["q"].sweep(A, "i", batch)
    with pytest.raises(ValueError, match="birth"):
        of["q"].sweep(A, "i", None, "birth")
