"""A listener that records messages."""

from __future__ import annotations

__all__ = ["Ear"]


class Ear:
    """Records messages, and counts the gaps of which it is notified."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.gaps = 0

    def message(self, payload: bytes) -> None:
        self.heard.append(payload)

    def gap(self) -> None:
        self.gaps += 1
