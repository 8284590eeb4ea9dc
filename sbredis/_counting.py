"""Numbers with their nouns, in texts for people. Pure."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 message``, ``2,000 messages``, ``1 entity``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
