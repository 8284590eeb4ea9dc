"""How messages are named in a line of the log: by a few of their numbers and ids, and never by what they carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sbredis.model import comparable_id

__all__ = ["MOST_NAMED", "named", "shortened"]

MOST_NAMED: Final = 10
"""The most messages that one line names; of the others it tells the number."""
_LONGEST: Final = 40


def named(messages: Sequence[Any], numbers: Sequence[int] = (), count: int | None = None) -> str:
    """The number of messages, and the sequence numbers and ids of the first ten: ``2 messages (1 'a', 2 'b')``.

    ``numbers`` are their sequence numbers where the messages do not tell them, and ``count`` says how many they are
    where neither is known.
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
    """A text as it is quoted in the log: without line breaks, and no longer than about 40 characters."""
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
    except Exception:  # noqa: BLE001 -- who cannot read a message hears of it from the message, not from the log
        parts.append("unreadable")
    return " ".join(parts) or "without an id"
