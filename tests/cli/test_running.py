"""How a command ends: the exit codes, the form of refusals, groups of errors, and closed standard streams."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.cli import _doctor
from sbredis.cli._app import program
from sbredis.cli._invocation import Invocation, Settings
from sbredis.cli._running import run_work
from sbredis.cli._stopping import ending_at_once
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServerUnsuitableError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)
from sbredis.servers import LocalServer
from tests.children import run_program
from tests.cli.children import Child
from tests.cli.conftest import Bus, Command
from tests.plugins.parts import first
from tests.waiting import wait_until

# -- exit codes --------------------------------------------------------------------------------------------------------

MISSING_FILE = FileNotFoundError(2, "No such file or directory", "bus.yaml")
CODES: dict[str, tuple[Exception, int, str]] = {
    "a refusal": (MessagingEntityNotFoundError("There is no entity."), 1, "There is no entity."),
    "an unsuitable server": (ServerUnsuitableError("It is a replica."), 1, "It is a replica."),
    "a wrong argument": (ValueError("It is too long."), 2, "It is too long."),
    "a missing file": (MISSING_FILE, 2, "bus.yaml: No such file or directory"),
    "a full disk": (OSError(28, "No space left on device", "out"), 1, "out: No space left on device"),
    "no connection": (ServiceBusConnectionError("It cannot be reached."), 5, "It cannot be reached."),
    "a lost connection": (ServiceBusCommunicationError("It is lost."), 5, "It is lost."),
    "no answer": (
        OperationTimeoutError("No answer in 60 s", outcome=Outcome.UNKNOWN),
        5,
        "No answer in 60 s. It is not known whether the operation has run.",
    ),
}


@pytest.mark.parametrize("package", ["rich", "yaml"])
def test_no_command_begins_without_the_packages_of_its_extra(
    sbredis: Command, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    text = "sbredis: this command needs the extra cli: pip install '.[cli]' in the checkout of sbredis\n"
    assert sbredis("queue", "list") == sbredis("--help") == (2, "", text)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("error", "code", "said"), CODES.values(), ids=CODES)
def test_an_error_is_told_in_one_line_and_has_an_exit_code(
    error: Exception, code: int, said: str, grouped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the same if tasks have failed: then asyncio puts their errors into a group."""

    async def fail() -> None:
        raise error

    async def work(_: Invocation) -> None:
        if not grouped:
            raise error
        async with asyncio.TaskGroup() as outer:
            outer.create_task(grouping())

    async def grouping() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(fail())

    assert run_work(work, Invocation(Settings()), {}) == code
    assert capsys.readouterr() == ("", f"sbredis: {said}\n")


def test_a_fault_of_the_program_is_not_hidden_by_an_error_beside_it() -> None:
    def work(_: Invocation) -> None:
        raise ExceptionGroup("both", [ValueError("expected"), ZeroDivisionError("a fault")])

    with pytest.raises(ZeroDivisionError, match="a fault") as raised:
        run_work(work, Invocation(Settings()), {})
    assert isinstance(raised.value.__cause__, ExceptionGroup)


