"""A call of a script, and the function that reads its reply. No I/O: the owner of a transport sends the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from sbredis._unreadable import MALFORMED, unreadable
from sbredis.engine._scripts import facts_of, load
from sbredis.exceptions import DataLayoutError, Outcome
from sbredis.transport import Argument, Script

__all__ = ["Request"]

T = TypeVar("T")
R = TypeVar("R")


class Request(NamedTuple, Generic[T]):
    """One call of one script. A request that is sent again is the same call, so the script gives the same answer."""

    script: Script
    keys: tuple[bytes, ...]
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]
    """The function that turns the reply into the result. It may raise any error for a reply that is malformed."""
    repeatable: bool
    """Whether the script recognises a repetition, so that the transport may repeat a call that got no answer."""
    at_limit: bool = False
    """Whether a server that has reached its memory limit shall run the call, too.

    This is for calls that store no more than they remove. It needs nothing of a script that frees memory in all calls.
    """

    @staticmethod
    def of(name: str, keys: tuple[bytes, ...], arguments: tuple[Argument, ...], read: Callable[[Any], R]) -> Request[R]:
        """Return a call of the script of this name, without a lane. The header says whether it is repeatable."""
        return Request(load(name), keys, arguments, read, repeatable=facts_of(name).repeatable.always)

    def result(self, reply: Any) -> T:
        """Return the result in a reply; raise :class:`~sbredis.exceptions.DataLayoutError` if it cannot be read.

        The script has run, so the outcome of such a call is unknown.
        """
        try:
            return self.read(reply)
        except MALFORMED:
            error = unreadable(f"The reply of the script {self.script.name!r}", "it is malformed")
        except DataLayoutError as known:
            error = known
        error.outcome = error.outcome or Outcome.UNKNOWN
        raise error from None
