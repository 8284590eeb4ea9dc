"""Several transactions in one call: each of them happens or is refused on its own."""

from __future__ import annotations

import pytest

from sbredis.engine import Outgoing, PartRefusedError, Transacted, TransactedTogether, transact_together
from sbredis.exceptions import MessageLockLostError
from tests.engine.transactions import World

ONE = "one-one-AAB"


def kinds(done: TransactedTogether) -> list[type]:
    """Return the class of the result or the refusal of each transaction."""
    return [type(each.reason if isinstance(each, PartRefusedError) else each) for each in done.outcomes]


async def test_each_transaction_of_a_call_happens_or_is_refused_on_its_own(world: World) -> None:
    await world.send("a", b"1", b"2", b"3")
    one, two, three = await world.lock("a", ONE, 3)
    done = await world.tell(
        transact_together(
            world.call_id(),
            [
                [world.settling("complete", "a", one), world.sending("b", Outgoing(b"first"))],
                [world.settling("complete", "a", two), world.settling("complete", "a", one)],
                [world.settling("abandon", "a", two), world.sending("b", Outgoing(b"third"))],
            ],
        )
    )
    assert kinds(done) == [Transacted, MessageLockLostError, Transacted]
    assert "changed nothing" in str(done.outcomes[1])
    assert await world.bodies("b") == [b"first", b"third"]
    assert (await world.tell(world.of["a"].complete(world.call_id(), [three]))).lost == ()
    assert await world.bodies("a") == [b"2"]


@pytest.mark.parametrize("count", [0, 101])
async def test_a_call_has_one_to_a_hundred_transactions(world: World, count: int) -> None:
    with pytest.raises(ValueError, match="a call has 1 to 100 transactions"):
        transact_together(world.call_id(), [[world.sending("a", Outgoing(b"x"))]] * count)
