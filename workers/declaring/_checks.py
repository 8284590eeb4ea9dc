"""Checks of options, for callers without type checks. Each raises an error that names the option."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

from sbredis._quoting import quoted

__all__ = [
    "require_arguments",
    "require_bool",
    "require_function",
    "require_handler",
    "require_instance",
    "require_middleware",
    "require_number",
    "require_one_of",
    "require_paths",
    "require_plain_function",
    "require_seconds",
    "require_text",
    "require_whole",
]

_TEXTS: Final = (str, bytes)
_LONGEST: Final = 366 * 86400
"""The longest time in seconds that an option may have."""


def require_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise if an option is not a whole number in a range."""
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")


def require_seconds(name: str, value: object, *, zero: bool = False, most: float = _LONGEST) -> None:
    """Raise if an option is not a number of seconds above 0, or from 0 on, up to the longest time that is possible."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not (value >= 0 if zero else value > 0):
        raise ValueError(f"{name} must be {'from 0 seconds on' if zero else 'more than 0 seconds'}, not {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most} seconds, not {value}")


def require_number(name: str, value: object, least: float, most: float) -> None:
    """Raise if an option is not a number in a range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least:g} to {most:g}, not {value:g}")


def require_one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Raise if an option is none of these words."""
    if value not in known:
        listed = " or ".join(map(repr, known))
        raise ValueError(f"{name} must be {listed}, not {quoted(value)}")


def require_bool(name: str, value: object) -> None:
    """Raise if an option is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")


def require_text(name: str, value: object) -> None:
    """Raise if an option is not a text, or is empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty")


def require_function(name: str, value: object) -> None:
    """Raise if an option cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {type(value).__name__}")


def require_handler(decorator: str, value: object) -> None:
    """Raise if a decorator of handlers decorates no function."""
    if not callable(value) or isinstance(value, type):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"@{decorator}(…) decorates a function, not {given}")


def require_plain_function(name: str, value: object, *arguments: str) -> None:
    """Raise if an option is not a plain function that takes these arguments."""
    require_function(name, value)
    called: Any = value
    if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__):
        raise TypeError(f"{name} must be a plain function, which returns at once: a coroutine would never be awaited")
    require_arguments(name, value, *arguments)


def require_arguments(name: str, function: Any, *arguments: str) -> None:
    """Raise if a function cannot be called with these arguments. One whose signature cannot be read is accepted."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name} is called with {' and '.join(arguments)}, but {quoted(function)} cannot be: {error}"
        ) from None


def require_instance(name: str, value: object, *kinds: type) -> None:
    """Raise if an option is of none of these classes."""
    if not isinstance(value, kinds):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{name} must be a {' or a '.join(kind.__name__ for kind in kinds)}, not {given}")


def require_middleware(name: str, value: object) -> None:
    """Raise if an option is not a sequence of middleware."""
    for each in _listed(name, value, "a list of middleware"):
        if isinstance(each, type):
            raise TypeError(f"{name} has the class {each.__name__}: write {each.__name__}() for an object of it")
        if not callable(each):
            raise TypeError(f"{name} has a value of the type {type(each).__name__}, which cannot be called")
        require_arguments("each middleware", each, "a context", "a function that proceeds")


def require_paths(name: str, value: object) -> None:
    """Raise if an option is neither True or False nor a sequence of the names of entities."""
    if isinstance(value, bool):
        return
    for each in _listed(name, value, "True, False or a list of entities"):
        require_text(f"each entity of {name}", each)


def _listed(name: str, value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, _TEXTS):
        raise TypeError(f"{name} must be {what}, not {type(value).__name__}")
    return value  # pyright: ignore[reportUnknownVariableType]  # the caller checks each of them
