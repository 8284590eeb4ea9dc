"""Public classes that inherit from internal classes: their errors name only the public class. Pure."""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final, TypeVar, cast

__all__ = ["public", "public_name"]

T = TypeVar("T")

_PUBLIC: Final[set[type]] = set()


def public(cls: type[T]) -> type[T]:
    """Give the functions that a public class inherits from internal classes the name of the public class.

    In a :class:`TypeError` about arguments, Python names the class that defines the function. Readers do not know the
    internal classes. An internal class may have several public subclasses, so each one gets copies of its functions.
    """
    for name in dir(cls):
        owner = next(parent for parent in cls.__mro__ if name in vars(parent))
        if (name == "__init__" or not name.startswith("_")) and _is_internal(owner, cls):
            copied = _copied(vars(owner)[name], cls)
            if copied is not None:
                setattr(cls, name, copied)
    _PUBLIC.add(cls)
    return cls


def public_name(value: object) -> str:
    """Return the public name of a value's class, for errors: ``sbredis.aio.AutoLockRenewer``, ``int``."""
    kind = type(value)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    parts = [part for part in kind.__module__.split(".") if not part.startswith("_")]
    if parts[:1] == ["sbredis"]:
        parts = [
            part for part in parts if part not in {"sync", "model", "receiving", "renewing"}
        ]  # the package above exports them
    return ".".join([*parts, kind.__qualname__])


def _is_internal(owner: type, cls: type) -> bool:
    return owner is not cls and owner not in _PUBLIC and owner.__module__.partition(".")[0] == "sbredis"


def _copied(value: Any, cls: type) -> Any:
    """Return a copy of a function or a class method, named after a class; ``None`` for other values."""
    if isinstance(value, classmethod):
        return classmethod(_named(cast("Any", value).__func__, cls))
    return _named(value, cls) if isinstance(value, FunctionType) else None


def _named(function: Any, cls: type) -> FunctionType:
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__annotations__ = function.__annotations__
    copied.__doc__ = function.__doc__
    copied.__module__ = function.__module__
    copied.__dict__.update(function.__dict__)
    copied.__qualname__ = f"{cls.__qualname__}.{function.__name__}"
    return copied
