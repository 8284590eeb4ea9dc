"""Fake servers that answer with the replies that a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from sbredis.transport._resp import ProtocolError, PythonParser

__all__ = ["Flood", "answering", "flooding", "never_answering", "node_of_cluster", "old_server", "suitable_server"]

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


class Flood:
    """The bytes that an impostor sends without an end."""

    def __init__(self, beginning: bytes, rest: bytes) -> None:
        self.beginning = beginning
        self.rest = rest
        self.most = 0
        """The largest number of bytes that a client, and the network before it, has taken on one connection."""


@asynccontextmanager
async def flooding(flood: Flood, *, instead_of: bytes) -> AsyncIterator[str]:
    """Run a server that floods the client in answer to a command, and answers others as a suitable server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = PythonParser()
        try:
            while data := await reader.read(65536):
                for words in parser.feed(data):
                    if words[0].upper() != instead_of or words[-1] == b"1":  # the trial call when the client opens
                        writer.write(suitable_server(words))
                        continue
                    writer.write(flood.beginning)
                    sent = 0
                    while True:
                        writer.write(flood.rest)
                        await writer.drain()
                        await asyncio.sleep(0)  # the client may be in the same event loop
                        sent += len(flood.rest)
                        flood.most = max(flood.most, sent)
        except (ConnectionError, ProtocolError):
            return
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def node_of_cluster(role: str, masters: Sequence[str]) -> Answer:
    """Return the replies of a node of a cluster in which these masters, each ``host:port``, share the slots."""
    ranges = list[bytes]()
    for number, master in enumerate(masters):
        host, _, port = master.partition(":")
        first, last = (each * 16384 // len(masters) for each in (number, number + 1))
        address = b"*2\r\n$%d\r\n%b\r\n:%b\r\n" % (len(host), host.encode(), port.encode())
        ranges.append(b"*3\r\n:%d\r\n:%d\r\n" % (first, last - 1) + address)

    def answer(words: list[bytes]) -> bytes:
        if [word.upper() for word in words] == [b"CLUSTER", b"SLOTS"]:
            return b"*%d\r\n" % len(ranges) + b"".join(ranges)
        if words[0].upper() == b"INFO":
            text = f"redis_version:7.4.99\r\nredis_mode:cluster\r\nrole:{role}\r\nmaxmemory_policy:noeviction\r\n"
            return b"$%d\r\n%b\r\n" % (len(text), text.encode())
        return suitable_server(words)

    return answer


def suitable_server(words: list[bytes]) -> bytes:
    """Return the replies of a Redis 7.4 to the questions of the client."""
    return old_server(words).replace(b"6.2.14", b"7.4.99")
