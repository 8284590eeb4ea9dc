"""Moving dead letters back to the main side."""

from __future__ import annotations

import pytest

from sbredis.engine import MAXIMUM_CHANGES_BYTES, NO_CALL_ID, Partition, PartitionSettings, Redrive
from tests.engine.bench import Bench
from tests.engine.granting import grantors, names


async def dead(bench: Bench, *payloads: bytes, changes: bytes = b"", time_to_live: int | None = None) -> list[str]:
    """Send messages and make them dead letters; return their names."""
    await bench.send(*payloads, time_to_live=time_to_live)
    before = await bench.peek(side="d")
    await bench.dead_letter(*await bench.receive(len(payloads)), changes=changes)
    return [message.name for message in (await bench.peek(side="d"))[len(before) :]]


async def test_a_receiver_with_credit_gets_a_redriven_message(bench: Bench) -> None:
    (name,) = await dead(bench, b"one")
    receiver = await (await grantors(bench))("a")
    assert names(await receiver.grant()) == []
    moved = await bench.redrive(name)
    assert await receiver.pushed() == [str(moved.first)]


def test_a_request_takes_dead_letters_only_and_each_once() -> None:
    of = Partition("n", "abc", "e", "i", 1, PartitionSettings())
    with pytest.raises(ValueError, match="dead letter"):
        of.redrive(NO_CALL_ID, [Redrive("1")])
    with pytest.raises(ValueError, match="twice"):
        of.redrive(NO_CALL_ID, [Redrive("d1"), Redrive("d1")])
    with pytest.raises(ValueError, match="changes of d1"):
        of.redrive(NO_CALL_ID, [Redrive("d1", changes=b"x" * (MAXIMUM_CHANGES_BYTES + 1))])
