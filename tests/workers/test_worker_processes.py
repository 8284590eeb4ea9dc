"""Tests of the processes of a supervisor: small programs that report as a worker does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.workers.observing._counts import EntityCounts
from sbredis.workers.observing._reports import Report, ReportReader
from sbredis.workers.supervising._commands import WorkerCommand
from sbredis.workers.supervising._process import WorkerProcess
from sbredis.workers.supervising._reports import ReportPipe
from sbredis.workers.supervising._supervisor import Supervisor
from tests.waiting import eventually

FIRST = Report({"orders": EntityCounts(received=3, completed=2)}, namespace="shop", running=True)
LAST = Report({"orders": EntityCounts(received=5, completed=5)}, namespace="shop", ending=True)
FOREVER = "import time; time.sleep(3600)\n"


def says(*reports: Report) -> str:
    """Return the code of a program that reports this."""
    return "".join(f"os.write(out, {report.to_line()!r})\n" for report in reports)


def command(text: str) -> list[str]:
    """Return the command of a program. It gets the descriptor for its reports, ``out``, as its last argument."""
    code = f"import os, sys, signal\nout = int(sys.argv[2])\n{textwrap.dedent(text)}"
    return [sys.executable, "-S", "-E", "-c", code]


@asynccontextmanager
async def kept_running(
    text: str, *, reloads: bool = False, patience: float = 10.0
) -> AsyncGenerator[tuple[WorkerProcess, asyncio.Task[int]]]:
    process = WorkerProcess(1, command(text), reloads=reloads, patience=patience)
    running = asyncio.create_task(process.keep_running())
    try:
        yield process, running
    finally:
        process.stop(signal.SIGKILL)
        await running


# -- reports -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["", "x", "[]", "{}", '{"counts": 5}', "null", FIRST, LAST])), st.data())
def test_reports_are_found_however_their_bytes_are_split(lines: list[str | Report], data: st.DataObject) -> None:
    sent = b"".join(line.to_line() if isinstance(line, Report) else line.encode() + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=5)))
    reader, found = ReportReader(), list[Report]()
    for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        found += reader.read(sent[begin:end])
    assert found == [line for line in lines if isinstance(line, Report)]
    assert reader.unreadable == len(lines) - len(found)


@pytest.mark.parametrize("name", ["locks_lost", "lag"])
def test_a_histogram_and_a_number_do_not_take_each_others_places(name: str) -> None:
    given = FIRST.counts["orders"].to_json()
    given[name] = 0 if isinstance(given[name], list) else FIRST.counts["orders"].to_json()["lag"]
    with pytest.raises((TypeError, ValueError)):
        EntityCounts.from_json(given)


def test_a_line_without_an_end_is_not_kept() -> None:
    reader = ReportReader()
    for _ in range(20):
        assert reader.read(b"x" * (1 << 20)) == []
    assert reader.read(b"\n" + LAST.to_line()) == [LAST]


async def test_a_report_that_finds_little_room_is_written_in_parts() -> None:
    large = Report({"orders": EntityCounts()}, paused={"orders": "x" * 200_000})
    reads, writes = os.pipe()
    pipe, reader = ReportPipe(writes), ReportReader()
    for _ in range(3):  # the pipe is full after a part of the first
        pipe.send(large)
    assert reader.read(os.read(reads, 70_000)) == []
    pipe.send(FIRST)  # there is room for more of the large one, and so none for this

    def read_all() -> list[Report]:
        found: list[Report] = []
        while part := os.read(reads, 10_000):
            found += reader.read(part)
        return found

    reading = asyncio.create_task(asyncio.to_thread(read_all))
    await pipe.finish(LAST)
    assert await reading == [large, LAST]
    assert reader.unreadable == 0
    os.close(reads)


async def test_a_supervisor_that_is_gone_or_does_not_read_holds_nothing_up() -> None:
    large = Report(paused={"orders": "x" * 200_000})
    reads, writes = os.pipe()
    pipe = ReportPipe(writes, patience=0.01)
    pipe.send(large)
    await pipe.finish(large)
    os.close(reads)
    reads, writes = os.pipe()
    pipe = ReportPipe(writes, patience=0.01)
    os.close(reads)
    with pytest.raises(BrokenPipeError):
        pipe.send(FIRST)
    await pipe.finish(LAST)


# -- processes ---------------------------------------------------------------------------------------------------------


async def test_a_signal_that_did_not_come_from_the_supervisor_is_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = tmp_path / "ids"
    text = f"{says(FIRST)}open({str(ids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n{FOREVER}"

    def started() -> list[int]:
        return [int(line) for line in ids.read_text().split()] if ids.exists() else []

    async with kept_running(text):
        await eventually(lambda: len(started()) == 1)
        os.kill(started()[0], signal.SIGTERM)
        await eventually(lambda: len(started()) == 2)
    assert "process 1 ended with the signal SIGTERM; it starts again in" in caplog.text


async def test_the_counts_of_ended_processes_are_kept_and_never_fall(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def look(process: WorkerProcess) -> bool:
        seen.append(process.counts["orders"].received if process.counts else 0)
        return seen[-1] >= 10

    last = Report({"orders": EntityCounts(received=5)}, namespace="shop", ending=True)
    last.counts["orders"].of("place").running = 1
    async with kept_running(f"{says(FIRST)}os.write(out, b'half a li\\n')\n{says(last)}sys.exit(9)") as (process, _):
        await eventually(lambda: look(process))
    assert seen == sorted(seen)
    assert process.counts["orders"].received % 5 == 0
    assert process.counts["orders"].of("place").running == 0
    assert (process.namespace, process.report) == ("shop", Report())
    assert "process 1 ended with the exit code 9; it starts again in 0 s" in caplog.messages
    assert "process 1 has sent something that is no report: it is skipped" in caplog.messages


async def test_a_process_is_replaced_although_a_fork_of_it_keeps_its_pipe_open(tmp_path: Path) -> None:
    forks = tmp_path / "fork"
    text = f"""
        if not os.path.exists({str(forks)!r}):
            if (fork := os.fork()) == 0:
                import time
                time.sleep(3600)
            open({str(forks)!r}, "w").write(str(fork))
            os._exit(9)
        """
    async with kept_running(textwrap.dedent(text) + says(FIRST) + FOREVER) as (process, _):
        await eventually(process.ran.is_set)
    os.kill(int(forks.read_text()), signal.SIGKILL)


async def test_a_process_that_closes_its_pipe_is_killed_if_it_does_not_end() -> None:
    brief = Report({"orders": EntityCounts(received=5)}, shutdown_timeout=0.1, running=True)
    async with kept_running(f"{says(brief)}os.close(out)\n{FOREVER}", patience=0) as (process, _):
        await eventually(lambda: process.counts and process.counts["orders"].received >= 10)


async def test_a_process_that_wants_to_end_and_does_not_end_in_its_time_is_killed() -> None:
    brief = Report({"orders": EntityCounts(received=5)}, shutdown_timeout=0.1, running=True, ending=True)
    async with kept_running(f"signal.signal(15, signal.SIG_IGN)\n{says(brief)}{FOREVER}", patience=0) as (process, _):
        await eventually(lambda: process.counts and process.counts["orders"].received >= 10)


async def test_each_process_of_a_place_that_does_not_end_in_its_time_is_killed() -> None:
    brief = Report({"orders": EntityCounts(received=5)}, shutdown_timeout=0.1, running=True)
    async with kept_running(f"signal.signal(15, signal.SIG_IGN)\n{says(brief)}{FOREVER}", patience=0) as (process, _):
        await process.ran.wait()
        for received in (10, 15):
            process.start_again()
            await eventually(lambda received=received: process.counts["orders"].received >= received)


async def test_a_process_that_was_started_again_waits_as_long_as_before_when_it_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts = tmp_path / "starts"
    text = f"""
        import time
        with open({str(starts)!r}, "a") as file:
            file.write(f"{{time.time()}}\\n")
        sys.exit(1)
        """
    async with kept_running(text) as (process, _):
        await eventually(lambda: "it starts again in 0.5 s" in caplog.text)
        process.start_again()
        await eventually(lambda: len(starts.read_text().splitlines()) == 4)
    assert "it starts again in 1 s" in caplog.text
    *_, third, fourth = map(float, starts.read_text().split())
    assert fourth - third >= 1


async def test_a_process_that_suspects_end_starts_again_soon_each_time(caplog: pytest.LogCaptureFixture) -> None:
    alone = Report({"orders": EntityCounts(received=5)}, running=True, suspect=("orders", "token", 2))
    async with kept_running(f"{says(alone)}os.kill(os.getpid(), 9)\n") as (process, _):
        await eventually(lambda: process.counts and process.counts["orders"].received >= 20)
    ends = [line for line in caplog.messages if "it starts again" in line]
    assert set(ends) == {"process 1 ended with the signal SIGKILL; it starts again in 0.5 s"}


async def test_a_process_that_cannot_be_started_after_a_suspect_waits_longer_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one that starts learns of the suspect."""
    python, told = tmp_path / "python", tmp_path / "told"
    python.symlink_to(sys.executable)
    alone = Report({"orders": EntityCounts(received=5)}, running=True, suspect=("orders", "token", 2))
    text = f"if sys.argv[3:]:\n    open({str(told)!r}, 'w').write(repr(sys.argv[3:]))\n    {FOREVER}"
    text += f"os.unlink({str(python)!r})\n{says(alone)}os.kill(os.getpid(), 9)\n"
    process = WorkerProcess(1, [str(python), *command(text)[1:]], reloads=False)
    running = asyncio.create_task(process.keep_running())
    try:
        await eventually(lambda: "it starts again in 1 s" in caplog.text)
        python.symlink_to(sys.executable)
        await eventually(lambda: told.exists() and told.read_text().endswith("]"))
    finally:
        process.stop(signal.SIGKILL)
        await running
    assert told.read_text() == repr(["--killer", '["orders", "token", 2, "the signal SIGKILL"]'])


