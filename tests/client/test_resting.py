"""Receivers that rest are woken when their entity cannot be reached."""

from __future__ import annotations

from functools import partial

from sbredis.client._resting import RestingReceivers
from sbredis.client._turns import TurnShare
from tests.waiting import eventually


class Reached:
    """An entity whose connection a test cuts."""

    def __init__(self) -> None:
        self.cut = False
        self.checks = 0

    @property
    def connected(self) -> bool:
        self.checks += 1
        return not self.cut


async def test_the_receivers_of_an_entity_that_cannot_be_reached_are_woken_once() -> None:
    """One that has left is not woken, nor one of another entity. An entity is looked at once for all of them."""
    resting, lost, other, woken = RestingReceivers(TurnShare(10)), Reached(), Reached(), list[str]()
    receivers = [partial(woken.append, str(number)) for number in range(31)]
    for receiver in receivers:
        resting.rest(lost, receiver)
    resting.rest(other, partial(woken.append, "other"))
    resting.leave(lost, receivers[30])
    resting.leave(other, receivers[30])
    await eventually(lambda: other.checks)
    assert (lost.checks, woken) == (other.checks, [])
    lost.cut = True
    await eventually(lambda: len(woken) == 30)
    before = other.checks
    await eventually(lambda: other.checks > before)
    assert woken == [str(number) for number in range(30)]
