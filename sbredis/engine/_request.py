"""A call of a script, and the function that reads its reply. Neither does I/O; the owner of a transport sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from sbredis.transport import Argument, Script

__all__ = ["Request"]

T = TypeVar("T")


class Request(NamedTuple, Generic[T]):
    """One call of one script. If it is sent again, it is the same call, and the script gives the same answer."""

    script: Script
    keys: tuple[bytes, ...]
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]
    """The function that turns the reply into the result."""
    repeatable: bool = True
    """Whether the script recognises a repetition, so that the transport may repeat a call that got no answer."""