async def test_a_process_says_what_it_does() -> None:
    states: list[Any] = []
    process = WorkerProcess(1, command(FOREVER), reloads=False)

    def state() -> Any:
        return process.state(asyncio.get_running_loop().time())

    states.append(state())
    running = asyncio.create_task(process.keep_running())
    await eventually(lambda: state() != "not running")
    states.append(state())
    for report in (FIRST, Report(running=True, paused={"orders": "deleted"}), Report(running=True, ending=True)):
        process.report = report
        states.append(state())
    assert states == ["not running", "starting", "running", {"orders": "deleted"}, "stopping"]
    process.stop()
    assert await running == 0
    assert state() == "not running"


async def test_a_process_is_stuck_when_its_reports_stay_away_and_gets_the_time_that_it_asks_for_to_end() -> None:
    process = WorkerProcess(1, [], reloads=False)
    assert (process.stuck(1e9), process.patience) == (False, 35)
    process.report, process._heard = Report(stuck_after=5, shutdown_timeout=60, running=True), 100.0
    assert [process.stuck(now) for now in (100, 105, 107, 107.1)] == [False, False, False, True]
    assert process.patience == 70
    process.report = Report(stuck_after=5, ending=True)  # the last report
    assert not process.stuck(1e9)


async def test_a_process_that_the_application_stops_is_not_started_again() -> None:
    async with kept_running(says(FIRST, Report(ending=True, stopped=True))) as (process, running):
        assert await running == 0
        assert process.stopped_itself
    stopped = Report(FIRST.counts, ending=True, stopped=True)
    async with kept_running(f"{says(FIRST, stopped)}sys.exit(1)") as (process, running):  # its end has failed
        await eventually(lambda: process.counts and process.counts["orders"].received >= 6)
        assert not running.done()


