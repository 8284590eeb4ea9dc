"""The example of tests of a worker runs as a reader would run it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.children import run_program
from tests.complaints import complaints
from tools.repository import ROOT


@pytest.mark.long("it starts pytest in a process")
def test_the_tests_of_a_worker_pass(tmp_path: Path) -> None:
    command = sys.executable, "-Xdev", "-Werror", ROOT / "examples/worker_tests.py"
    plugins = {"PYTHONPATH": str(ROOT), "PYTEST_PLUGINS": "sbredis.testing"}
    done = run_program(*command, cwd=tmp_path, env={**os.environ, **plugins})
    assert done.returncode == 0, f"{done.stdout}\n{complaints(done.stderr)}"
    assert "5 passed in" in done.stdout  # and no warnings
