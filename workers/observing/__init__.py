"""Observing a worker: counts, health, and the HTTP port that serves both."""

from __future__ import annotations

__all__: list[str] = []
