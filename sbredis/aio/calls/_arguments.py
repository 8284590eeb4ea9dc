"""What callers give, checked: time-outs, counts, numbers, and options that do not exist."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from datetime import datetime

from sbredis._quoting import quoted
from sbredis.engine import NEVER
from sbredis.model import NoOptions, warn_of_unknown

__all__ = [
    "ANSWERING",
    "NoOptions",
    "count_of",
    "deadline_of",
    "identifier_of",
    "milliseconds_of",
    "seconds_of",
    "sequence_numbers_of",
    "waiting_deadline",
    "warn_of_unknown",
]

_TIMEOUT = 60.0
ANSWERING = 10.0
"""How many seconds the server has to answer a receiving call, beyond the time that the call waits for messages."""


def seconds_of(value: object, name: str, *, zero: bool = False) -> float:
    """A number of seconds that must be positive; or, with ``zero``, not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {type(value).__name__}")
    if zero and not value >= 0:
        raise ValueError(f"{name} must be 0 or more, not {quoted(value)}")
    if not zero and not value > 0:
        raise ValueError(f"{name} must be greater than 0, not {quoted(value)}")
    return float(value)


def deadline_of(timeout: float | None) -> float:
    """When a call with this time-out has to end, by the clock of the event loop; 60 s from now unless said."""
    seconds = _TIMEOUT if timeout is None else seconds_of(timeout, "timeout")
    return asyncio.get_running_loop().time() + seconds


def waiting_deadline(wait: float | None) -> float:
    """When a call has to end that waits so many seconds for messages: the server has some time more to answer it."""
    return deadline_of(None if wait is None else wait + ANSWERING)


def count_of(value: object, name: str, most: int | None = None, *, least: int = 1) -> int:
    """A whole number within bounds: positive, unless something else is said."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        raise ValueError(
            f"{name} must be {f'{least} or more' if most is None else f'from {least} to {most}'}, not {quoted(value)}"
        )
    return value


def sequence_numbers_of(value: int | Sequence[int]) -> list[int]:
    """One sequence number or several, as a list without repetitions."""
    listed = [value] if isinstance(value, int) else value
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"sequence_numbers is a sequence number or a list of them, not {type(value).__name__}")
    for number in listed:
        if isinstance(number, bool) or not isinstance(number, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a sequence number is a whole number, not {type(number).__name__}")
    return list(dict.fromkeys(listed))


def identifier_of(given: str | None) -> str:
    """What names a sender or a receiver in logs: what was given, or something drawn."""
    if given is None:
        return secrets.token_hex(8)
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"client_identifier is text, not {type(given).__name__}")
    return given


def milliseconds_of(moment: datetime, name: str) -> int:
    """A time in ms since 1970."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"{name} is a datetime, not {type(moment).__name__}")
    if moment.tzinfo is None:
        raise ValueError(f"{name} has no time zone: say which, as in datetime.now(timezone.utc)")
    return min(max(0, round(moment.timestamp() * 1000)), NEVER)
