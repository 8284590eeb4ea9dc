"""The decisions of the client. Each module takes events and returns the next action. No module waits or does I/O."""

from __future__ import annotations

__all__: list[str] = []
