"""The base of the enumerations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, cast

from sbredis._quoting import quoted

__all__ = ["Listed"]


class Listed:
    """An enumeration whose error for an unknown value lists the values that exist."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        *most, last = [repr(one.value) for one in cast("Iterable[Any]", cls)]
        raise ValueError(
            f"{quoted(value)} is not a value of {cls.__name__}; the values are {', '.join(most)} and {last}"
        )
