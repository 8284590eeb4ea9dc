"""Colours appear on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.cli.conftest import Bus
from tools.repository import ROOT

ESCAPE = "\x1b["
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")
COMMANDS = [("doctor",), ("queue", "list"), ("peek", "orders")]


BETWEEN = "-- the end of a command --"
IN_TURN = f"""
import sys
from sbredis.cli import main

for words in sys.argv[1].split("|"):
    main(words.split())
    print({BETWEEN!r}, flush=True)
"""
"""One process runs all commands, because it takes a second to start."""


def run(commands: list[tuple[str, ...]], stdout: int, **environment: str) -> subprocess.Popen[bytes]:
    terms = {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    command = [sys.executable, "-c", IN_TURN, "|".join(map(" ".join, commands))]
    return subprocess.Popen(
        command, env=inherited | terms | environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT
    )


def on_a_terminal(*commands: tuple[str, ...], **environment: str) -> list[str]:
    """Return what each command prints on a terminal."""
    terminal, inside = pty.openpty()
    try:
        with run([*commands], inside, **environment):
            os.close(inside)
            shown = b""
            with suppress(OSError):  # the other end is closed
                while part := os.read(terminal, 65536):
                    shown += part
        return parts(shown, len(commands))
    finally:
        os.close(terminal)


def in_a_pipe(*commands: tuple[str, ...]) -> list[str]:
    shown, _ = run([*commands], subprocess.PIPE).communicate(timeout=60)
    return parts(shown, len(commands))


def parts(shown: bytes, number: int) -> list[str]:
    *each, rest = shown.decode().split(BETWEEN)
    assert (len(each), rest.strip()) == (number, ""), shown
    return [part.strip() for part in each]


@pytest.fixture
def filled(bus: Bus) -> Bus:
    bus.queue()
    bus.did("send", "orders", "x")
    return bus


def at(url: str) -> list[tuple[str, ...]]:
    return [(*words, "--url", url) for words in COMMANDS]


def test_a_pipe_gets_no_escape_sequences(filled: Bus) -> None:
    for shown in in_a_pipe(*at(filled.url)):
        assert shown.count("\n") >= 1
        assert ESCAPE not in shown


def test_a_terminal_gets_no_colours_if_they_are_not_wanted(filled: Bus) -> None:
    for shown in on_a_terminal(*at(filled.url), NO_COLOR="1"):
        assert shown.count("\n") >= 1
        assert not COLOUR.search(shown)
    for shown in on_a_terminal(*at(filled.url), TERM="dumb"):
        assert shown.count("\n") >= 1
        assert ESCAPE not in shown


def test_a_terminal_shows_how_grave_a_finding_is_in_colours_but_not_in_json(filled: Bus) -> None:
    doctor = "doctor", "--url", filled.url
    shown, json = on_a_terminal(doctor, (*doctor, "--output", "json"))
    assert re.search(COLOUR.pattern + r".*(?:warning|note|critical)", shown)
    assert not COLOUR.search(json)
