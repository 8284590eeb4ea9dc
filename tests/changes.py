"""The notation of planted bugs: one text that shows what is right and what stands there instead."""

from __future__ import annotations

__all__ = ["change"]


def change(text: str) -> tuple[str, str]:
    """Return the right text and the wrong one of a text in which "«right→wrong»" marks the change."""
    before, _, rest = text.partition("«")
    right, arrow, wrong = rest.partition("→")
    wrong, end, after = wrong.partition("»")
    if not (arrow and end):
        raise ValueError(f"this text marks no change: {text!r}")
    return before + right + after, before + wrong + after
