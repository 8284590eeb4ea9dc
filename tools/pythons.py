"""Run the quick tests on every Python from 3.11 on that is found: ``python -m tools.pythons``.

It looks on PATH, among the interpreters of pyenv, and among those of uv. It takes the first one of each minor version.
Each interpreter has an environment in ``.cache/pythons``, except that the Python of ``.venv`` uses ``.venv``. If pip
cannot fetch the packages for an interpreter, the report says that it was skipped. If the tests fail on one interpreter,
the program fails. The program passes its arguments to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.repository import ROOT

OLDEST = (3, 11)
UNAVAILABLE = 69
"""The exit code of tools/environment if pip could not fetch the packages."""

ASK = "import sys; print(*sys.version_info[:3], sys.implementation.name, sys.version_info.releaselevel)"


@dataclass(frozen=True)
class Python:
    """An interpreter that was found."""

    version: tuple[int, int, int]
    path: Path

    @property
    def minor(self) -> str:
        """The version as a classifier names it: ``3.12``."""
        return f"{self.version[0]}.{self.version[1]}"

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))} ({self.path})"


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths that may be interpreters: those on PATH, then those of pyenv and of uv, the newest first."""
    home = Path(environment.get("HOME") or "/nonexistent")
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local/share")
    pyenv = Path(environment.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(environment.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")
    folders = [Path(folder) for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    folders += [folder / "bin" for root in (pyenv, uv) for folder in sorted(root.glob("*"), key=_numbers, reverse=True)]
    for folder in folders:
        yield from sorted(path for path in folder.glob("python3*") if re.fullmatch(r"python3(\.\d+)?", path.name))


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def ask(path: Path) -> Python | None:
    """Return the interpreter at a path, if it runs and the suite can run on it."""
    try:
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.fullmatch(r"(\d+) (\d+) (\d+) cpython final\s*", done.stdout)
    if done.returncode != 0 or said is None:
        return None
    major, minor, micro = map(int, said.groups())
    return Python((major, minor, micro), path) if (major, minor) >= OLDEST else None


def find(environment: Mapping[str, str]) -> list[Python]:
    """Return the first interpreter of each minor version, the oldest version first."""
    found: dict[str, Python] = {}
    for path in candidates(environment):
        python = ask(path)
        if python is not None:
            found.setdefault(python.minor, python)
    return sorted(found.values(), key=lambda python: python.version)


def test(python: Python, arguments: list[str]) -> str:
    """Run the tests on one interpreter; return the verdict."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SBREDIS_")}
    folder = ROOT / ".cache/pythons" / python.minor
    if python.version[:2] == sys.version_info[:2]:
        folder = ROOT / ".venv"
    else:
        made = subprocess.run(
            [ROOT / "tools/environment"],
            env=environment | {"PYTHON": str(python.path), "SBREDIS_VENV": str(folder)},
            check=False,
        )
        if made.returncode:
            return (
                "skipped: pip could not fetch its packages" if made.returncode == UNAVAILABLE else "FAILED: environment"
            )
    command: list[str | Path] = [folder / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--quick"]
    command += ["--dist", "worksteal", "-n", "auto", *(arguments or ["tests"])]
    return "FAILED" if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode else "passed"


def main(arguments: list[str]) -> int:
    """Test on all interpreters, and say which were found and which passed."""
    pythons = find(os.environ)
    results: list[tuple[Python, str, float]] = []
    for python in pythons:
        print(f"--- {python}", flush=True)
        started = time.monotonic()
        results.append((python, test(python, arguments), time.monotonic() - started))
    print("---")
    for python, verdict, seconds in results:
        print(f"{python}: {verdict}, {seconds:.0f} s")
    if len(pythons) == 1:
        print("only one Python from 3.11 on was found; pyenv or uv install others")
    passed = [python for python, verdict, _ in results if verdict == "passed"]
    return 1 if not passed or any(verdict.startswith("FAILED") for _, verdict, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
