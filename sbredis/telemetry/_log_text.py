"""Name messages in a line of the log by a few of their numbers and ids, and never by their content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sbredis.model import comparable_id

__all__ = ["MOST_NAMED", "named", "shortened"]

MOST_NAMED: Final = 10
"""The largest number of messages that one line names. The line shows only the number of the other messages."""
_LONGEST: Final = 40


def named(messages: Sequence[Any], numbers: Sequence[int] = (), count: int | None = None) -> str:
    """Return the number of messages, and the sequence numbers and ids of the first ten: ``2 messages (1 'a', 2 'b')``.

    ``numbers`` are the sequence numbers, if the message objects do not contain them. ``count`` is the number of
    messages, if neither the messages nor the numbers are known.
    """
    if count is None:
        count = len(messages) or len(numbers)
    total = f"{count:,} message{'' if count == 1 else 's'}"
    shown = [_name(messages, numbers, place) for place in range(min(MOST_NAMED, max(len(messages), len(numbers))))]
    if not shown:
        return total
    if count > len(shown):
        shown.append("…")
    return f"{total} ({', '.join(shown)})"


def shortened(text: str) -> str:
    """Return a text in the form for the log: without line breaks, and no longer than about 40 characters."""
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def _name(messages: Sequence[Any], numbers: Sequence[int], place: int) -> str:
    parts: list[str] = []
    message = messages[place] if place < len(messages) else None
    try:
        number = numbers[place] if place < len(numbers) else getattr(message, "sequence_number", None)
        if number is not None:
            parts.append(str(number))
        if (name := getattr(message, "message_id", None)) is not None:
            parts.append(shortened(str(comparable_id(name))))
    except Exception:  # noqa: BLE001 -- the application gets the error when it reads the message itself
        parts.append("unreadable")
    return " ".join(parts) or "without an id"
