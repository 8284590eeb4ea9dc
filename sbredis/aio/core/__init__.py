"""The decisions of the client. Each module takes events and returns what to do; none of them waits or does I/O."""

from __future__ import annotations

__all__: list[str] = []
