"""Receivers for the tests of waking; each one listens and waits on its own channel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sbredis.engine import SidePrefix
from sbredis.engine._keys import waiting_channel
from sbredis.engine._results import Looked
from tests.engine.bench import NAMESPACE, SALT, Bench
from tests.transport.ears import Ear
from tests.waiting import eventually

__all__ = ["Receiver", "Receivers"]

ENOUGH = b"enough"


class Receiver:
    """A client that listens on its own channel and waits there."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        self.channel = waiting_channel(NAMESPACE, SALT, "q", name)
        self.ear = Ear()

    async def receive(self, wanted: int = 1, *, side: SidePrefix = "") -> list[bytes]:
        """Receive messages and return them; if there are none, wait from now on."""
        held, _ = await self.bench.receive_more(wanted, side=side, waiter=self.channel, waiting_for=wanted)
        return [message.payload for message in held]

    async def look(self, waiting_for: int = 1, *, side: SidePrefix = "") -> Looked:
        """Return whether a look finds something to receive; if not, wait from now on."""
        return await self.bench.look(side=side, waiter=self.channel, waiting_for=waiting_for)

    async def woken(self, times: int) -> None:
        """Check that the receiver was woken exactly this many times since the previous check."""
        await self.bench.transport.command("SPUBLISH", self.channel, ENOUGH, key=self.channel)
        await eventually(lambda: ENOUGH in self.ear.heard)
        heard = [said for said in self.ear.heard if said != ENOUGH]
        self.ear.heard.clear()
        assert len(heard) == times, heard


Receivers = Callable[[str], Awaitable[Receiver]]
