"""No server outlives its owner, however the owner ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sbredis.servers import LocalServer
from sbredis.servers._supervisor_client import supervisor
from tests.servers.processes import LINUX, Script, is_running, listens, script
from tests.waiting import wait_until

OWNER = """
from sbredis.servers import LocalServer
from sbredis.servers._supervisor_client import supervisor
one, two = LocalServer(), LocalServer(unix_socket=True)
one.start(); two.start()
say(pids=[one.pid, two.pid], port=one.port, supervisor=supervisor().pid, directory=str(supervisor().directory))
"""


class Owner:
    """A process that owns two servers; the test observes it from another process."""

    def __init__(self, process: Script) -> None:
        said = process.hear()
        self.process = process
        self.pids: list[int] = said["pids"]
        self.port: int = said["port"]
        self.supervisor: int = said["supervisor"]
        self.directory = Path(said["directory"])
        assert all(map(is_running, self.pids))
        assert listens(self.port)

    def servers_are_gone(self) -> bool:
        return not any(map(is_running, self.pids)) and not listens(self.port)

    def left_nothing(self) -> bool:
        return self.servers_are_gone() and not is_running(self.supervisor) and not self.directory.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_servers_of_a_killed_owner_end(number: signal.Signals) -> None:
    with script(OWNER + "time.sleep(600)") as process:
        owner = Owner(process)
        process.kill(number)
        wait_until(owner.left_nothing)


def test_a_paused_server_ends_with_its_owner_too() -> None:
    with script(OWNER + "one.pause(); say(paused=True); time.sleep(600)") as process:
        owner = Owner(process)
        process.hear()
        process.kill(signal.SIGKILL)
        wait_until(owner.left_nothing)


@pytest.mark.skipif(not LINUX, reason="only Linux tells a process that its parent has died")
def test_the_servers_of_a_killed_supervisor_end() -> None:
    with script(OWNER + "time.sleep(600)") as process:
        owner = Owner(process)
        os.kill(owner.supervisor, signal.SIGKILL)
        wait_until(owner.servers_are_gone)
        process.kill(signal.SIGINT)  # the owner cleans up after its killed supervisor
        wait_until(owner.left_nothing)


def test_an_owner_that_exits_leaves_nothing_behind() -> None:
    with script(OWNER + "sys.stdin.readline()") as process:
        owner = Owner(process)
        process.go_on()
        process.process.wait(200)
        assert owner.left_nothing()


def test_an_owner_that_exits_with_an_error_leaves_nothing_behind() -> None:
    code = "sys.stdin.readline()\nwith LocalServer() as three:\n    say(third=three.pid)\n    sys.exit(3)"
    with script(OWNER + code) as process:
        owner = Owner(process)
        process.go_on()
        third = process.hear()["third"]
        assert process.process.wait(200) == 3
        assert owner.left_nothing()
        assert not is_running(third)


def test_ctrl_c_reaches_only_the_owner() -> None:
    """So the owner can close its clients properly while its servers still run."""
    code = "try:\n    say(waiting=True); time.sleep(600)\nexcept KeyboardInterrupt:\n    say(pong=one.ask('PING'))"
    with script(OWNER + code) as process:
        owner = Owner(process)
        process.hear()
        os.killpg(process.pid, signal.SIGINT)
        assert process.hear() == {"pong": "PONG"}
        process.process.wait(200)
        assert owner.left_nothing()


def test_a_forked_child_does_not_keep_the_servers_of_a_killed_owner() -> None:
    code = "import os\nchild = os.fork()\nif child: say(child=child)\ntime.sleep(600)"
    with script(OWNER + code) as process:
        owner = Owner(process)
        child = process.hear()["child"]
        try:
            process.kill(signal.SIGKILL)
            wait_until(owner.left_nothing)
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_ends_leaves_the_servers_of_its_parent() -> None:
    code = "import os\nif os.fork() == 0: sys.exit(0)\nos.wait()\nsay(pong=one.ask('PING'), alive=two.is_alive())"
    with script(OWNER + code) as process:
        Owner(process)
        assert process.hear() == {"pong": "PONG", "alive": True}


@pytest.mark.skipif(not LINUX, reason="only Linux tells a process that its parent has died")
def test_an_owner_can_start_servers_again_after_its_supervisor_was_killed() -> None:
    """The test uses a separate process, because the supervisor of this process has the servers of all other tests."""
    code = """
import os, signal, time
os.kill(supervisor().pid, signal.SIGKILL)
while one.is_alive(): time.sleep(0.01)
one.restart()
say(pong=one.ask("PING"))
"""
    with script(OWNER + code) as process:
        process.hear()
        assert process.hear() == {"pong": "PONG"}


def test_a_server_that_fails_to_start_is_reported() -> None:
    with pytest.raises(Exception, match="cannot be started"):
        supervisor().start(["/nonexistent/server"], Path("/"), supervisor().directory / "log")


def test_a_signal_to_a_server_that_has_ended_is_not_sent_to_any_process() -> None:
    with LocalServer() as server:
        server.kill()
        server.kill(signal.SIGTERM)
        assert not server.is_alive()
