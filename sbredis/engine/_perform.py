"""Sending a request: the one place where the engine waits."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from sbredis.engine._refusals import REFUSALS, Refusal, refused
from sbredis.engine._request import Request
from sbredis.exceptions import ScriptRefusedError
from sbredis.transport import Argument, Script

__all__ = ["ScriptCaller", "perform"]

T = TypeVar("T")


class ScriptCaller(Protocol):
    """The method of a transport that the engine needs; a protocol, so that the engine need not import redis-py."""

    async def call(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument] = (),
        *,
        timeout: float = 60.0,
        repeatable: bool = False,
        durability: Literal["master", "replicated"] | None = None,
        written: Callable[[], None] | None = None,
    ) -> Any:
        """Run a script on the server of its keys, and return the reply.

        ``written`` is called each time before the call is written to a connection.
        """
        ...


async def perform(
    transport: ScriptCaller,
    request: Request[T],
    *,
    timeout: float = 60.0,
    durability: Literal["master", "replicated"] | None = None,
    refusals: Mapping[str, Refusal] = REFUSALS,
    first: Awaitable[Any] | None = None,
    written: Callable[[], None] | None = None,
) -> T:
    """Send a request and read its result. Raises the errors of the transport. A refusal raises the error for its code.

    ``refusals`` is the table from the script's codes to errors; the default is the table for partitions. A partition
    refuses a call with DUE if the partition has more due work than one call does. This function repeats such a call as
    long as there is time. If the request was sent already, ``first`` waits for the reply to it. ``written`` is called
    each time before the request is written to a connection.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            attempt = first or transport.call(
                request.script,
                request.keys,
                request.arguments,
                timeout=timeout,
                repeatable=request.repeatable,
                durability=durability,
                written=written,
            )
            first = None
            reply = await attempt
        except ScriptRefusedError as error:
            timeout = until - time.monotonic()
            if error.reply_code == "DUE" and timeout > 0:
                continue
            raise refused(error, refusals) from None
        return request.read(reply)
