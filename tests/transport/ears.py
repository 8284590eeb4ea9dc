"""A listener that records messages."""

from __future__ import annotations

from sbredis.transport import Transport
from tests.waiting import eventually

__all__ = ["Ear", "all_heard"]

_LAST = b"last"


class Ear:
    """Records messages, and counts the gaps of which it is notified."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.gaps = 0

    def message(self, payload: bytes) -> None:
        self.heard.append(payload)

    def gap(self) -> None:
        self.gaps += 1


async def all_heard(transport: Transport, channel: bytes, ear: Ear) -> list[bytes]:
    """Return all messages that were published on a channel since the last time."""
    await transport.command("SPUBLISH", channel, _LAST, key=channel)
    await eventually(lambda: _LAST in ear.heard)
    heard, ear.heard = ear.heard, []
    return [said for said in heard if said != _LAST]
