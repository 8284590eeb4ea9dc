"""Support for tests that replace the calls of a client's transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["divert"]


def divert(transport: Any, call: Callable[..., Awaitable[Any]]) -> None:
    """Make all calls of a transport by a function of the test, or by ``transport.call`` again.

    While a function of the test makes the calls, no call is sent at once, because such calls go another way.
    """
    transport.call = call
    if call == type(transport).call.__get__(transport):
        transport.__dict__.pop("at_once", None)
    else:
        transport.at_once = lambda _: None
