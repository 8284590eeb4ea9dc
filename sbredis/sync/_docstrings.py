"""Copy the docstrings of the asynchronous classes to the synchronous classes of the same name. Pure.

A synchronous method keeps the same promises as the asynchronous method that it calls. So its docstring is written only
once, in :mod:`sbredis.aio`. A method with other promises has a docstring of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar, cast

__all__ = ["documented_by"]

C = TypeVar("C", bound="type[Any]")

_SYNCHRONOUS: Final = (("``async for ", "``for "), ("``async for``", "``for``"), ("``async with", "``with"))
"""Words of a docstring, and the words that replace them in synchronous code."""


def documented_by(twin: type, *, then_own: bool = False) -> Callable[[C], C]:
    """Copy the docstrings of the asynchronous twin to a class and its members that have no docstring of their own.

    With ``then_own`` the class has the docstring of the twin, and its own docstring as a further paragraph.
    """

    def take_over(cls: C) -> C:
        own, cls.__doc__ = cls.__doc__, _reworded(twin.__doc__)
        if own and cls.__doc__ and then_own:
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{inspect.cleandoc(own)}\n"
        elif own:
            cls.__doc__ = own
        for name, value in vars(cls).items():
            if isinstance(value, FunctionType | property | classmethod) and value.__doc__ is None:
                value.__doc__ = _reworded(_docstring_of(twin, name))
                if isinstance(value, classmethod):
                    cast("Any", value).__func__.__doc__ = value.__doc__
        return cls

    return take_over


def _docstring_of(cls: type, name: str) -> str | None:
    behind = next((vars(parent)[name] for parent in cls.__mro__ if name in vars(parent)), None)
    return None if behind is None else behind.__doc__


def _reworded(text: str | None) -> str | None:
    if text is not None:
        for asynchronous, synchronous in _SYNCHRONOUS:
            text = text.replace(asynchronous, synchronous)
    return text
