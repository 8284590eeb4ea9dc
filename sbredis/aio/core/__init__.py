"""The decisions of the client: events go in, what to do comes out. Nothing here waits or opens anything."""

from __future__ import annotations

__all__: list[str] = []