async def test_a_process_that_cannot_run_is_started_again_only_after_a_change() -> None:
    async with kept_running("sys.exit(2)") as (_, running):
        assert await running == 2
    async with kept_running(f"{says(FIRST)}sys.exit(2)") as (process, running):
        await eventually(lambda: process.counts and process.counts["orders"].received >= 6)
        assert not running.done()


def in_turn(folder: Path, *codes: str) -> str:
    """Return the code of a program that does something else each time it is started."""
    turns = "\n".join(f"if turn == {turn}:\n{textwrap.indent(code, '    ')}" for turn, code in enumerate(codes))
    count = f"""
        import pathlib
        starts = pathlib.Path({str(folder / "starts")!r})
        turn = len(starts.read_text()) if starts.exists() else 0
        starts.write_text("x" * (turn + 1))
        """
    return textwrap.dedent(count) + turns


async def test_what_a_process_has_said_does_not_count_for_the_next_one(tmp_path: Path) -> None:
    """The second process cannot run, although the first one could; or it has not been stopped by the application."""
    runs, stopped = tmp_path / "runs", tmp_path / "stopped"
    for folder in (runs, stopped):
        folder.mkdir()
    async with (
        kept_running(in_turn(runs, f"{says(FIRST)}sys.exit(1)", "sys.exit(2)")) as (_, running),
        asyncio.timeout(60),
    ):
        assert await asyncio.shield(running) == 2
    says_stopped = says(FIRST, Report(ending=True, stopped=True))
    text = in_turn(stopped, f"{says_stopped}sys.exit(1)", "sys.exit(0)", says(FIRST) + FOREVER)
    async with kept_running(text) as (process, _):
        await eventually(lambda: process.report == FIRST and len((stopped / "starts").read_text()) == 3)
        assert not process.stopped_itself


async def test_a_program_that_the_system_cannot_start_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    process = WorkerProcess(1, ["/no/such/program"], reloads=False)
    running = asyncio.create_task(process.keep_running())
    await eventually(lambda: caplog.text.count("process 1 cannot be started: ") >= 2)
    process.stop()
    assert await running == 0


