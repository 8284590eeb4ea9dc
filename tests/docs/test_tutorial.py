"""Tests that type the tutorial: each program is saved under its name, each command is run, each output is compared.

The commands of a part run in one folder, in the order of the page, with the data that the steps before them have left.
A part is a section of the page with the sections that go on from it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.plugins.parts import first
from tools.check_docs import FENCE
from tools.repository import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
TITLE = re.compile(r'title="(?P<name>[\w.]+)"')
GOES_ON = {"3. Receive with a lock", "9. Look from a terminal", "10. A test"}
"""The sections that need what the section before them has left."""
OF_THE_READER = ("mkdir", "cd", "python3 -m venv", ". .venv", "pip install")
"""The commands that prepare the environment, which the test has already."""
GAP = re.compile(r"(?:\\ ){2,}")
"""Several spaces in a pattern."""
UNTIL_CTRL_C = "python -m sbredis.workers"


class Step(NamedTuple):
    """A block of the page: a program to save, or a command to run with its output."""

    name: str
    text: str
    output: list[str]


def steps(page: str) -> list[Step]:
    """Return the steps of a tutorial."""
    found: list[Step] = []
    for fence in FENCE.finditer(page):
        language, code = fence["language"], fence["code"]
        if language == "python":
            title = TITLE.search(fence[0].splitlines()[0])
            assert title is not None, f"a program of the tutorial has no name:\n{code}"
            found.append(Step(title["name"], code, []))
        elif language == "sh":
            commands = [line for line in code.splitlines() if not line.startswith(OF_THE_READER)]
            found += [Step("", command, []) for command in commands]
        elif language == "text":
            found[-1] = found[-1]._replace(output=code.splitlines())
    return found


def parts(page: str) -> dict[str, str]:
    """Return the parts of the page that run something, by the headings of their first sections."""
    found: dict[str, str] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        if heading in GOES_ON:
            found[next(reversed(found))] += section
        elif steps(section):
            found[heading] = section
    return found


def unlike(lines: list[str], expected: list[str]) -> list[str]:
    """Return both outputs if they differ. ``…`` in the expected output is any text.

    Several spaces are the gap between two columns. Its width depends on the values: the number of a message is larger
    if the server was started again before.
    """
    patterns = [".*".join(GAP.sub(" {2,}", re.escape(part)) for part in line.split("…")) for line in expected]
    fits = len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))
    return [] if fits else ["printed:", *lines, "the page says:", *expected]


def run(command: str, output: list[str], folder: Path) -> list[str]:
    """Run a command of the page, and return the problems that it had."""
    words = shlex.split(command)
    arguments = {"python": words[1:], "sbredis": ["-m", "sbredis.cli", *words[1:]]}[words[0]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(120, process.kill)
    limit.start()
    assert process.stdout is not None
    printed: list[str] = []
    if command.startswith(UNTIL_CTRL_C):
        for line in process.stdout:
            printed.append(line.rstrip("\n"))
            if len(printed) == len(output):
                break
        process.send_signal(signal.SIGINT)
    rest, complained = process.communicate()
    limit.cancel()
    printed += rest.splitlines()
    problems = unlike(printed, output)
    return [command, *problems, complained] if problems or process.returncode else []


@pytest.mark.usefixtures("binary")
@pytest.mark.parametrize("part", first(1, parts(PAGE).values(), "it runs many programs"), ids=parts(PAGE))
def test_the_tutorial_works_as_it_is_typed(part: str, tmp_path: Path) -> None:
    for step in steps(part):
        if step.name:
            (tmp_path / step.name).write_text(step.text, "utf-8")
        else:
            assert "\n".join(run(step.text, step.output, tmp_path)) == ""


def test_the_parts_have_every_step_of_the_tutorial() -> None:
    assert [step for part in parts(PAGE).values() for step in steps(part)] == steps(PAGE)
    assert {re.match(r"(.*)\n", section)[1] for section in re.split("^## ", PAGE, flags=re.MULTILINE)} >= GOES_ON  # type: ignore[index]


def test_every_step_of_the_tutorial_that_runs_something_shows_its_output() -> None:
    silent = [step.text for step in steps(PAGE) if not step.name and not step.output]
    assert silent == ["python order.py"]


def test_an_output_may_leave_out_what_differs_from_run_to_run() -> None:
    assert unlike(["1 passed in 0.2s"], ["1 passed in …"]) == []
    assert unlike(["a", "b"], ["a"]) == ["printed:", "a", "b", "the page says:", "a"]
