"""The question before something is deleted, on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Bus, Command
from tests.waiting import wait_until
from tools.repository import ROOT

Answer = Callable[["subprocess.Popen[str]", int], None]


def typed(text: str) -> Answer:
    def write(_: object, terminal: int) -> None:
        os.write(terminal, text.encode())

    return write


def interrupted(running: subprocess.Popen[str], _: int) -> None:
    """Press Ctrl-C while the command waits for the answer."""
    status = Path(f"/proc/{running.pid}/stat")
    wait_until(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "S")
    running.send_signal(signal.SIGINT)


def asked(answer: Answer, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, answer its question, and return the exit code and what is printed after that."""
    terminal, inside = pty.openpty()
    try:
        running = subprocess.Popen(
            [sys.executable, "-m", "sbredis.cli", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=inside,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert running.stderr is not None
        question = ""
        while not question.endswith((": ", "go on: ")):
            letter = running.stderr.read(1)
            assert letter, question
            question += letter
        assert "Delete " in question
        answer(running, terminal)
        out, err = running.communicate(timeout=60)
        return running.returncode, out + err.strip()
    finally:
        os.close(terminal)
        os.close(inside)


ANSWERS: dict[str, tuple[Answer, bool, int, str]] = {
    "yes": (typed("y\n"), True, 0, "queue orders with 0 messages is deleted\n"),
    "no": (typed("n\n"), False, 1, "nothing was changed"),
    "nothing": (typed("\n"), False, 1, "nothing was changed"),
    "Ctrl-C": (interrupted, False, 130, "nothing was changed"),
}


@pytest.mark.long("each case starts a process with a terminal")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("answer", "gone", "code", "text"), ANSWERS.values(), ids=ANSWERS)
def test_only_a_yes_deletes(bus: Bus, answer: Answer, gone: bool, code: int, text: str) -> None:
    bus.queue("orders")
    assert asked(answer, "queue", "delete", "orders", "--url", bus.url) == (code, text)
    assert (bus.run("queue", "show", "orders").code == 1) is gone


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (typed("y\n"), 0, "deleted 1 message of orders\n"),
        (typed("n\n"), 1, "nothing was changed"),
        (interrupted, 130, "nothing was changed"),
    ],
)
def test_only_a_yes_purges_and_the_answer_is_told_once(bus: Bus, answer: Answer, code: int, text: str) -> None:
    bus.queue("orders")
    bus.did("send", "orders", "one")
    assert asked(answer, "purge", "orders", "--url", bus.url) == (code, text)
    assert len(bus.bodies("orders")) == (1 if code else 0)


@pytest.mark.long("each case starts a process with a terminal")
@pytest.mark.parametrize(("text", "code"), [("orders\n", 0), ("y\n", 1)])
def test_in_a_protected_context_the_name_is_typed(bus: Bus, sbredis: Command, text: str, code: int) -> None:
    bus.queue("orders")
    assert sbredis("context", "add", "prod", bus.url, "--protected").code == 0
    ended, _ = asked(typed(text), "queue", "delete", "orders", "--yes", "--context", "prod")
    assert ended == code
    assert sbredis("queue", "show", "orders").code == 1 - code
