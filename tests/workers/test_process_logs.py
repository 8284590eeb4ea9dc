"""Tests of the log of handlers that run in processes: it is like that of their worker."""

from __future__ import annotations

import io
import json
import logging
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from sbredis.workers.observing._logs import Logs, log_like, logs_here, set_up_logs
from sbredis.workers.observing._terminal import AboveLine
from tests.children import child

HANDLER = """
import logging, os
from sbredis.workers import SyncContext

def place(text: str, context: SyncContext) -> None:
    if context.attempt == 1:
        raise ValueError("a cup is missing")
    log = logging.getLogger("app")
    log.debug("looked at %s", text)
    log.info("placed %s", text, extra={"order": text})
    log.warning("no lid for %s", text)
    context.send("out", os.getpid())
"""
APP = """
import asyncio, logging
from contextlib import asynccontextmanager
from handler import place
from sbredis.workers import Retries, Worker

@asynccontextmanager
async def lifespan(worker):
    await worker.send("orders", "tea")
    yield

worker = Worker("memory://logs", lifespan=lifespan, retries=Retries(first_delay=0))
worker.queue("orders", execution="process", max_concurrent_calls=1, create_if_missing=True)(place)

@worker.queue("out", create_if_missing=True)
async def end(pid: int) -> None:
    print(pid)
    worker.stop()

if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(process)d %(levelname)s own: %(message)s")
    logging.getLogger("sbredis").setLevel(logging.WARNING)
    asyncio.run(worker.run())
"""


async def run(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the worker with its one message. Return the id of the handler's process, and the lines of the log."""
    (folder / "handler.py").write_text(HANDLER, "utf-8")
    (folder / "app.py").write_text(APP, "utf-8")
    async with child(*arguments, cwd=folder, stdout=PIPE, stderr=PIPE) as process:
        printed, said = await process.communicate()
    assert process.returncode == 0, said
    return int(printed), said.decode().splitlines()


@pytest.mark.long("it starts processes for a handler")
async def test_a_process_logs_json_as_its_worker(tmp_path: Path) -> None:
    pid, lines = await run(tmp_path, "-m", "sbredis.workers", "app:worker", "--log-format", "json")
    said = [record for record in map(json.loads, lines) if record["logger"] == "app"]
    assert [(record["level"], record["message"], record["process"]) for record in said] == [
        ("INFO", "placed tea", pid),
        ("WARNING", "no lid for tea", pid),
    ]
    assert said[0]["order"] == "tea"


@pytest.mark.long("it starts processes for a handler")
async def test_a_process_logs_text_as_its_worker(tmp_path: Path) -> None:
    _, lines = await run(tmp_path, "-m", "sbredis.workers", "app:worker", "--log-format", "text")
    said = [line.partition(" ")[2] for line in lines if " app: " in line]
    assert said == ["INFO app: placed tea", "WARNING app: no lid for tea"]


@pytest.mark.long("it starts processes for a handler")
async def test_a_process_logs_the_frames_of_its_handler(tmp_path: Path) -> None:
    _, lines = await run(tmp_path, "-m", "sbredis.workers", "app:worker", "--log-format", "json")
    of_process, of_worker = (record for record in map(json.loads, lines) if "a cup is missing" in str(record))
    frames = [line.rpartition(" in ")[2] for line in of_process["exception"].splitlines() if " File " in line]
    assert (of_process["message"], frames) == ("place failed", ["place"])
    assert of_worker["exception"] == "sbredis.workers.running._processes.ValueError: a cup is missing"
    assert "comes again" in of_worker["message"]


@pytest.mark.long("it starts three programs")
async def test_a_process_logs_as_the_main_program_of_its_worker(tmp_path: Path) -> None:
    pid, lines = await run(tmp_path, "app.py")
    assert [line for line in lines if line.startswith(f"{pid} ") and "tea" in line] == [
        f"{pid} DEBUG own: looked at tea",
        f"{pid} INFO own: placed tea",
        f"{pid} WARNING own: no lid for tea",
    ]


class Unreadable(logging.Formatter):
    """A formatter that other processes cannot get."""

    def __reduce__(self) -> str:
        raise TypeError("it has a lock")


def stderr_without_log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return a standard error output. The root logger has no handlers any more, not even those of pytest."""
    stream, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    return stream


def begin_anew() -> None:
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(logging.WARNING)


def test_a_worker_without_a_log_leaves_its_processes_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr_without_log(monkeypatch)
    log_like(logs_here())
    assert logging.getLogger().handlers == []


def test_a_log_that_goes_elsewhere_is_not_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stderr_without_log(monkeypatch)
    file = logging.FileHandler(tmp_path / "log", delay=True)
    logging.basicConfig(handlers=[logging.StreamHandler(io.StringIO()), file, logging.NullHandler()])
    assert logs_here() == Logs(None)


def test_a_process_whose_module_has_set_up_logging_keeps_that(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr_without_log(monkeypatch)
    set_up_logs("json")
    logs = logs_here()
    own = logging.NullHandler()
    logging.getLogger().handlers[:] = [own]
    log_like(logs)
    assert logging.getLogger().handlers == [own]


def test_a_log_above_a_live_line_is_that_of_the_standard_error_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", AboveLine(stderr_without_log(monkeypatch)))
    set_up_logs("text")
    logs = logs_here()
    assert (logs.stream, logs.by_command, logs.above_line) == ("stderr", True, True)


@pytest.mark.parametrize("found", [b"", b"nonsense"])
def test_a_formatter_that_cannot_cross_is_replaced(found: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = stderr_without_log(monkeypatch)
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.ERROR)
    handler.setFormatter(Unreadable())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logs = logs_here()
    assert logs == Logs("stderr", (logging.INFO, logging.ERROR))
    begin_anew()
    log_like(Logs(logs.stream, logs.levels, found))
    logging.getLogger("app").warning("not said")
    logging.getLogger("app").error("said")
    assert stderr.getvalue().endswith(" ERROR app: said\n")
    assert "not said" not in stderr.getvalue()
    assert logging.getLogger("app").isEnabledFor(logging.INFO)
