"""Build the packages of this checkout, and run programs in other environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sbredis
from tools.repository import ROOT

__all__ = ["SDIST", "WHEEL", "build", "run"]

WHEEL = f"sbredis-{sbredis.__version__}-py3-none-any.whl"
SDIST = f"sbredis-{sbredis.__version__}.tar.gz"


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from it, into a folder outside the checkout, and return the folder."""
    run(sys.executable, "-m", "tools.assemble", cwd=ROOT)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    return folder


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a program, and return its output."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment or None,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
