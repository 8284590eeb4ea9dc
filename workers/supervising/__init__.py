"""Running workers as programs: signals, several processes, reloading, and what is shown on a terminal."""

from __future__ import annotations

__all__: list[str] = []
