"""Tests of what a worker shows on a terminal, and of its log."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbredis.servers import LocalServer
from sbredis.workers.observing._counts import EntityCounts
from sbredis.workers.observing._logs import set_up_logs
from sbredis.workers.observing._reports import Report
from sbredis.workers.observing._terminal import CLEAR, AboveLine, above_the_line, terminal
from sbredis.workers.supervising._programs import Screen
from tests.plugins.parts import first

APP = """
    import asyncio
    from contextlib import asynccontextmanager
    from sbredis.workers import Worker

    @asynccontextmanager
    async def lifespan(worker):
        await worker.client.ensure_queue("orders")
        await worker.send("orders", "a teapot")
        yield

    worker = Worker(lifespan=lifespan)

    @worker.queue("orders", create_if_missing=True)
    async def place(text: str) -> None:
        print(f"placed {text}")
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_line_is_written_above_the_live_line() -> None:
    stream = Terminal()
    above = AboveLine(stream)
    assert [above.write(text) for text in ("one ", "line", "", "\n", "another\n")] == [4, 4, 0, 1, 8]
    assert stream.getvalue() == f"{CLEAR}one line\n{CLEAR}another\n"
    assert above.isatty()


@pytest.mark.parametrize(("kind", "wrapped"), [(Terminal, True), (io.StringIO, False)])
def test_only_a_terminal_is_written_to_in_this_way(
    kind: type[io.StringIO], wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    with above_the_line(), above_the_line():
        assert isinstance(sys.stderr, AboveLine) == wrapped
        assert terminal() is (stream if wrapped else None)
    assert sys.stderr is stream


def test_the_live_line_shows_what_has_happened_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of a worker in the same process are always the same object."""
    stream, counts = Terminal(), EntityCounts()
    monkeypatch.setattr(sys, "stderr", stream)
    screen, report = Screen(1), Report({"orders": counts}, title="shop")
    shown: list[str] = []
    for completed in (10, 25, 25):
        counts.completed = completed
        screen.show(report)
        shown.append(stream.getvalue().rpartition(CLEAR)[2].partition(",")[0])
    assert shown == ["orders 10/s", "orders 15/s", "orders 0/s"]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The logger above all, which gets its level back."""
    root = logging.getLogger()
    level = root.level
    yield root
    root.setLevel(level)


@pytest.mark.parametrize(
    ("kind", "form", "is_json"),
    [(Terminal, None, False), (io.StringIO, None, True), (Terminal, "json", True), (io.StringIO, "text", False)],
)
def test_the_log_is_text_on_a_terminal_and_json_elsewhere(
    kind: type[io.StringIO], form: str | None, is_json: bool, monkeypatch: pytest.MonkeyPatch, root: logging.Logger
) -> None:
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [])  # pytest's own
    set_up_logs(form)
    for _ in range(2):
        logging.getLogger("sbredis.transport").info("connected")  # by each client of the worker
        logging.getLogger("sbredis.worker").warning("failed")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    if is_json:
        assert [json.loads(line)["message"] for line in lines] == ["connected", "failed", "failed"]
    else:
        assert [line.split(" ", 1)[1] for line in lines] == [
            "INFO sbredis.transport: connected",
            "WARNING sbredis.worker: failed",
            "WARNING sbredis.worker: failed",
        ]


def test_a_line_of_json_has_what_its_call_has_given(monkeypatch: pytest.MonkeyPatch, root: logging.Logger) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [])
    set_up_logs("json")
    facts: dict[str, Any] = {"entity": "orders", "attempt": 2, "seconds": 0.5, "tags": ["a"]}
    odd = {"level": "none", "path": Path("x"), "keys": {(1, 2): 3}}
    logging.getLogger("sbredis.worker.calls").info("returned", extra={**facts, **odd})
    line = json.loads(stream.getvalue())
    assert {name: line[name] for name in facts} == facts
    assert (line["message"], line["level"], line["path"], line["keys"]) == ("returned", "INFO", "x", "{(1, 2): 3}")
    assert set(line) == {"time", "level", "logger", "message", "process", *facts, "path", "keys"}


@pytest.mark.parametrize("options", first(1, [[], ["--processes", "2"]], "it starts a group of processes"))
def test_a_worker_shows_itself_on_a_terminal_and_ctrl_c_lets_it_finish(
    options: list[str], tmp_path: Path, server: LocalServer
) -> None:
    """Ctrl-C reaches the supervisor and its processes, and is one signal for all of them together."""
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sbredis.workers", "app:worker", *options]
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "SBREDIS_URL": server.url},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = read_until(ours, "left")
        os.killpg(process.pid, signal.SIGINT)
        shown += read_until(ours, None)
        assert process.wait() == 0, shown
    os.close(ours)
    lines = shown.replace("\r\n", "\n").split("\n")
    address = server.url.removeprefix("redis://")
    assert any(f"standalone {address}, " in line and "ServiceBusClient" not in line for line in lines)
    assert any("orders" in line and line.endswith("16 at once  app.place") for line in lines)
    before = [line.removesuffix("placed a teapot") for line in lines if line.endswith("placed a teapot")]
    assert before  # each process has sent a teapot
    assert all(not text or text.endswith(CLEAR) for text in before)  # the line of the worker was there, or not yet
    assert "finishing the running handlers" in shown


def read_until(terminal: int, text: str | None) -> str:
    """Read what a terminal shows until this text comes, or to the end."""
    found = ""
    while text is None or text not in found:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the last process has closed it
            break
        if not part:
            break
        found += part.decode(errors="replace")
    return found
