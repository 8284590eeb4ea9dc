"""Calls to partitions: the connection of a client, its entities, and the lanes in which calls come together."""

from __future__ import annotations

__all__: list[str] = []
