"""Observing a worker: counts, health, the HTTP port that serves both, and the log."""

from __future__ import annotations

__all__: list[str] = []
