"""Tests of running workers as programs."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbredis.exceptions import WorkerSetupError
from sbredis.workers import Worker
from sbredis.workers.__main__ import main
from sbredis.workers._targets import load_worker
from sbredis.workers.observing._counts import EntityCounts, HandlerCounts
from sbredis.workers.observing._exits import ending_of
from sbredis.workers.observing._reports import Report
from sbredis.workers.supervising._commands import WorkerCommand, read_command
from sbredis.workers.supervising._restarts import Restarts
from sbredis.workers.supervising._screen import banner, rates, summary


def test_a_process_that_fails_again_and_again_waits_longer_each_time() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(1, failed=True) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert restarts.pause_after(61, failed=True) == 0
    assert restarts.pause_after(1, failed=True) == 0.5
    assert restarts.pause_after(1, failed=False) == 0


def test_the_pauses_do_not_grow_while_suspects_end_the_process() -> None:
    restarts = Restarts()
    assert restarts.pause_after(1, failed=True) == 0
    assert [restarts.pause_after(1, failed=True, by_suspect=True) for _ in range(9)] == [0.5] * 9
    assert [restarts.pause_after(1, failed=True) for _ in range(3)] == [0.5, 1, 2]


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "the exit code 0"), (7, "the exit code 7"), (-9, "the signal SIGKILL"), (-99, "the signal 99")],
)
def test_the_end_of_a_process_in_words(code: int, text: str) -> None:
    assert ending_of(code) == text


def test_the_arguments_of_the_command() -> None:
    assert read_command(["app:worker"]) == WorkerCommand(target="app:worker")
    given = ["app:worker", "--processes", "2", "--queue", "a", "--queue", "b", "--concurrency", "5", "--http", "80"]
    assert read_command(
        [*given, "--max-messages-per-process", "9", "--reload", "--log-format", "json"]
    ) == WorkerCommand(
        target="app:worker",
        processes=2,
        reload=True,
        queues=("a", "b"),
        concurrency=5,
        max_messages=9,
        http="80",
        log_format="json",
    )


@pytest.mark.parametrize(
    ("arguments", "supervised"),
    [
        ([], False),
        (["--http", "80"], False),
        (["--processes", "1"], True),
        (["--processes", "2"], True),
        (["--reload"], True),
        (["--max-messages-per-process", "9"], True),
    ],
)
def test_a_supervisor_starts_the_processes_if_their_number_was_given(arguments: list[str], supervised: bool) -> None:
    assert read_command(["app:worker", *arguments]).is_supervised == supervised


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "MODULE:WORKER"),
        (["a:b", "--processes", "0"], "0 is less than 1"),
        (["a:b", "--processes", "x"], "'x' is not a whole number"),
        (["a:b", "--processes", "9999"], "is more than four times"),
        (["--nope"], "sbredis: No such option '--nope'.\nTry 'python -m sbredis.workers --help' for help.\n"),
        (["--proceses", "2"], "No such option '--proceses'. Did you mean '--processes'?"),
        (["a:b", "--log-format", "xml"], "Invalid value for '--log-format': 'xml' is not one of 'text', 'json'."),
        (["a:b", "--http", "nowhere"], "must be HOST:PORT or PORT, not 'nowhere'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_command(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))


def test_a_worker_is_found_by_its_module_and_name(folder: Path) -> None:
    write(folder, "found_app", "from sbredis.workers import Worker\nclass Holder: worker = Worker('memory://x')\n")
    assert repr(load_worker("found_app:Holder.worker")) == "<Worker with 0 handlers, stopped>"


@pytest.mark.parametrize(
    ("target", "text", "said"),
    [
        ("app", "", "must be named as MODULE:NAME"),
        ("../app:worker", None, "must be named as MODULE:NAME"),
        ("app-one:worker", None, "must be named as MODULE:NAME"),
        ("no_such_module_here:worker", None, "There is no module 'no_such_module_here' in "),
        ("app_one:worker", "import no_such_library\n", "cannot be imported: ModuleNotFoundError: No module named"),
        ("app_two:worker", "x = (\n", "cannot be imported: SyntaxError: "),
        ("app_three:worker", "def f():\n    raise ValueError('boom')\nf()\n", "ValueError: boom at "),
        (
            "app_four:worker",
            "from sbredis.workers import Worker\nw = Worker('memory://x')\n",
            "has no 'worker'. It has 'w'",
        ),
        (
            "app_nine:worker.typo",
            "from sbredis.workers import Worker\nworker = Worker('memory://x')\n",
            "has no 'typo'.",
        ),
        (
            "app_ten:worker.client",
            "from sbredis.workers import Worker\nworker = Worker('memory://x')\n",
            "'app_ten:worker.client' cannot be read: RuntimeError: The worker does not run",
        ),
        (
            "app_eleven:made.worker",
            "class Made:\n    @property\n    def worker(self):\n        return self.typo\nmade = Made()\n",
            "'app_eleven:made.worker' cannot be read: AttributeError: 'Made' object has no attribute 'typo'",
        ),
        ("app_five:worker", "worker = 5\n", "is not a Worker, but of the type int"),
        (
            "app_six:worker",
            "from sbredis.workers import Worker\nw = Worker('memory://x')\n@w.queue('a', speed=9)\ndef f(): ...\n",
            "an unexpected keyword argument 'speed' at {folder}/app_six.py:3.",
        ),
        (
            "app_seven:worker",
            "from sbredis.workers import Worker\nWorker('memory://x').cron('0 25 * * *')(print)\n",
            "'25': it must be from 0 to 23 at {folder}/app_seven.py:2.",
        ),
        (
            "app_eight:worker",
            "from sbredis.workers import Worker\nworker = Worker('memory://x', threads=0)\n",
            "threads must be from 1 to 10000, not 0 at {folder}/app_eight.py:2.",
        ),
    ],
)
def test_a_worker_that_cannot_be_found_is_explained(folder: Path, target: str, text: str | None, said: str) -> None:
    if text is not None:
        write(folder, target.partition(":")[0], text)
    with pytest.raises(WorkerSetupError) as raised:
        load_worker(target)
    assert said.format(folder=folder) in raised.value.message


def test_a_program_without_handlers_is_refused() -> None:
    with pytest.raises(WorkerSetupError, match="has no handlers"):
        Worker("memory://x").run_sync()


def in_memory(began: list[str]) -> Worker:
    @asynccontextmanager
    async def lifespan(worker: Worker) -> AsyncGenerator[None]:
        began.append("lifespan")
        worker.stop()
        yield

    worker = Worker("memory://alone", lifespan=lifespan)

    @worker.queue("orders", create_if_missing=True)
    async def take(text: str) -> None:
        began.append(text)

    return worker


def test_a_server_in_memory_is_refused_for_several_processes() -> None:
    began: list[str] = []
    worker = in_memory(began)
    with pytest.raises(WorkerSetupError, match=r"^A server in memory belongs to one process: each of the 2 processes"):
        worker.run_command(WorkerCommand(target="app:worker", processes=2))
    assert (began, repr(worker)) == ([], "<Worker with 1 handler, stopped>")


@pytest.mark.parametrize("processes", [None, 1])
def test_a_program_on_a_server_in_memory_warns(processes: int | None, caplog: pytest.LogCaptureFixture) -> None:
    began: list[str] = []
    in_memory(began).run_command(WorkerCommand(target="app:worker", processes=processes))
    assert began == ["lifespan"]
    said = (
        "the worker runs on a server in memory: no other process can send to it, and its messages end with the worker"
    )
    assert [each.levelname for each in caplog.records if each.getMessage() == said] == ["WARNING"]


def test_a_program_without_a_server_ends_for_good(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "app_free", "from sbredis.workers import Worker\nworker = Worker()\nworker.queue('a')(print)\n")
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    monkeypatch.delenv("SBREDIS_URL", raising=False)
    assert main(["app_free:worker"]) == 2
    assert capsys.readouterr().err == (
        "sbredis: No server is named: give a connection string, or set SBREDIS_URL, for example to "
        "redis://localhost:6379.\n"
    )


def test_a_connection_string_that_is_wrong_ends_the_program_for_good(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor does not start it again."""
    text = "from sbredis.workers import Worker\nworker = Worker('nowhere')\n@worker.queue('a')\ndef f(): ...\n"
    write(folder, "app_nowhere", text)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    assert main(["app_nowhere:worker"]) == 2
    assert capsys.readouterr().err.startswith("sbredis: ")


