"""A worker at work: receiving messages, calling handlers, settling messages."""

from __future__ import annotations

__all__: list[str] = []
