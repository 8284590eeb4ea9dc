"""Receiving: watching partitions, the inbox of a receiver, sessions, settling, and renewing locks."""

from __future__ import annotations

__all__: list[str] = []
