"""Tests that all tests wait for conditions: a length of time that is enough on one machine is too short on another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.repository import ROOT, files

FOR_EVER = 3600
"""A sleep of at least this many seconds stands for work that never ends. The test itself ends it."""

# The files that may sleep for a number of seconds: how often, and why the test passes on a slow machine too.
ALLOWED = {
    "tests/waiting.py": (3, "asks again whether a condition holds"),
    "tests/aio/test_hearing.py": (10, "in a loop whose time jumps"),
    "tests/aio/test_gathering.py": (1, "the pace of a sender; nothing depends on it"),
    "tests/aio/test_sessions.py": (1, "the pace of senders; nothing depends on it"),
    "tests/workers/test_locks.py": (1, "a handler that asks again whether its lock is lost"),
    "tests/workers/test_sturdiness.py": (1, "a handler that blocks and looks again; nothing depends on how long"),
    "tests/workers/test_threads.py": (1, "a function that looks again whether its time is over"),
    "tests/workers/test_breakers.py": (1, "a trial that takes a time, in which another one could begin"),
    "tests/workers/test_fairness.py": (1, "handlers that take a time, in a loop whose time jumps"),
    "tests/workers/test_sessions.py": (1, "handlers that take a time, in which another one could begin"),
    "tests/workers/test_suspects.py": (1, "looks again how much memory workers have"),
    "tests/workers/chaos/poison.py": (1, "the pace of senders; nothing depends on it"),
    "tests/workers/chaos/programs.py": (1, "looks again whether the workers have enough messages"),
    "tests/transport/test_promises.py": (1, "a slow network, which may be slower"),
}


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    """Find the calls of a function with the name ``sleep`` and a positive number."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="sleep") | ast.Name(id="sleep"),
                args=[ast.Constant(value=int() | float() as given)],
            ) if 0 < given < FOR_EVER:
                yield node


def found_in(path: Path) -> int:
    text = path.read_text("utf-8")
    return len(list(sleeps(ast.parse(text)))) if "sleep(" in text else 0


def test_no_test_sleeps_for_a_fixed_time() -> None:
    """Instead a test waits for a condition (``tests/waiting.py``), passes in a clock, or lets the event loop run."""
    tests = [path for path in files(".py") if path.relative_to(ROOT).parts[0] == "tests"]
    found = {str(path.relative_to(ROOT)): count for path in tests if (count := found_in(path))}
    assert found == {name: count for name, (count, _) in ALLOWED.items()}


def test_sleeps_for_a_fixed_time_are_found() -> None:
    """The rule is about numbers only. A computed time may depend on the condition that the test waits for."""
    text = "time.sleep(1)\nasyncio.sleep(0.05)\nsleep(2)\nasyncio.sleep(0)\nasyncio.sleep(3600)\nasyncio.sleep(pause)\n"
    assert [call.lineno for call in sleeps(ast.parse(text))] == [1, 2, 3]
