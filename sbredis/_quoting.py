"""Quote a caller's values and types in errors and logs: recognisable, and values of limited length. Pure."""

from __future__ import annotations

from types import EllipsisType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

__all__ = ["quoted", "shortened", "type_name"]

_LONGEST: Final = 60


def quoted(value: object, most: int = _LONGEST) -> str:
    """Return the ``repr`` of a value, cut to ``most`` characters; a cut text ends with an ellipsis."""
    if isinstance(value, (str, bytes)):
        shown = repr(value[:most])
        return shown if len(value) <= most and len(shown) <= most else f"{shown[: most - 1]}…"
    try:
        return shortened(repr(value), most)
    except Exception:  # noqa: BLE001  # a number with too many digits, or an object that cannot describe itself
        return f"a value of the type {type(value).__name__}"


def shortened(text: str, most: int) -> str:
    """Return a text, cut to ``most`` characters; a cut text ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def type_name(hint: Any) -> str:
    """Return a type as a program writes it: ``int``, ``list[Order]``, ``str | None``."""
    if hint is None or hint is NoneType:
        return "None"
    if isinstance(hint, EllipsisType):
        return "..."
    if isinstance(hint, list):  # the arguments of a Callable
        return f"[{', '.join(map(type_name, hint))}]"  # pyright: ignore[reportUnknownArgumentType]  # of any kind
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        return " | ".join(map(type_name, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is Annotated:
        return type_name(arguments[0])
    if isinstance(origin, type) and arguments:
        return f"{origin.__name__}[{', '.join(map(type_name, arguments))}]"
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")
