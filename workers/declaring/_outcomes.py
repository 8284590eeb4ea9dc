"""Outcomes: what a handler says about its message."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast

from sbredis._quoting import shortened
from sbredis.model import PrimitiveTypes, require_single

__all__ = [
    "LONGEST_DELAY",
    "Abandon",
    "Complete",
    "DeadLetter",
    "Defer",
    "GiveBack",
    "Outcome",
    "checked_result",
    "outcome_in",
    "readable",
]

LONGEST_DELAY: Final = 365 * 86400
"""The longest delay of a message in seconds."""
_LONGEST_TEXT: Final = 4096


class Outcome(Exception):  # noqa: N818 -- a handler returns it; it is an exception only so that it can be raised too
    """The outcome of a call, as its handler states it.

    A handler returns an outcome, or raises it from deep inside. A raised outcome is no error: it is neither logged nor
    counted as one.
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *map(str, vars(self).values())))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({given})"


class Complete(Outcome):
    """The message is done. This is also the outcome of a handler that returns anything else."""

    def __init__(self) -> None:  # it has no value: a result to publish is returned as it is
        super().__init__()


class Abandon(Outcome):
    """The message was not handled: it comes again, immediately or after a delay. It counts as a failed delivery.

    ``delay`` is in seconds. Without it, the message comes again immediately, and not after the delay for retries.
    """

    def __init__(
        self,
        delay: timedelta | float | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        super().__init__()
        self.delay = _seconds(delay)
        self.properties_to_modify = _mapping(properties_to_modify)


class DeadLetter(Outcome):
    """The message can never be handled: it goes to the dead-letter queue, with a reason and a description.

    Of either text, the first 4,096 characters are kept.
    """

    def __init__(
        self,
        reason: str | None = None,
        description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        super().__init__()
        for name, text in (("reason", reason), ("description", description)):
            if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
                raise TypeError(f"{name} must be a str, not {type(text).__name__}")
        self.reason = None if reason is None else readable(reason, _LONGEST_TEXT)
        self.description = None if description is None else readable(description, _LONGEST_TEXT)
        self.properties_to_modify = _mapping(properties_to_modify)


class Defer(Outcome):
    """The message is set aside: it comes again only when somebody receives it by its sequence number."""

    def __init__(self, *, properties_to_modify: Mapping[str, PrimitiveTypes] | None = None) -> None:
        super().__init__()
        self.properties_to_modify = _mapping(properties_to_modify)


class GiveBack(Outcome):
    """The message was not tried: it goes back at once, and no delivery is counted. For middleware that holds back."""


def outcome_in(error: BaseException) -> Outcome | None:
    """Return the outcome that an exception carries: itself, or the first one in a group of nothing but outcomes."""
    if isinstance(error, Outcome):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [outcome_in(each) for each in group.exceptions]
    return found[0] if all(each is not None for each in found) else None


def checked_result(result: Any) -> Any:
    """Return the result of a handler. Raise if it is work that nobody would do, or the class of an outcome."""
    if result is None:
        return None
    kind: object = result
    if isinstance(kind, type) and issubclass(kind, Outcome):
        raise TypeError(f"The handler returned the class {kind.__name__}: return an object of it.")
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python would warn that it was never awaited
        raise TypeError(
            f"The handler returned a {type(result).__name__}, and nothing would run it: use it in the handler."
        )
    return result


def readable(text: str, most: int) -> str:
    """Return a text that a message can carry: shortened, and without halves of surrogate pairs."""
    return shortened(text, most).encode("utf-8", "replace").decode()


def _mapping(properties: Mapping[str, PrimitiveTypes] | None) -> Mapping[str, PrimitiveTypes] | None:
    if properties is not None and not isinstance(properties, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"properties_to_modify must be a mapping of properties, not {type(properties).__name__}")
    if properties is not None:
        require_single(properties)
    return properties


def _seconds(delay: timedelta | float | None) -> float | None:
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"delay must be a timedelta or a number of seconds, not {type(delay).__name__}")
    if not 0 <= seconds <= LONGEST_DELAY:
        raise ValueError(f"delay must be from 0 seconds to 365 days, not {seconds} seconds")
    return float(seconds)
