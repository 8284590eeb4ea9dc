"""Run all checks that need no server, one after the other. All checks run, and the program fails if one of them fails.

The Python package of pyright fetches pyright itself from npm on its first run. If this download fails, the
last line says that pyright did not run, and why. Then only the other checks count; mypy always runs.
"""

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

PYRIGHT = "types (pyright)"
PATIENCE = 300
"""The time limit, in seconds, for npm to fetch pyright."""


def pyright_is_missing() -> str | None:
    """Return why pyright cannot run, or ``None`` if it can."""
    command = [sys.executable, "-m", "pyright", "--version"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"npm did not fetch it within {PATIENCE} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return None if done.returncode == 0 else lines[-1] if lines else "it could not be fetched from npm"


def main() -> int:
    results: list[tuple[str, bool, float]] = []
    missing = pyright_is_missing()
    for name, command in CHECKS.items():
        if name == PYRIGHT and missing is not None:
            continue
        print(f"--- {name}", flush=True)
        started = time.monotonic()
        passed = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0
        results.append((name, passed, time.monotonic() - started))
    print("---")
    for name, passed, seconds in results:
        print(f"{name:<20} {'ok' if passed else 'FAILED':<8} {seconds:5.1f} s")
    if missing is not None:
        print(f"{PYRIGHT:<20} NOT RUN: {missing}")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
