"""Middleware that comes with the framework."""

from __future__ import annotations

__all__: list[str] = []
