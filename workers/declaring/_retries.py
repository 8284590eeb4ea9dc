"""Retries: when a message comes again after its handler failed, and when it becomes a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from sbredis.workers.declaring._checks import require_bool, require_number, require_seconds
from sbredis.workers.declaring._outcomes import LONGEST_DELAY, Abandon, DeadLetter, Outcome, readable

__all__ = ["Retries", "after_failure", "described", "fate_of", "is_of", "require_exceptions"]

_DESCRIPTION: Final = 1024
"""The largest number of characters of an error that a dead letter's description keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how fast a message comes again after its handler has raised an exception.

    The first delay is ``first_delay`` seconds. Each further delay is ``factor`` times as long, up to ``longest_delay``.
    With ``jitter`` the delay is a random part of that time, so that messages that failed together do not come again
    together. An attempt is a delivery: the count of the broker, so a crash of the worker counts too. After the last
    attempt the message is dead-lettered. ``attempts`` is at most the entity's ``max_delivery_count``, and equal to it
    by default. A message whose handler raises one of the ``no_retry`` exceptions is dead-lettered at once.
    """

    first_delay: float = 1.0
    longest_delay: float = 300.0
    factor: float = 2.0
    jitter: bool = True
    attempts: int | None = None
    no_retry: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        for name in ("first_delay", "longest_delay"):
            require_seconds(name, getattr(self, name), zero=True, most=LONGEST_DELAY)
        if self.first_delay > self.longest_delay:
            raise ValueError(
                f"first_delay must be from 0 to longest_delay ({self.longest_delay:g}), not {self.first_delay:g}"
            )
        require_number("factor", self.factor, 1, 100)
        require_bool("jitter", self.jitter)
        if self.attempts is not None and (type(self.attempts) is not int or self.attempts < 1):
            raise ValueError(f"attempts must be a whole number from 1 on or None, not {self.attempts!r}")
        require_exceptions("no_retry", self.no_retry)

    def delay(self, attempt: int, draw: Callable[[], float]) -> float:
        """Return the seconds between this failed attempt, counted from 1, and the next. ``draw`` gives 0 to 1."""
        steps = min(attempt - 1, 1000)
        longest = self.longest_delay
        if self.factor == 1 or self.first_delay == 0:
            longest = self.first_delay
        else:
            with suppress(OverflowError):
                longest = min(longest, self.first_delay * self.factor**steps)
        return longest * draw() if self.jitter else longest


def after_failure(
    error: BaseException,
    attempt: int,
    most: int,
    retries: Retries,
    draw: Callable[[], float],
    *,
    dead: bool = False,
    final: bool = False,
) -> Outcome:
    """Return what becomes of a message whose handler has raised an error at this attempt.

    ``most`` is the entity's ``max_delivery_count``, and ``final`` says that another attempt is of no use. A message
    that is a dead letter already can only come again. Its deliveries are not counted, so each time it waits for as long
    as after a last attempt.
    """
    last = min(most, retries.attempts or most)
    if dead:
        return Abandon(retries.delay(last, draw))
    if final or attempt >= last or is_of(error, retries.no_retry):
        return DeadLetter(type(error).__name__, described(error))
    return Abandon(retries.delay(attempt, draw))


def fate_of(outcome: Outcome, attempt: int, most: int) -> str:
    """Return in words what becomes of a message whose handler has failed."""
    if isinstance(outcome, DeadLetter):
        return f"is dead-lettered after attempt {attempt} of {most}"
    if isinstance(outcome, Abandon):
        return f"comes again in {outcome.delay or 0:.1f} s, after attempt {attempt} of {most}"
    return "was settled before"


def described(error: BaseException) -> str:
    """Return the text of an error, shortened for a dead letter."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an error of the application that cannot describe itself
        text = "(the error has no readable text)"
    return readable(text, _DESCRIPTION)


def is_of(error: BaseException, kinds: tuple[type[Exception], ...]) -> bool:
    """Return whether an error is of one of these classes, or is a group of nothing but such errors."""
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, kinds):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(is_of(each, kinds) for each in group.exceptions)
    return isinstance(error, kinds)


def require_exceptions(name: str, given: object) -> None:
    """Raise if an option is not a tuple of exception classes."""
    classes = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (None,)
    if not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
        raise TypeError(f"{name} must be a tuple of exception classes")