class Starting:
    """Starts processes, and lets the test do something before the supervisor has them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._start = asyncio.create_subprocess_exec
        self.started = 0
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(asyncio, "create_subprocess_exec", self)

    async def __call__(self, *arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await self._start(*arguments, **options)
        self.started += 1
        self.begun.set()
        await self.go_on.wait()
        return process


async def test_a_process_that_is_stopped_while_it_starts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting(monkeypatch)
    async with kept_running(FOREVER) as (process, running):
        await starting.begun.wait()
        process.stop()
        starting.go_on.set()
        async with asyncio.timeout(60):
            assert await running == 0


async def test_a_process_that_is_stopped_before_it_starts_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting(monkeypatch)
    process = WorkerProcess(1, command(FOREVER), reloads=False)
    process.stop()
    assert (await process.keep_running(), starting.started) == (0, 0)


async def test_a_file_that_changes_while_a_process_starts_lets_it_start_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starting = Starting(monkeypatch)
    async with kept_running(says(FIRST) + FOREVER) as (process, _):
        await starting.begun.wait()
        process.start_again()
        starting.go_on.set()
        await eventually(lambda: starting.started == 2 and process.report == FIRST)
    assert caplog.messages == []


# -- the supervisor ----------------------------------------------------------------------------------------------------


async def test_a_supervisor_is_not_ready_while_one_of_its_processes_does_not_run() -> None:
    supervisor = Supervisor(WorkerCommand(target="app:worker", processes=2), ["app:worker"])
    health = supervisor._ready()
    assert (health.well, health.details) == (
        False,
        {"processes": {"process 1": "not running", "process 2": "not running"}},
    )


REPLACED = """
    import pathlib, time

    def wait_for(name):
        while not pathlib.Path(name).exists():
            time.sleep(0.01)

    if not pathlib.Path("replaced").exists():
        os.write(out, FIRST)
        wait_for("end")
        os.write(out, LAST)
        wait_for("replaced")
        sys.exit(0)
    wait_for("start")
    if pathlib.Path("fail").exists():
        sys.exit(1)
    os.write(out, FIRST)
    time.sleep(3600)
"""
"""A process that ends as planned, and the one that follows it. Files say when, and whether the second one fails."""


@asynccontextmanager
async def replaced(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncGenerator[tuple[Supervisor, WorkerProcess]]:
    """Give a supervisor of two processes, one of which has ended as planned."""
    monkeypatch.chdir(folder)
    supervisor = Supervisor(WorkerCommand(target="app:worker", processes=2), ["app:worker"])
    text = REPLACED.replace("FIRST", repr(FIRST.to_line())).replace("LAST", repr(LAST.to_line()))
    async with kept_running(text) as (process, _), kept_running(says(FIRST) + FOREVER) as (other, _):
        supervisor._processes[:] = [process, other]
        other.number = 2
        await eventually(lambda: supervisor._ready().well)
        (folder / "end").touch()
        await eventually(lambda: process.report.ending)
        yield supervisor, process


async def test_a_supervisor_stays_ready_while_one_of_its_processes_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with replaced(monkeypatch, tmp_path) as (supervisor, process):
        assert supervisor._ready() == (True, {"processes": {"process 1": "stopping", "process 2": "running"}})
        (tmp_path / "replaced").touch()
        await eventually(lambda: not process.report.ending and process._process is not None)
        assert supervisor._ready() == (True, {"processes": {"process 1": "starting", "process 2": "running"}})
        now = asyncio.get_running_loop().time()
        assert not process.being_replaced(now + process.patience + 60)  # the next one takes too long
        supervisor._processes.pop()
        assert not supervisor._ready().well  # no process is ready
        (tmp_path / "start").touch()
        await eventually(lambda: process.state(now) == "running")
        assert not process.being_replaced(now)


async def test_a_supervisor_is_not_ready_if_the_next_process_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with replaced(monkeypatch, tmp_path) as (supervisor, process):
        for name in ("fail", "start", "replaced"):
            (tmp_path / name).touch()
        await eventually(lambda: not process.being_replaced(asyncio.get_running_loop().time()))
        assert not supervisor._ready().well


class Stuck(WorkerProcess):
    """A process that is stuck."""

    def __init__(self) -> None:
        super().__init__(1, [], reloads=False)
        self.killed = 0

    def stuck(self, now: float) -> bool:
        return now > 0

    def kill(self) -> None:
        self.killed += 1


async def test_a_supervisor_that_was_stopped_itself_first_reads_what_its_processes_have_reported() -> None:
    supervisor, stuck = Supervisor(WorkerCommand(target="app:worker"), ["app:worker"]), Stuck()
    supervisor._processes[:] = [stuck]
    supervisor._looked_at = 100.0
    supervisor._kill_stuck(120.0)
    assert stuck.killed == 0
    supervisor._kill_stuck(121.0)
    assert stuck.killed == 1
