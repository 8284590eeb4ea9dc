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

pytestmark = pytest.mark.slow

ESCAPE = "\x1b["
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")
COMMANDS = [("doctor",), ("queue", "list"), ("peek", "orders")]


def run(*arguments: str, stdout: int, **environment: str) -> subprocess.Popen[bytes]:
    terms = {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    command = [sys.executable, "-m", "sbredis.cli", *arguments]
    return subprocess.Popen(
        command, env=inherited | terms | environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT
    )


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """Return what a command prints on a terminal."""
    terminal, inside = pty.openpty()
    try:
        with run(*arguments, stdout=inside, **environment):
            os.close(inside)
            shown = b""
            with suppress(OSError):  # the other end is closed
                while part := os.read(terminal, 65536):
                    shown += part
        return shown.decode()
    finally:
        os.close(terminal)


def in_a_pipe(*arguments: str) -> str:
    shown, _ = run(*arguments, stdout=subprocess.PIPE).communicate(timeout=60)
    return shown.decode()


@pytest.fixture
def filled(bus: Bus) -> Bus:
    bus.queue()
    bus.did("send", "orders", "x")
    return bus


@pytest.mark.long("each case starts a process")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pipe_gets_no_escape_sequences(filled: Bus, words: tuple[str, ...]) -> None:
    shown = in_a_pipe(*words, "--url", filled.url)
    assert shown.count("\n") >= 2
    assert ESCAPE not in shown


@pytest.mark.long("each case starts two processes")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_terminal_gets_no_colours_if_they_are_not_wanted(filled: Bus, words: tuple[str, ...]) -> None:
    shown = on_a_terminal(*words, "--url", filled.url, NO_COLOR="1")
    assert shown.count("\n") >= 2
    assert not COLOUR.search(shown)
    assert ESCAPE not in on_a_terminal(*words, "--url", filled.url, TERM="dumb")


def test_a_terminal_shows_how_grave_a_finding_is_in_colours(filled: Bus) -> None:
    shown = on_a_terminal("doctor", "--url", filled.url)
    assert re.search(COLOUR.pattern + r".*(?:warning|note|critical)", shown)


def test_json_on_a_terminal_has_no_escape_sequences(filled: Bus) -> None:
    assert ESCAPE not in on_a_terminal("doctor", "--output", "json", "--url", filled.url)
