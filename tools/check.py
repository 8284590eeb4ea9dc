"""Run all checks that need no server, one after the other. All checks run, and the program fails if one of them fails.

Pyright may be missing, because its Python package fetches it from npm on the first run. Then the last lines say that
this check did not run, and why, and only the other checks count; mypy always runs.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tools.repository import ROOT

PYRIGHT = "types (pyright)"
CHECKS = {
    "lint": ["ruff", "check", "."],
    "formatting": ["ruff", "format", "--check", "."],
    "types (mypy)": ["mypy"],
    PYRIGHT: ["pyright"],
    "import rule": ["pytest", "-q", "-p", "no:cacheprovider", "tests/house/test_imports.py"],
    "synchronous API": ["tools.make_sync", "--check"],
    "locks": ["tools.lock", "--check"],
    "documentation": ["tools.check_docs"],
    "spelling": ["tools.check_spelling"],
    "commits": ["tools.check_commits"],
    "site": ["tools.site"],
}

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
    missing = {PYRIGHT: pyright_is_missing()}
    for name, command in CHECKS.items():
        if missing.get(name) is not None:
            continue
        print(f"--- {name}", flush=True)
        started = time.monotonic()
        passed = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0
        results.append((name, passed, time.monotonic() - started))
    print("---")
    for name, passed, seconds in results:
        print(f"{name:<20} {'ok' if passed else 'FAILED':<8} {seconds:5.1f} s")
    for name, reason in missing.items():
        if reason is not None:
            print(f"{name:<20} NOT RUN: {reason}")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
