"""Receiving: watching partitions, the inbox of a receiver, sessions, and settling."""

from __future__ import annotations

__all__: list[str] = []
