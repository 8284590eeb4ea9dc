"""The help of every command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sbredis.cli._app import PARTS, program
from tools.repository import ROOT


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, f"{path}{name}"
        if isinstance(found, click.Group):
            yield from commands(found, f"{path}{name} ")
        else:
            yield f"{path}{name}", found


EVERY = dict(commands(program))


@pytest.mark.parametrize("path", EVERY)
def test_a_command_has_help_with_an_example_that_names_it(path: str) -> None:
    found = EVERY[path]
    help_page = found.get_help(click.Context(found))
    assert (found.help or "").strip(), "the help says nothing"
    assert f"  sbredis {path}" in help_page
    assert all(parameter.help for parameter in found.params if isinstance(parameter, click.Option)), help_page


def groups(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Group]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield f"{path}{name}", found
            yield from groups(found, f"{path}{name} ")


GROUPS = dict(groups(program))


@pytest.mark.parametrize("path", GROUPS)
def test_a_group_has_help_with_an_example_of_its_commands(path: str) -> None:
    examples = [line.split() for line in (GROUPS[path].epilog or "").splitlines() if line.startswith("  sbredis ")]
    assert examples
    assert all(" ".join(words[1:3]) in EVERY and words[1] == path for words in examples)


@pytest.mark.parametrize("name", PARTS)
def test_the_line_in_the_list_of_commands_is_the_first_of_the_help(name: str) -> None:
    found = program.get_command(click.Context(program), name)
    assert found is not None
    assert (found.help or "").split("\n")[0] == PARTS[name][1]


HEAVY = {
    *("rich", "redis", "yaml"),
    *(f"sbredis.{name}" for name in ("aio", "engine", "model", "registry", "rules", "spark", "sync", "workers")),
}
"""The modules that make a help page slow. Without them it takes a tenth of a second."""
PROPERTIES = {"sbredis.engine", "sbredis.model", "sbredis.rules"}
NEEDED = {
    **dict.fromkeys(("queue", "topic", "subscription", "rule"), PROPERTIES),  # the properties are their options
    "spark": {"sbredis.engine", "sbredis.registry", "sbredis.rules", "sbredis.spark"},
    "worker": {"sbredis.workers"},
}
IMPORTS = r"""
import json, os, sys
from sbredis.cli import main
from sbredis.cli._app import program
heavy, paths = json.loads(sys.argv[1])
for path in paths:
    sys.stdout.flush()
    if not os.fork():
        sys.stdout = open(os.devnull, "w")
        code = main([*path.split(), "--help"])
        found = [name for name in heavy if name in sys.modules]
        os.write(1, json.dumps([path, code, found]).encode() + b"\n")
        os._exit(0)
    os.wait()
"""


@pytest.mark.long("it starts a process for each command")
def test_no_help_imports_what_it_does_not_need() -> None:
    """Each page is made in a process of its own, which has imported only the program."""
    command = [sys.executable, "-c", IMPORTS, json.dumps([sorted(HEAVY), list(EVERY)])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [path for path, _, _ in found] == list(EVERY)
    assert [path for path, code, _ in found if code] == []
    assert {
        path: needless for path, _, imported in found if (needless := {*imported} - NEEDED.get(path.split()[0], set()))
    } == {}


TEXTS = [
    "cli --help",
    "cli queue --help",
    "cli --version",
    "cli worker --help",
    "workers --help",
    "cli completion bash",
]


@pytest.mark.parametrize("arguments", TEXTS)
def test_a_text_for_a_reader_who_has_gone_ends_quietly(arguments: str) -> None:
    module, *rest = arguments.split()
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", f"sbredis.{module}", *rest]
    ran = subprocess.run(command, check=False, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", TEXTS)
def test_a_text_that_cannot_be_written_is_no_traceback(arguments: str, unbuffered: str) -> None:
    module, *rest = arguments.split()
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", f"sbredis.{module}", *rest]
        ran = subprocess.run(
            command, check=False, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert ran.returncode == 1
    assert re.fullmatch(r"sbredis: (The help cannot be written: )?No space left on device\.?\n", ran.stderr)
