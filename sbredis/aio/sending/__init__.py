"""Sending: the way of messages from a sender to the lanes of their partitions."""

from __future__ import annotations

__all__: list[str] = []
