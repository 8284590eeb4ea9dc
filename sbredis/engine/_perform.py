"""Sending a request: the one place where the engine waits."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from sbredis.engine._refusals import REFUSALS, Refusal, refused
from sbredis.engine._request import Request
from sbredis.engine._scripts import at_limit
from sbredis.exceptions import Outcome, ScriptRefusedError, ServiceBusError, ServiceBusServerBusyError
from sbredis.transport import Argument, Script

__all__ = ["ScriptCaller", "is_full", "perform"]

T = TypeVar("T")


class ScriptCaller(Protocol):
    """The one method that requests are sent with: of a transport, or of an object around one that a test controls."""

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


def is_full(error: ServiceBusError) -> bool:
    """Return whether a server has refused a call because it has reached its memory limit.

    For every other cause, a server that is busy did not look at the call, and the call counts as not sent.
    """
    return isinstance(error, ServiceBusServerBusyError) and error.outcome is Outcome.REFUSED


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
    long as there is time. If a server at its memory limit refuses a request that has ``at_limit``, the request is sent
    again with the form of its script that such a server runs. If the request was sent already, ``first`` waits for the
    reply to it. ``written`` is called each time before the request is written to a connection.
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
        except ServiceBusServerBusyError as error:
            if not request.at_limit or not is_full(error):
                raise
            timeout = until - time.monotonic()
            request = request._replace(script=at_limit(request.script), at_limit=False)
            continue
        return request.result(reply)
