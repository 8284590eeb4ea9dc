"""The error for bytes that cannot be read: what is stored in a server, or published there, may be anything. Pure.

Another tenant, a defective program or a flipped bit may have changed it. So a decoder takes any bytes, and either
returns a value or raises this error. The error never quotes the bytes, because it goes into logs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, NoReturn, ParamSpec, TypeVar

from sbredis.exceptions import DataLayoutError

__all__ = ["MALFORMED", "decodes", "unreadable"]

P = ParamSpec("P")
T = TypeVar("T")

MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors of Python's own functions for malformed values."""


def unreadable(what: str, why: str) -> DataLayoutError:
    """Return the error that something cannot be read; ``what`` is a noun at the beginning of a sentence."""
    return DataLayoutError(
        f"{what} cannot be read: {why}. Either the data are damaged, or another release of sbredis has written them. "
        "If a newer release has written them, install that release."
    )


def decodes(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for a function that reads ``what``: it raises only the error for bytes that cannot be read."""

    def decorate(read: Callable[P, T]) -> Callable[P, T]:
        @wraps(read)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(*args, **kwargs)
            except MALFORMED:
                _refuse(what)

        return reading

    return decorate


def _refuse(what: str) -> NoReturn:
    raise unreadable(what, "it is malformed") from None
