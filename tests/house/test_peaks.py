"""Tests that a run reports the peak memory of its processes, and fails above the limit."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugins import memory


def session(exitstatus: int = pytest.ExitCode.OK) -> Any:
    return SimpleNamespace(config=SimpleNamespace(), exitstatus=exitstatus)


def summary(found: memory.Memory) -> list[str]:
    """Return the lines that the plugin prints at the end of a run."""
    lines: list[str] = []
    found.pytest_terminal_summary(
        SimpleNamespace(section=lines.append, write_line=lambda line, **_: lines.append(line))  # type: ignore[arg-type]
    )
    return lines


def test_a_figure_is_read_from_the_status_file_of_the_process() -> None:
    status = "Name:\tpython\nVmPeak:\t  900000 kB\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n"
    assert memory.figure_in(status, "VmHWM") == 200
    assert memory.figure_in(status, "VmRSS") == 100
    assert memory.figure_in("Name:\tpython\n", "VmHWM") is None


def test_garbage_is_collected_when_the_memory_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    in_use, collected = [100], list[int]()
    monkeypatch.setattr(memory, "used", lambda: in_use[0])
    monkeypatch.setattr(gc, "collect", lambda: collected.append(in_use[0]))
    found = memory.Memory()
    found.collected = 100
    for megabytes in (100 + memory.GROWTH, 101 + memory.GROWTH, 101 + 2 * memory.GROWTH, 102 + 2 * memory.GROWTH):
        in_use[0] = megabytes
        found.pytest_runtest_logfinish()
    assert collected == [101 + memory.GROWTH, 102 + 2 * memory.GROWTH]


@pytest.mark.parametrize(
    ("peak", "exitstatus"), [(memory.LIMIT, pytest.ExitCode.OK), (memory.LIMIT + 1, pytest.ExitCode.TESTS_FAILED)]
)
def test_a_process_above_the_memory_limit_fails_the_run(
    peak: int, exitstatus: pytest.ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "peak", lambda: peak)
    found, run = memory.Memory(), session()
    found.pytest_sessionfinish(run)
    assert run.exitstatus == exitstatus
    assert summary(found)[1] == f"main {peak} MB"
    assert len(summary(found)) == (2 if exitstatus == pytest.ExitCode.OK else 3)


def worker_node(**fields: object) -> Any:
    """Return an object that acts as a worker of pytest-xdist."""
    return SimpleNamespace(gateway=SimpleNamespace(id="gw0"), **fields)


def test_a_worker_reports_its_peak_memory_to_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "peak", lambda: 7)
    output: dict[str, object] = {}
    worker = session()
    worker.config.workeroutput = output
    memory.Memory().pytest_sessionfinish(worker)
    found = memory.Memory()
    found.pytest_testnodedown(worker_node(workeroutput=output))
    assert summary(found) == ["peak memory", "gw0 7 MB"]


def test_a_worker_that_died_has_no_peak_memory() -> None:
    found = memory.Memory()
    found.pytest_testnodedown(worker_node())
    assert summary(found) == []
