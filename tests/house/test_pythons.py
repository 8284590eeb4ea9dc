"""Tests of the interpreters that ``make test-pythons`` finds, and of its verdict on each."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tools import pythons
from tools.pythons import Python, find
from tools.repository import ROOT


def interpreter(path: Path, version: str) -> Path:
    """Make a program that answers like a Python of this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{version.replace('.', ' ')} cpython final'\n", "utf-8")
    path.chmod(0o755)
    return path


def test_the_first_interpreter_of_each_version_is_found_in_any_folder(tmp_path: Path) -> None:
    on_path = interpreter(tmp_path / "bin/python3.12", "3.12.1")
    interpreter(tmp_path / "bin/python3.10", "3.10.4")
    interpreter(tmp_path / "pyenv/versions/3.12.9/bin/python3.12", "3.12.9")
    interpreter(tmp_path / "pyenv/versions/3.13.2/bin/python3.13", "3.13.2")
    newest = interpreter(tmp_path / "pyenv/versions/3.13.10/bin/python3.13", "3.13.10")
    of_uv = interpreter(tmp_path / "uv/cpython-3.14.0-linux/bin/python3.14", "3.14.0")
    environment = {
        "PATH": str(tmp_path / "bin"),
        "PYENV_ROOT": str(tmp_path / "pyenv"),
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "uv"),
    }
    assert find(environment) == [Python((3, 12, 1), on_path), Python((3, 13, 10), newest), Python((3, 14, 0), of_uv)]


def test_programs_that_are_not_released_pythons_are_skipped(tmp_path: Path) -> None:
    broken = interpreter(tmp_path / "python3.12", "3.12.1")
    broken.write_text("#!/bin/sh\necho '3 12 1 cpython candidate'\n", "utf-8")
    interpreter(tmp_path / "python3.13", "3.13.1").write_text("#!/bin/sh\nexit 127\n", "utf-8")
    interpreter(tmp_path / "python3-config", "3.14.1")
    assert find({"PATH": str(tmp_path)}) == []


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (["passed", "passed"], 0),
        (["passed", "skipped: pip could not fetch its packages"], 0),
        (["passed", "FAILED"], 1),
        (["skipped: pip could not fetch its packages"], 1),
        ([], 1),
    ],
)
def test_one_failing_python_fails_the_run_and_every_verdict_is_reported(
    verdicts: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {Python((3, 11 + i, 0), Path(f"/p{i}")): verdict for i, verdict in enumerate(verdicts)}
    monkeypatch.setattr(pythons, "find", lambda _: list(found))
    monkeypatch.setattr(pythons, "test", lambda python, _: found[python])
    assert pythons.main([]) == status
    output = capsys.readouterr().out
    assert re.findall(r"^Python 3\.(\d+)\.0 \(/p\d\): (.*), 0 s$", output, re.MULTILINE) == [
        (str(python.version[1]), verdict) for python, verdict in found.items()
    ]
    assert ("only one Python" in output) == (len(verdicts) == 1)


def test_the_readme_names_the_same_python_versions_as_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    claimed = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    output = (ROOT / "README.md").read_text("utf-8").partition("\n## Supported versions\n")[2].partition("\n## ")[0]
    assert re.findall(r"\b3\.\d+", output) == claimed
