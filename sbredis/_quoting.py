"""Quote a caller's values in errors and logs: recognisable, but of limited length. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["quoted", "shortened"]

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
