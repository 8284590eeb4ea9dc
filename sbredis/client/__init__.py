"""Calls to partitions: the connection of a client, its entities, and the lanes that join the jobs of many callers."""

from __future__ import annotations

__all__: list[str] = []
