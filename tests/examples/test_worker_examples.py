"""Tests that run the examples of the worker framework, all of them in this process.

``test_examples.py`` shows that each of them takes the arguments that all examples take.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import uuid
from collections.abc import Coroutine
from pathlib import Path

import pytest

from sbredis.servers import LocalServer
from tests.children import run_program
from tests.complaints import complaints
from tests.examples.running import printed_by, unlike
from tools.repository import ROOT

WORKER_EXAMPLES = {
    "worker.py": r"""
        orders, attempt 1: 2 x teapot
        orders, attempt 1: 6 x cup
        orders, attempt 1: 6 x saucer
    """,
    "worker_batches.py": r"""
        999 rows
        dead letter: \{"number":7,"celsius":-300.0\}: ImpossibleReading
    """,
    "worker_dependencies.py": r"""
        the database is open
        \('north', 'teapot'\)
        \('south', 'cup'\)
    """,
    "worker_fastapi.py": r"""
        answered with 202
        handled: 2 x teapot
    """,
    "worker_poison.py": r"""
        3 deaths
        dead letters:
        poison: The message was delivered .*, and its holder ended, or lost the lock, the last 3 times\.
    """,
    "worker_processes.py": r"""
        -1: HandlerProcessDied: The process of the handler ended with the signal SIGKILL\.
        360 = 2 x 2 x 2 x 3 x 3 x 5
        600851475143 = 71 x 839 x 1471 x 6857
    """,
    "worker_requests.py": r"""
        6 x cup: 27\.0
        2 x teapot: 18\.0
    """,
    "worker_retries.py": r"""
        closed: attempt 1
        closed: attempt 2
        closed: attempt 3
        moved: attempt 1
        moved: attempt 2
        moved: attempt 3
        nowhere: attempt 1
        refused: attempt 1
        closed: ConnectionError: the house is closed
        nowhere: AddressUnknownError: there is no nowhere
        refused: Refused: the reader refused the letter
    """,
    "worker_routing.py": r"""
        a new order: a teapot
        cancelled: a cup
        a large order: 200 spoons
        checked: by hand
    """,
    "worker_schedules.py": r"""
        counted the stock at second \d\d
        counted the stock at second \d\d
        2 messages, each sent once
    """,
    "worker_sessions.py": r"""
        ann: 100 makes 100
        ann: -30 makes 70
        ann: 5 makes 75
        bob: 20 makes 20
        bob: -20 makes 0
        bob: 7 makes 7
        eve: 1 makes 1
        eve: 1 makes 2
        eve: 1 makes 3
    """,
    "worker_shutdown.py": r"""
        opened
        bake a cake: attempt 1
        dig a well: attempt 1
        bake a cake: done
        dig a well: cancelled
        closed
        opened
        dig a well: attempt 1, interrupted before
        dig a well: done
        sweep: attempt 1
        sweep: done
        closed
    """,
    "worker_short_sessions.py": r"""
        200 customers
        in order: True
    """,
    "worker_transactions.py": r"""
        True: some handlers failed halfway
        40 invoices and parcels, 0 of them twice
    """,
}
"""Patterns of the lines that each example prints."""

SLOW = {"worker_poison.py", "worker_processes.py", "worker_sessions.py", "worker_shutdown.py", "worker_transactions.py"}
"""The examples that take longer than a quick test may."""


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in WORKER_EXAMPLES]
)
def test_each_example_prints_the_expected_output(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert unlike(printed_by(name, url, capsys), WORKER_EXAMPLES[name]) == []


@pytest.mark.long("they also run in memory")
def test_all_examples_run_on_a_server(shared_server: LocalServer, capsys: pytest.CaptureFixture[str]) -> None:
    urls = {name: f"{shared_server.url}?namespace={uuid.uuid4().hex}" for name in WORKER_EXAMPLES}
    found = {name: unlike(printed_by(name, url, capsys), WORKER_EXAMPLES[name]) for name, url in urls.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.long("it starts the program of a worker")
def test_an_example_runs_as_a_program(tmp_path: Path) -> None:
    """A process of a handler finds the handler in the program, too."""
    command = sys.executable, "-Werror", ROOT / "examples/worker_processes.py"
    done = run_program(*command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, complaints(done.stderr)
    assert done.stdout.splitlines()[0].startswith("-1: HandlerProcessDied")


@pytest.mark.parametrize("name", WORKER_EXAMPLES)
def test_an_example_ends_quietly_with_ctrl_c(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(work: Coroutine[object, object, None]) -> None:
        work.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run", interrupted)
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert ended.value.code == 130
