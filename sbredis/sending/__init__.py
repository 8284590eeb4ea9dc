"""Sending: check messages, choose their partitions, and submit them to lanes."""

from __future__ import annotations

__all__: list[str] = []
