"""Telemetry of operations: spans, metrics and the log."""

from __future__ import annotations

__all__: list[str] = []
