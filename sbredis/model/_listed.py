"""What enumerations have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, cast

from sbredis._quoting import quoted

__all__ = ["Listed"]


class Listed:
    """An enumeration that says which values there are when it is asked for another one."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        *most, last = [repr(one.value) for one in cast("Iterable[Any]", cls)]
        raise ValueError(f"{quoted(value)} is no {cls.__name__}; there are {', '.join(most)} and {last}")
