"""Maintenance of a namespace, which one client does for all: it publishes on topics and visits partitions."""

from __future__ import annotations

__all__: list[str] = []
