"""Tests that the two commands of the README need no program that a Debian may lack, and of the tool that tries it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.children import run_program
from tests.offenders import for_each
from tools import bare_debian
from tools.bare_debian import Unable, commands, mirror_of, settings_of_apt, settings_of_pip
from tools.repository import ROOT, files

PRESENT = {"bash", "chroot", "false", "git", "make", "mount", "sh", "true", "umount"}
"""The programs that every Debian has, and those that the README asks for."""
HOUSED = {"tools/bare_debian.py": {"apt-config", "apt-get", "debootstrap", "unshare"}}
"""Programs that a tool looks for, and does without if they are missing."""
OF_TESTS = {
    "tests/house/test_bare_debian.py": {"ps", "curl"},  # examples
    "tests/transport/test_server_facts.py": {"redis-server"},  # a reply of a server
}
"""Names of programs that a test does not start."""
STARTERS = {
    "asyncio.create_subprocess_exec",
    "subprocess.Popen",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.run",
}
AT_A_PATH = re.compile(r"(/usr)?(/local)?/s?bin/[\w.-]+")


def programs(tree: ast.AST) -> Iterator[str]:
    """Yield the programs that code names: by their paths, or as the first word of a command that it starts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and AT_A_PATH.fullmatch(node.value):
            yield PurePosixPath(node.value).name
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in STARTERS:
            first: ast.expr | None = next(iter(node.args), None)
            while isinstance(first, ast.List | ast.Tuple | ast.Starred):
                first = first.value if isinstance(first, ast.Starred) else next(iter(first.elts), None)
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and " " not in first.value:
                yield PurePosixPath(first.value).name


FILES = [
    path.relative_to(ROOT).as_posix()
    for path in files(".py")
    if path.relative_to(ROOT).parts[0] in {"examples", "tests", "tools"}
    and re.search(r"subprocess|/s?bin/", path.read_text("utf-8"))
]


@for_each("path", FILES)
def test_code_starts_only_programs_that_a_bare_debian_has(path: str) -> None:
    """Other programs are on a developer's machine, and not where somebody tries the two commands."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert {*programs(tree)} - PRESENT - HOUSED.get(path, set()) - OF_TESTS.get(path, set()) == set()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("subprocess.run(['curl', url])", ["curl"]),
        ("subprocess.run(['/bin/ps', '-A'])", ["ps", "ps"]),
        ("shown = ['/bin/ps', '-A']", ["ps"]),
        ("await asyncio.create_subprocess_exec(*('sh', '-c', line))", ["sh"]),
        ("subprocess.run([sys.executable, 'curl'])", []),
        ("runner.run('a sentence')", []),
    ],
)
def test_the_rule_finds_the_programs_that_code_names(code: str, named: list[str]) -> None:
    assert sorted(programs(ast.parse(code))) == named


# -- the tool ----------------------------------------------------------------------------------------------------------

TARGETS = """\
http://a.example/debian bookworm-updates main
http://b.example/debian bookworm contrib
http://c.example/debian bookworm main
http://d.example/debian bookworm main
"""


def test_the_debian_comes_from_where_apt_gets_it() -> None:
    assert mirror_of(TARGETS, "bookworm") == "http://c.example/debian"
    with pytest.raises(Unable, match="apt is not set up for the packages of trixie"):
        mirror_of(TARGETS, "trixie")
    dumped = 'Acquire::http::Proxy "p";\nAcquire::cdrom "";\nAcquire::Retries "3";\nDPkg::Options "";'
    assert list(settings_of_apt(dumped)) == ['Acquire::http::Proxy "p";', 'Acquire::Retries "3";']


def test_pip_reaches_its_index_as_outside_and_gets_no_folder_of_this_machine() -> None:
    option = "index_url".replace("_", "-")
    listed = f"""\
global.{option}='https://a.example/simple'
global.timeout='20'
global.no-index='/srv/wheels'
:env:.{option}='https://b.example/simple'
"""
    assert settings_of_pip(listed) == {"PIP_INDEX_URL": "https://b.example/simple", "PIP_TIMEOUT": "20"}


def test_both_commands_run() -> None:
    assert commands(None) == ["make demo", "make test-all"]
    assert [line.split(" ARGS=")[0] for line in commands(["a", "b"])] == ["make demo", "make test TESTS='a b'"]


@for_each("path", bare_debian.PART)
def test_the_tests_that_run_in_a_bare_debian_exist(path: str) -> None:
    assert (ROOT / path).is_file()


def test_a_machine_that_cannot_make_a_debian_is_told_why_and_nothing_is_made() -> None:
    """Here no program is on PATH, or the user is not root."""
    environment = {"PATH": "/nonexistent"}
    with pytest.raises(Unable, match=r"it needs (Linux|root)|there is no apt-get \(on Debian: apt-get install"):
        bare_debian.check(environment)


def test_a_run_that_is_skipped_says_so_and_succeeds() -> None:
    nothing = {"PATH": "/nonexistent", "PYTHONPATH": str(ROOT)}
    ran = run_program(sys.executable, "-m", "tools.bare_debian", cwd=ROOT, env=nothing)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(
        r"skipped: the run in a bare Debian: (it needs (Linux|root)|there is no apt-get.*)\n", ran.stdout
    )
