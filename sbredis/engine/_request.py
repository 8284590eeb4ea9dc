"""What a script is asked, and how its reply is read: made and read without I/O, sent by whoever holds a transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from sbredis.transport import Argument, Script

__all__ = ["Request"]

T = TypeVar("T")


class Request(NamedTuple, Generic[T]):
    """One call of one script. Sent again, it is the same call, and the scripts answer it as the first time."""

    script: Script
    keys: tuple[bytes, ...]
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]
    """Turns the reply into the result."""
    repeatable: bool = True
    """Whether the script recognises a repetition, so that the transport may send it again after it was cut off."""
