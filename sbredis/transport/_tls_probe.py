"""Finding out whether a port uses TLS, for the case that the connection string has the wrong scheme.

A server without TLS takes the beginning of a TLS handshake for the beginning of a command, and waits for the rest. A
server with TLS hangs up on a command. Both look like a server that cannot be reached. So after such a failure the
client tries the other way: with TLS, or without it. It sends no secret for this.
"""

from __future__ import annotations

import asyncio
import ssl

from sbredis._tasks import ended
from sbredis.transport._address import Endpoint
from sbredis.transport._link import Link
from sbredis.transport._replies import Failure, FailureKind

__all__ = ["connect", "with_tls_hint"]

_ASK_AFTER = 0.3
"""Seconds without an answer to the TLS handshake, after which the server is asked without TLS."""
_ANSWER_WITHIN = 1.0


async def connect(link: Link, endpoint: Endpoint, *, secure: bool) -> Failure | None:
    """Open a connection.

    Return a failure at once if the client uses TLS and the server has no TLS. Raises if the connection cannot be opened
    for another reason.
    """
    if not secure:
        await link.connect()
        return None
    connecting = asyncio.ensure_future(link.connect())
    try:
        await asyncio.wait((connecting,), timeout=_ASK_AFTER)
        if not connecting.done() and await _answers_without_tls(endpoint):
            return _mismatch(
                endpoint,
                "does not speak TLS there: use its port with TLS. With redis:// instead of rediss://, everybody on the "
                "way can read and change the password and all messages",
            )
        await connecting
    finally:
        connecting.cancel()
        await ended(connecting)
    return None


async def with_tls_hint(failure: Failure, endpoint: Endpoint, *, secure: bool) -> Failure:
    """If the server requires TLS, return a failure that says so; otherwise return the given failure."""
    if secure or not endpoint.port or failure.kind is not FailureKind.UNREACHABLE:
        return failure
    if await _answers_with_tls(endpoint):
        return _mismatch(endpoint, "speaks TLS: use rediss:// instead of redis://, or its port without TLS")
    return failure


def _mismatch(endpoint: Endpoint, said: str) -> Failure:
    return Failure(FailureKind.UNSUITABLE, f"{endpoint} {said}.", endpoint=endpoint)


async def _answers_without_tls(endpoint: Endpoint) -> bool:
    """Whether the server answers PING without TLS: with PONG, or with an error, such as a missing authentication."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            try:
                writer.write(b"PING\r\n")
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except (OSError, ValueError):
        return False
    return line.startswith((b"+PONG", b"-"))


async def _answers_with_tls(endpoint: Endpoint) -> bool:
    """Whether the server takes part in a TLS handshake, even if it then refuses our certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no certificate is checked, because no data is sent
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
            writer.transport.abort()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True