def test_a_missing_file_is_a_wrong_argument(sbredis: Command, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for arguments in (["apply", missing], ["send", "orders", "--file", missing], ["load", "orders", "--file", missing]):
        ran = sbredis(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert missing in ran.err
        assert "Errno" not in ran.err


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(sbredis: Command, tmp_path: Path) -> None:
    assert sbredis("queue", "create", "orders").code == 0
    missing = str(tmp_path / "missing" / "x")
    for arguments in (["dump", "orders", "--file", missing], ["export", "--file", missing]):
        assert sbredis(*arguments) == (2, "", f"sbredis: {missing}: No such file or directory\n")


# -- interruptions -----------------------------------------------------------------------------------------------------


def test_an_interruption_before_the_work_says_that_nothing_was_done(
    sbredis: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(work: object, **_: object) -> None:
        if asyncio.iscoroutine(work):
            work.close()
        raise KeyboardInterrupt

    places: list[tuple[object, str]] = [(asyncio, "run"), (program, "main")]
    for place, name in places:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, interrupt)
            ran = sbredis("queue", "list")
            assert (ran.code, ran.out, ran.err.strip()) == (130, "", "interrupted before anything was done")


def test_an_interruption_while_the_command_is_imported_says_that_nothing_was_done(
    sbredis: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sbredis.cli._app", Interrupted("sbredis.cli._app"))
    assert sbredis("queue", "list") == (130, "", "interrupted before anything was done\n")


@pytest.mark.parametrize(
    ("command", "said"),
    first(
        2,
        [
            pytest.param("send orders x", "sent 0 of 1 message"),
            pytest.param("receive orders", "received 0 messages"),
            pytest.param("dlq redrive orders", "moved 0 messages"),
            pytest.param("move orders letters", "moved 0 messages"),
            pytest.param("dump orders --file x", "written 0 messages"),
            pytest.param("purge orders --yes", "deleted 0 messages"),
        ],
        "each case starts a process and interrupts it",
    ),
)
def test_an_interruption_while_it_connects_says_that_nothing_was_done(command: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        with Child(*command.split(), "--url", f"redis://127.0.0.1:{silent.getsockname()[1]}") as child:
            connection, _ = silent.accept()
            with connection:
                child.signal(signal.SIGINT)
                assert child.end() == (130, f"interrupted: {said}\n")


LINGERING = """
import sys, threading
from sbredis.cli import main
sys.argv = ["sbredis", "completion", "bash"]
threading.Thread(target=sys.stdin.read).start()
code = main()
print("ended", flush=True)
sys.exit(code)
"""


def test_an_interruption_at_the_end_of_the_interpreter_shows_no_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LINGERING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != b"ended\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert process.stderr is not None
        assert process.stderr.read() == b""


# -- the form of refusals ----------------------------------------------------------------------------------------------

REFUSED = {
    "an unknown command": (["sned"], "No such command 'sned'", "sbredis"),
    "an unknown option": (["send", "orders", "--sbject", "x"], "No such option", "sbredis send"),
    "a missing argument": (["queue", "show"], "Missing argument 'NAME'", "sbredis queue show"),
    "a wrong value": (["send", "orders", "x", "--ttl", "soon"], "Invalid value for '--ttl'", "sbredis send"),
    "options that do not fit": (["send", "orders", "x", "--lines"], "Give BODY", "sbredis send"),
}


@pytest.mark.parametrize(("arguments", "said", "of"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_program_and_offers_the_help(
    sbredis: Command, arguments: list[str], said: str, of: str
) -> None:
    ran = sbredis(*arguments)
    assert (ran.code, ran.out) == (2, "")
    first, hint = ran.err.splitlines()
    assert first.startswith(f"sbredis: {said}")
    assert hint == f"Try '{of} --help' for help."


def test_a_refusal_of_the_work_has_the_same_form(sbredis: Command) -> None:
    assert sbredis("queue", "create", "orders", "--protected").code == 0
    ran = sbredis("queue", "delete", "orders", "--yes")
    assert ran.code == 1
    assert ran.err.startswith("sbredis: The queue orders is protected.")


# -- closed streams ----------------------------------------------------------------------------------------------------


def in_shell(bus: Bus, arguments: str, redirection: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.quote(sys.executable)} -m sbredis.cli {arguments} --url {shlex.quote(bus.url)} {redirection}"
    return run_program("/bin/sh", "-c", line)


def test_with_a_closed_output_nothing_is_received(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "x")
    ran = in_shell(bus, "receive orders", ">&-")
    assert ran.returncode == 2
    assert ran.stderr == "sbredis: stdout is closed. To discard the output, write it to /dev/null.\n"
    assert [(each["body"], each["delivery_count"]) for each in bus.peek()] == [("x", 0)]


def test_a_closed_input_is_empty_and_closed_errors_are_discarded(bus: Bus) -> None:
    bus.queue()
    ran = in_shell(bus, "send orders", "<&- 2>&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "sent 1 message to orders\n", "")
    assert bus.bodies() == [""]
    ran = in_shell(bus, "queue delete orders", "<&-")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Give --yes" in ran.stderr


# -- slow readers ------------------------------------------------------------------------------------------------------


@pytest.mark.long("each case starts a process and interrupts it")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["peek", "message show"])
def test_a_command_whose_reader_takes_nothing_ends_at_the_first_signal(
    bus: Bus, command: str, number: signal.Signals
) -> None:
    """The line is longer than the pipe, so the command writes while the pipe is full."""
    bus.queue()
    bus.did("send", "orders", stdin=b"x" * 200_000)
    (message,) = bus.peek()
    arguments = {"peek": ["peek", "orders"], "message show": ["message", "show", "orders", message["sequence_number"]]}
    read, write = os.pipe()
    with Child(*map(str, arguments[command]), "--output", "json", "--url", bus.url, stdout=write) as child:
        wait_until(lambda: not select.select([], [write], [], 0)[1], what="the pipe is full")
        child.signal(number)
        assert child.end() == (128 + number, "")
    os.close(read)
    os.close(write)


def test_a_command_that_reacts_to_signals_in_its_own_way_does_so_while_it_writes() -> None:
    came = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with ending_at_once():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]


# -- servers that do not answer ----------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients try for half a second to connect."""
    for client in (ServiceBusClient, ServiceBusAdministrationClient):
        defaults = client.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "connect_timeout", 0.5)
    monkeypatch.setattr(_doctor, "_PATIENCE", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_stopped_is_named_with_the_time_tried(bus: Bus, binary: str | None) -> None:
    with LocalServer(binary=binary) as server:
        server.kill(signal.SIGSTOP)
        for arguments in (["queue", "list"], ["send", "orders", "x"], ["doctor"]):
            ran = bus.run_plain(*arguments, "--url", server.url)
            assert (ran.code, ran.out) == (5, "")
            said = re.fullmatch(rf"sbredis: 127\.0\.0\.1:{server.port} did not answer within (\d+\.\d) s\n", ran.err)
            assert said is not None, ran.err
            assert float(said[1]) >= 0.5
