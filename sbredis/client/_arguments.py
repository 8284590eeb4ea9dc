"""Check arguments that callers pass: time-outs, counts, sequence numbers, and unknown options."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime

from sbredis._quoting import quoted
from sbredis.engine import NEVER

__all__ = [
    "TIMEOUT",
    "count_of",
    "deadline_of",
    "identifier_of",
    "milliseconds_of",
    "progress_of",
    "seconds_of",
    "sequence_numbers_of",
]

TIMEOUT = 60.0
"""The seconds that a call may take if its caller gives no time-out."""


def seconds_of(value: object, name: str, *, zero: bool = False) -> float:
    """Return a number of seconds. The number must be positive, or with ``zero`` not negative. It may be infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if zero and not value >= 0:
        raise ValueError(f"{name} must be 0 or more, not {quoted(value)}")
    if not zero and not value > 0:
        raise ValueError(f"{name} must be greater than 0, not {quoted(value)}")
    try:
        return float(value)
    except OverflowError:  # a whole number that no float can have
        return math.inf


def progress_of(progress: Callable[[int], object] | None) -> Callable[[int], object]:
    """Return the function that a caller wants to be called with the progress, or one that does nothing."""
    if progress is None:
        return lambda _: None
    if not callable(progress):
        raise TypeError(f"progress must be a function that takes a number, not {type(progress).__name__}")
    return progress


def deadline_of(timeout: float | None, loop: asyncio.AbstractEventLoop | None = None) -> float:
    """Return the deadline of a call with this time-out, as a time of the event loop. The default is 60 s from now."""
    seconds = TIMEOUT if timeout is None else seconds_of(timeout, "timeout")
    return (loop or asyncio.get_running_loop()).time() + seconds


def count_of(value: object, name: str, most: int | None = None, *, least: int = 1) -> int:
    """Return a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        raise ValueError(
            f"{name} must be {f'{least} or more' if most is None else f'from {least} to {most}'}, not {quoted(value)}"
        )
    return value


def sequence_numbers_of(value: int | Sequence[int]) -> list[int]:
    """Return one or several sequence numbers as a list without repetitions."""
    listed = [value] if isinstance(value, int) else value
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"sequence_numbers must be a sequence number or a list of them, not {type(value).__name__}")
    for number in listed:
        if isinstance(number, bool) or not isinstance(number, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a sequence number must be a whole number, not {type(number).__name__}")
    return list(dict.fromkeys(listed))


def identifier_of(given: str | None) -> str:
    """Return the name of a sender or receiver in logs: the given one, or a random one."""
    if given is None:
        return secrets.token_hex(8)
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"client_identifier must be text, not {type(given).__name__}")
    return given


def milliseconds_of(moment: datetime, name: str) -> int:
    """Return a time in ms since 1970."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"{name} must be a datetime, not {type(moment).__name__}")
    if moment.tzinfo is None:
        raise ValueError(f"{name} has no time zone: add one, as in datetime.now(timezone.utc)")
    return min(max(0, round(moment.timestamp() * 1000)), NEVER)
