"""A network connection that a test cuts when the client calls a script, or the server answers or pushes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sbredis.engine import whole_library
from sbredis.servers import LocalServer
from tests.transport.between import Between

__all__ = ["PushScissors", "Scissors"]


class Scissors(Between):
    """Cuts the connection a number of times: before the server receives a call, after the script has run and before the
    answer arrives, or after the answer has arrived.
    """

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server)
        self.cuts = 0
        self._left = 0
        self._name = b""
        self._asked = False
        self._on_the_way = self._after = False
        self._then: Callable[[], Awaitable[object]] | None = None

    def cut(
        self,
        script: str,
        times: int = 1,
        *,
        on_the_way: bool = False,
        after: bool = False,
        then: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Lose the answers to the next calls of a script or, with ``on_the_way``, the calls themselves.

        With ``after`` the connection breaks after it has carried the answer. ``then`` is called before the connection
        breaks. The server has the library already, so the answer is not that the function is missing.
        """
        library = whole_library()
        self._server.ask("FUNCTION", "LOAD", "REPLACE", library.source)
        self._name, self._left, self._on_the_way = f"{library.name}_{script}\r\n".encode(), times, on_the_way
        self._after = after
        self._then = then

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(1 << 20):
            if self._left and not answers and self._name in data:
                if self._on_the_way:
                    self._left -= 1
                    self.cuts += 1
                    await self._before_cutting()
                    return
                self._asked = True
            elif self._asked and answers:
                self._asked = False
                self._left -= 1
                self.cuts += 1
                if self._after:
                    writer.write(data)
                    await writer.drain()
                await self._before_cutting()
                return
            writer.write(data)
            await writer.drain()

    async def _before_cutting(self) -> None:
        if self._then is not None:
            await self._then()


class PushScissors(Between):
    """Cuts the connection in the middle of a push."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server)
        self.cuts = 0
        self._after: int | None = None
        self.size = 0
        """The bytes of the last push that was cut."""

    def cut(self, after: int) -> None:
        """Cut the next push after this number of its bytes."""
        self._after = after

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(1 << 20):
            if self._after is not None and answers and (name := data.find(b"smessage")) >= 0:
                begins = max(data.rfind(kind, 0, name) for kind in (b">3\r\n", b"*3\r\n"))
                cut, self._after = begins + self._after, None
                self.size, self.cuts = len(data) - begins, self.cuts + 1
                writer.write(data[:cut])
                await writer.drain()
                return
            writer.write(data)
            await writer.drain()
