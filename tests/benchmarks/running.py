"""Run a benchmark in its short form, or let it refuse its arguments."""

from __future__ import annotations

import sys

from tests.children import run_program
from tests.complaints import complaints
from tools.repository import ROOT

__all__ = ["benchmark", "refused"]


def benchmark(module: str, *arguments: str, silent: bool = True) -> list[str]:
    """Run a benchmark and return the lines that it prints. If it is ``silent``, it must not complain."""
    done = run_program(sys.executable, "-Werror", "-m", f"benchmarks.{module}", *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert not (silent and complaints(done.stderr))
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def refused(module: str, *arguments: str) -> str:
    """Run a benchmark that refuses to start, and return the reason that it prints."""
    done = run_program(sys.executable, "-m", f"benchmarks.{module}", *arguments, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr
