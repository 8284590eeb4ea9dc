"""The entities of a namespace: their definitions, counts and lists."""

from __future__ import annotations

__all__: list[str] = []
