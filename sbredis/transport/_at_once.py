"""Sending a call at once, and passing its reply on at once. This saves an idle client turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from sbredis.transport._replies import Failure
from sbredis.transport._script import Argument, Call, Script
from sbredis.transport._wire import Wire

__all__ = ["AtOnce"]


class _Maker(Protocol):
    def __call__(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        repeatable: bool,
        written: Callable[[], None] | None,
    ) -> Call: ...


class AtOnce:
    """The way to send one call over an open connection that is idle now."""

    __slots__ = ("_go_on", "_made", "_wire")

    def __init__(
        self,
        wire: Wire,
        made: _Maker,
        go_on: Callable[[Call, float, float, Failure], Coroutine[Any, Any, Any]],
    ) -> None:
        """``made`` makes a call, and ``go_on`` finishes a call whose first attempt failed."""
        self._wire = wire
        self._made = made
        self._go_on = go_on

    def begin(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        timeout: float,
        repeatable: bool,
        written: Callable[[], None] | None,
        answered: Callable[[Any], None],
        failed: Callable[[Callable[[], Coroutine[Any, Any, Any]]], None],
    ) -> None:
        """Write a call like that of :meth:`Transport.call`. It must be the first thing that happens on this way.

        ``answered`` gets the reply in the moment in which it is read. If the first attempt brings no reply, ``failed``
        gets a coroutine function that makes the further attempts, and returns the reply or raises the error. Both
        functions are called in the event loop, and must not raise.
        """
        call = self._made(script, keys, arguments, repeatable=repeatable, written=written)
        started = asyncio.get_running_loop().time()

        def replied(reply: Any) -> None:
            if type(reply) is Failure:
                failed(partial(self._go_on, call, started, timeout, reply))
            else:
                answered(reply)

        self._wire.begin(call, started + timeout, replied)
