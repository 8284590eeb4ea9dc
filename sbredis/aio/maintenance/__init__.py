"""What one client does for all clients of a namespace: publishing on topics, and visiting partitions."""

from __future__ import annotations

__all__: list[str] = []
