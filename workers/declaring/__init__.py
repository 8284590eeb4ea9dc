"""The declarations of a worker: handlers, their conditions, parameters and outcomes. Nothing here waits."""

from __future__ import annotations

__all__: list[str] = []
