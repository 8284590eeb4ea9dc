"""A stretch of network that is cut when the answer to a script comes back."""

from __future__ import annotations

import asyncio

from sbredis.engine import load
from sbredis.servers import LocalServer
from tests.transport.between import Between

__all__ = ["Scissors"]


class Scissors(Between):
    """Cuts the connection so many times, each time when a certain script has run and before its answer arrives."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server)
        self.cuts = 0
        self._left = 0
        self._sha = b""
        self._asked = False

    def cut(self, script: str, times: int = 1) -> None:
        """The answers to the next so many calls of a script do not arrive."""
        self._sha, self._left = load(script).sha.encode(), times

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(1 << 20):
            if self._left and not answers and b"EVALSHA" in data and self._sha in data:
                self._asked = True
            elif self._asked and answers:
                self._asked = False
                self._left -= 1
                self.cuts += 1
                return
            writer.write(data)
            await writer.drain()
