"""What a worker is made of, before it runs: handlers, their conditions, parameters and outcomes. Nothing here waits."""

from __future__ import annotations

__all__: list[str] = []
