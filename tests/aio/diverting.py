"""Support for tests that replace the calls of a client's transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["divert"]


def divert(transport: Any, call: Callable[..., Awaitable[Any]]) -> None:
    """Make all calls of a transport by a function of the test, or by ``transport.call`` again.

    While a function of the test makes the calls, a task makes each of them, because first attempts go another way.
    """
    transport.call = call
    if call == type(transport).call.__get__(transport):
        transport.__dict__.pop("begin", None)
        transport.__dict__.pop("soon", None)
    else:
        soon = type(transport).soon
        transport.begin = lambda *_, **__: False
        transport.soon = lambda keys, work, **_: soon(transport, keys, work, at_once=False)
