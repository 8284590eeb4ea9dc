"""A network between a client and a server, in which tests cause faults."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from sbredis.servers import LocalServer


class Between:
    """Carries bytes in both directions until one side ends, or :meth:`carry` returns."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._serving: list[asyncio.Task[None]] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """Listen on a port of its own; at the end close all connections of clients."""
        door = socket.socket()
        # small, because data in a large buffer would look like progress
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        door.bind(("127.0.0.1", 0))
        listener = await asyncio.start_server(self._accept, sock=door)
        self.port = door.getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            await asyncio.gather(*self._serving)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        """Carry bytes in one direction: requests to the server, or answers back to the client."""
        raise NotImplementedError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # the stream server runs this in a task
        self._serving.append(task)
        server_reader, server_writer = await asyncio.open_connection(self._server.host, self._server.port)
        ways = [
            asyncio.create_task(self.carry(reader, server_writer, answers=False)),
            asyncio.create_task(self.carry(server_reader, writer, answers=True)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for stream in (writer, server_writer):
            stream.transport.abort()
            await asyncio.gather(stream.wait_closed(), return_exceptions=True)
