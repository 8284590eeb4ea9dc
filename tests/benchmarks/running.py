"""Run a benchmark in its short form, and compare the lines that it prints with the expected patterns."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from tests.complaints import complaints
from tools.repository import ROOT

__all__ = ["SPEED", "benchmark", "mismatches", "refused"]

SPEED = r"[\d,]+ +\d+\.\d µs +\d+\.\d µs"
"""The pattern of the messages per second, and of the processor time of client and server."""


def benchmark(module: str, *arguments: str, silent: bool = True) -> list[str]:
    """Run a benchmark and return the lines that it prints. If it is ``silent``, it must not complain."""
    command = [sys.executable, "-W", "error", "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert not (silent and complaints(done.stderr))
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def refused(module: str, *arguments: str) -> str:
    """Run a benchmark that refuses to start, and return the reason that it prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def mismatches(lines: Sequence[str], patterns: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """Return the lines that do not match their patterns, each with its pattern, and the number of surplus lines."""
    wrong = [(line, pattern) for line, pattern in zip(lines, patterns, strict=False) if not re.fullmatch(pattern, line)]
    return wrong, len(lines) - len(patterns)
