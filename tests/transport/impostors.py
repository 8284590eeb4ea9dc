"""Fake servers that answer with the replies that a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sbredis.transport._resp import ProtocolError, PythonParser

__all__ = ["answering", "never_answering", "old_server"]

Answer = Callable[[list[bytes]], bytes]
"""A function from the words of a command to its reply. If the reply is empty, the server sends nothing."""


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """Run a server that answers with this function, and yield its ``host:port``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = PythonParser()
        try:
            while data := await reader.read(65536):
                for words in parser.feed(data):
                    writer.write(answer(words))
        except (ConnectionError, ProtocolError):  # the client may try TLS
            return
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def never_answering(_: list[bytes]) -> bytes:
    """Answer no command."""
    return b""


def old_server(words: list[bytes]) -> bytes:
    """Return the replies of a Redis 6.2 to the questions of the client."""
    match [word.upper() for word in words[:2]]:
        case [b"HELLO", *_]:
            return b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n"
        case [b"INFO", *_]:
            text = b"redis_version:6.2.14\r\nredis_mode:standalone\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"
            return b"$%d\r\n%b\r\n" % (len(text), text)
        case [b"CONFIG", *_]:
            return b"%1\r\n+appendfsync\r\n+everysec\r\n"
        case [b"EVALSHA", *_]:
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        case _:
            return b"+OK\r\n"
