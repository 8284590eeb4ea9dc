"""The commands that README and CONTRIBUTING name: make's targets, the scripts behind them, and what they install."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.offenders import for_each
from tools.repository import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SCRIPTS = ["tools/environment", "tools/nats", "tools/system-packages", ".ci/run"]


def make(*arguments: str) -> str:
    """What make prints, as if it were called at a prompt."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=280)
    return done.stdout


def pins(name: str) -> dict[str, str]:
    """A requirements file: the versions by the names, without extras and markers."""
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    wanted = [re.sub(r"[;#].*", "", line).strip() for line in lines]
    return {line.partition("==")[0]: line.partition("==")[2] for line in wanted if line}


def test_make_alone_lists_every_target_with_its_purpose() -> None:
    promised = {"demo", "test", "check", "bench", "bench-transport", "release", "clean", "help"}
    listed = dict(re.findall(r"^ +make ([a-z-]+) +(\S.*)$", make(), re.MULTILINE))
    assert set(listed) >= promised
    phony = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()
    assert set(listed) == set(phony)


def test_continuous_integration_runs_the_tests() -> None:
    assert "exec make test" in (ROOT / ".ci/run").read_text("utf-8")


@for_each("script", SCRIPTS)
def test_a_script_can_be_run_and_is_well_formed(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = "bash" if "bash" in path.read_text("utf-8").partition("\n")[0] else "sh"
    subprocess.run([shell, "-n", path], check=True, timeout=280)


@pytest.mark.parametrize("name", ["test.txt", "check.txt", "nats.txt"])
def test_requirements_are_exact_so_that_a_run_can_be_repeated(name: str) -> None:
    assert pins(name)
    assert {package for package, version in pins(name).items() if not re.fullmatch(r"[\w.]+", version)} == set()


def test_the_test_requirements_cover_sbredis_and_its_extras() -> None:
    needed = {re.split(r"[^\w-]", need)[0].lower() for need in requires("sbredis") or []}
    assert needed <= {re.sub(r"\[.*\]", "", package) for package in pins("test.txt")}


def test_an_unsuitable_python_is_refused_with_a_remedy(tmp_path: Path) -> None:
    copy = tmp_path / "a checkout"
    (copy / "tools").mkdir(parents=True)
    (copy / "tools/environment").write_bytes((ROOT / "tools/environment").read_bytes())
    environment = {"PATH": os.environ["PATH"], "PYTHON": "/bin/false"}
    command = ["sh", str(copy / "tools/environment")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode != 0
    assert "PYTHON=/bin/false is not a Python of at least 3.11; name another" in done.stderr
    assert not (copy / ".venv").exists()
