"""Tests of running workers as programs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from sbredis.exceptions import WorkerSetupError
from sbredis.workers._targets import load_worker
from sbredis.workers.observing._counts import Counts
from sbredis.workers.supervising._commands import Command, read_command
from sbredis.workers.supervising._restarts import Restarts
from sbredis.workers.supervising._screen import Row, banner, rates


def test_a_process_that_fails_again_and_again_waits_longer_each_time() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(1, failed=True) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert restarts.pause_after(61, failed=True) == 0
    assert restarts.pause_after(1, failed=True) == 0.5
    assert restarts.pause_after(1, failed=False) == 0


def test_the_arguments_of_the_command() -> None:
    assert read_command(["app:worker"]) == Command(target="app:worker")
    given = ["app:worker", "--processes", "2", "--queue", "a", "--queue", "b", "--concurrency", "5", "--http", "80"]
    assert read_command([*given, "--max-messages-per-process", "9", "--reload", "--log-format", "json"]) == Command(
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
    ("arguments", "said"),
    [
        ([], "MODULE:WORKER"),
        (["a:b", "--processes", "0"], "0 is less than 1"),
        (["a:b", "--processes", "x"], "'x' is not a whole number"),
        (["a:b", "--processes", "9999"], "is more than four times"),
        (["a:b", "--log-format", "xml"], "invalid choice"),
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
        ("no_such_module_here:worker", None, "There is no module 'no_such_module_here' in "),
        ("app_one:worker", "import no_such_library\n", "cannot be imported: ModuleNotFoundError: No module named"),
        ("app_two:worker", "x = (\n", "cannot be imported: SyntaxError: "),
        ("app_three:worker", "def f():\n    raise ValueError('boom')\nf()\n", "ValueError: boom at "),
        (
            "app_four:worker",
            "from sbredis.workers import Worker\nw = Worker('memory://x')\n",
            "has no 'worker'. It has 'w'",
        ),
        ("app_five:worker", "worker = 5\n", "is not a Worker, but of the type int"),
    ],
)
def test_a_worker_that_cannot_be_found_is_explained(folder: Path, target: str, text: str | None, said: str) -> None:
    if text is not None:
        write(folder, target.partition(":")[0], text)
    with pytest.raises(WorkerSetupError) as raised:
        load_worker(target)
    assert said in str(raised.value)


def test_the_banner_and_the_line_of_rates_fit_the_terminal() -> None:
    rows = [Row("orders", "shop.place", 32), Row("news/Subscriptions/all", "shop.read", 4)]
    assert banner("sbredis 1.0 · redis://h · namespace shop", rows, 2, 80).splitlines() == [
        "sbredis 1.0 · redis://h · namespace shop",
        "2 processes · Ctrl-C to stop",
        "",
        "  orders                    32 at once  shop.place",
        "  news/Subscriptions/all     4 at once  shop.read",
    ]
    assert all(len(line) <= 20 for line in banner("sbredis 1.0 · redis://h · namespace shop", rows, 1, 20).splitlines())
    now = {"orders": Counts(completed=1234, running=3, errors=1), "news": Counts()}
    assert rates({"orders": Counts(completed=34)}, now, 1, 80) == (
        "news 0/s, 0 running · orders 1,200/s, 3 running, 1.0/s failing"
    )
    assert len(rates({}, now, 1, 20)) == 20
