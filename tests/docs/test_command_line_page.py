"""The guide to the command line: its sessions are typed as they stand, and its commands have the options they use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sbredis.cli import main
from sbredis.cli._app import program
from sbredis.model._message import _ids
from sbredis.servers import stop_kept
from tools.repository import ROOT

PAGE = (ROOT / "docs/command-line.md").read_text("utf-8")
HOME = "/srv/ann"
"""The folder in which the sessions of the page are typed."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def sessions() -> Iterator[tuple[list[str], str]]:
    """Yield the arguments of each command that the sessions type, and what it prints."""
    for block in blocks("console"):
        for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = typed.partition("\n")
            words = shlex.split(line)
            assert words[0] == "sbredis"
            yield words[1:], printed


def test_the_sessions_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBREDIS_CONTEXTS", str(tmp_path / "contexts.json"))
    for name in ("SBREDIS_URL", "SBREDIS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    (declared,) = blocks("yaml")
    (tmp_path / "bus.yaml").write_text(declared, "utf-8")
    typed = 0
    try:
        for arguments, printed in sessions():
            capsys.readouterr()
            _ids.begin()  # as in a new process: the length of an id depends on how many there were
            main([each.replace(HOME, str(tmp_path)) for each in arguments])
            shown = capsys.readouterr()
            both = (shown.out + shown.err).replace(str(tmp_path), HOME)
            assert both == printed, arguments
            typed += 1
    finally:
        stop_kept(tmp_path / "bus")
    assert typed > 20


def commands() -> Iterator[str]:
    """Yield the commands of the other blocks, without what the shell does with their output."""
    for block in blocks("sh"):
        for line in block.splitlines():
            for part in re.split(r" \| |\$\(|\)\"", line):
                if part.startswith(("sbredis ", "sbredis\n")):
                    yield re.split(r" [<>] ", part)[0]


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_a_command_of_the_page_has_the_options_that_it_is_given(line: str) -> None:
    words = shlex.split(line)[1:]
    context = click.Context(program, info_name="sbredis")
    _, words, _ = program.make_parser(context).parse_args(words)
    found: click.Command = program
    while isinstance(found, click.Group):
        name = words.pop(0)
        group, found = found, found.get_command(context, name) or pytest.fail(f"there is no command {name}")
        context = click.Context(found, parent=context, info_name=name)
        if isinstance(found, click.Group):
            assert group is not found
    if found.name not in {"worker", "spark"}:
        found.make_parser(context).parse_args(words)


def test_every_command_has_an_example_on_the_page() -> None:
    typed = [*commands(), *(f"sbredis {shlex.join(arguments)}" for arguments, _ in sessions())]
    names = program.list_commands(click.Context(program))
    examples = {
        name: [line for line in typed if re.match(rf"sbredis (--context \w+ )?{name}\b", line)] for name in names
    }
    assert [name for name in names if not examples[name] and f"`sbredis {name}" not in PAGE] == []
