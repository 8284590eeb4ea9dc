"""Markers for the parameters of handlers: dependencies and application properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sbredis.workers.declaring._checks import require_one_of, require_text

__all__ = ["Depends", "Property", "Scope"]

Scope = Literal["app", "session", "message"]
"""The life of a dependency: as long as the worker, the lock on a session, or the handling of one message."""


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter that is made by a function: ``Annotated[Db, Depends(get_db)]``.

    ``call`` is a function, a coroutine function, or a generator function of either kind. What a generator yields is
    the value, and the code after its ``yield`` cleans up at the end of the ``scope``. The function may have parameters
    of the same kinds as a handler, except a body. Within a scope it is called once.
    """

    call: Callable[..., Any]
    scope: Scope = "message"

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise TypeError(f"Depends takes a function, not {type(self.call).__name__}")
        require_one_of("scope", self.scope, get_args(Scope))


@dataclass(frozen=True, slots=True)
class Property:
    """Marks a parameter that gets an application property of the message: ``Annotated[str, Property("tenant")]``.

    If the message has no such property, the parameter gets its default. Without a default, and for a property of
    another type, the message is dead-lettered.
    """

    name: str

    def __post_init__(self) -> None:
        require_text("the name of a property", self.name)
