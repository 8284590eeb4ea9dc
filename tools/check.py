"""Run all checks that need no server, one after the other. All of them run; if one fails, the whole fails."""

from __future__ import annotations

import subprocess
import sys
import time

from tools.repository import ROOT

CHECKS = {
    "lint": ["ruff", "check", "."],
    "formatting": ["ruff", "format", "--check", "."],
    "types (mypy)": ["mypy"],
    "types (pyright)": ["pyright"],
    "import rule": ["pytest", "-q", "-p", "no:cacheprovider", "tests/house/test_imports.py"],
    "documentation": ["tools.check_docs"],
    "spelling": ["tools.check_spelling"],
}


def main() -> int:
    results: list[tuple[str, bool, float]] = []
    for name, command in CHECKS.items():
        print(f"--- {name}", flush=True)
        started = time.monotonic()
        passed = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0
        results.append((name, passed, time.monotonic() - started))
    print("---")
    for name, passed, seconds in results:
        print(f"{name:<20} {'ok' if passed else 'FAILED':<8} {seconds:5.1f} s")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