def test_the_banner_and_the_line_of_rates_fit_the_terminal() -> None:
    report = Report(
        rows=[("orders", "shop.place", 32), ("news/subscriptions/all", "shop.read", 4)],
        schedules=[("orders", "shop.tidy", "0 3 * * *", "2026-11-24 03:00 UTC")],
        title="sbredis 1.0 · redis://h · namespace shop",
    )
    assert banner(report, 2, 80).splitlines() == [
        "sbredis 1.0 · redis://h · namespace shop",
        "2 processes · Ctrl-C to stop",
        "",
        "  orders                    32 at once  shop.place",
        "  news/subscriptions/all     4 at once  shop.read",
        "  orders                  0 3 * * *: shop.tidy, next at 2026-11-24 03:00 UTC",
    ]
    assert all(len(line) <= 20 for line in banner(report, 1, 20).splitlines())
    assert summary(report, 1) == "sbredis 1.0 · redis://h · namespace shop · 1 process · 2 handlers of 2 entities"
    now = {
        "orders": EntityCounts(completed=1234, handlers={"place": HandlerCounts(errors=1, running=3)}),
        "news": EntityCounts(),
    }
    assert rates({"orders": EntityCounts(completed=34)}, now, {"orders": 1000}, 1, 80) == (
        "news 0/s, 0 running · orders 1,200/s, 3 running, 1,000 left, 1.0/s failing"
    )
    assert len(rates({}, now, {}, 1, 20)) == 20
