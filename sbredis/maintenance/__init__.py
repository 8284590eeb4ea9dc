"""Maintenance of a namespace. One client does it for all: it publishes on topics and visits partitions."""

from __future__ import annotations

__all__: list[str] = []
