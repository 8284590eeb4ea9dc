"""Telemetry of operations: spans, metrics and the log."""

from __future__ import annotations

from sbredis.telemetry._log_text import named, shortened
from sbredis.telemetry._telemetry import UNOBSERVED, Observation, Telemetry

__all__ = ["UNOBSERVED", "Observation", "Telemetry", "named", "shortened"]
