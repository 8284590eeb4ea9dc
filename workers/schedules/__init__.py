"""Schedules: when their ticks are, and sending a message for each."""

from __future__ import annotations

__all__: list[str] = []
