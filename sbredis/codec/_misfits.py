"""Say why a body does not fit its type, without a value from the body: the text goes into logs and dead letters. Pure.

The errors of msgspec quote values in some cases: unknown members of enumerations, tags, unknown fields, and the texts
of errors that a class of the application raises. So no text of msgspec is passed on, but what it says of the type is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import msgspec

__all__ = ["Mismatch", "mismatch_of"]

_WORDS: Final = {
    "null": "null",
    "bool": "a truth value",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "an object",
    "bytes": "base64 text",
    "datetime": "a date and a time in RFC 3339",
    "date": "a date in RFC 3339",
    "time": "a time in RFC 3339",
    "duration": "a duration in ISO 8601",
    "uuid": "a UUID",
    "decimal": "a decimal number as text",
}
_SAYINGS: Final = {
    "Invalid RFC3339 encoded datetime": "is not a date and a time in RFC 3339",
    "Invalid RFC3339 encoded date": "is not a date in RFC 3339",
    "Invalid RFC3339 encoded time": "is not a time in RFC 3339",
    "Invalid ISO8601 duration": "is not a duration in ISO 8601",
    "Invalid UUID": "is not a UUID",
    "Invalid decimal string": "is not a decimal number as text",
    "Invalid base64 encoded string": "is not base64 text",
    "Number out of range": "is larger than any float",
    "Integer value out of range": "is a number with too many digits",
}


class Mismatch(ValueError):  # noqa: N818 -- never leaves this package
    """A body does not fit a type. The text says where, without a value; a place in it begins with ``$``."""

    def __init__(self, text: str, *, wrong_kind: bool = False) -> None:
        super().__init__(text)
        self.wrong_kind = wrong_kind
        """Whether the value is of another type than it must be."""


def mismatch_of(error: msgspec.ValidationError) -> Mismatch:
    """Return what an error of msgspec says, without values of the body."""
    text, cause = str(error), error.__cause__
    if cause is not None:  # a class refused the value, so its text is cut off before anything is read
        at = _place(text.removeprefix(str(cause)))
        if isinstance(cause, Mismatch):
            return Mismatch(str(cause).replace("$", at))
        return Mismatch(f"{at} was refused by its class ({type(cause).__name__}).")
    if text.startswith("Object contains unknown field"):  # the name, which comes from the body, may look like a place
        return Mismatch("an object has a field that its type does not have.")
    at = _place(text)
    said, _, _ = text.partition(" - at `")
    if said in _SAYINGS:
        return Mismatch(f"{at} {_SAYINGS[said]}.")
    if found := re.fullmatch(r"Object missing required field `(.*)`", said):
        return Mismatch(f"{at}.{found[1]} is missing.")
    if found := re.fullmatch(r"Expected `([^`]*)`, got `(\w+)`", said):
        return Mismatch(f"{at} is {_words(found[2])}, but must be {_words(found[1])}.", wrong_kind=True)
    if found := re.fullmatch(r"Expected `([^`]*)`(.*)", said):
        return Mismatch(f"{at} must be {_words(found[1])}{found[2]}.", wrong_kind=True)
    if said.startswith(("Invalid enum value ", "Invalid value ")):
        return Mismatch(f"{at} is none of the values of its type.")
    return Mismatch(f"{at} does not fit its type.")


def _place(text: str) -> str:
    """Return the place at the end of an error. A quoted value before it ends with another sign."""
    _, found, place = text.rpartition(" - at `")
    if not found or not place.endswith("`"):
        return "$"
    return place[:-1].replace("key` in `", "a key of ").replace("[...]", ".*")


def _words(types: str) -> str:
    return " or ".join(_WORDS.get(each, each) for each in types.split(" | "))
