"""The findings of ``sbredis doctor``. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["NEARLY_FULL", "VERY_FULL", "Finding", "Severity", "gathered"]

VERY_FULL, NEARLY_FULL = 0.95, 0.8
"""The share of a limit from which a finding is critical, and from which it is a warning."""


class Severity(enum.IntEnum):
    """How bad a finding is."""

    NOTE = 0
    """Worth knowing."""
    WARNING = 1
    """It can delay messages, or turn into something worse."""
    CRITICAL = 2
    """It can lose messages, or something does not work now."""


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    severity: Severity
    subject: str
    """The server or the entity."""
    problem: str
    advice: str


def gathered(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, the worst first. Subjects with the same problem share a finding."""
    subjects: dict[tuple[Severity, str, str], list[str]] = {}
    for severity, subject, problem, advice in findings:
        subjects.setdefault((severity, problem, advice), []).append(subject)
    found = [
        Finding(severity, ", ".join(dict.fromkeys(names)), problem, advice)
        for (severity, problem, advice), names in subjects.items()
    ]
    return sorted(found, key=lambda finding: -finding.severity)
