"""One server on a folder that several processes share: they start, leave, kill, and find it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError, ServiceBusConnectionError
from sbredis.servers import EmbeddedLease, ServerBinary, acquire
from tests.servers.data import Reply, ask, gone, last_increment
from tests.servers.processes import LINUX, is_running, parent_of, script, servers_in
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not LINUX, reason="these tests look processes up in /proc")

LINGER = 0.1

Acquire = Callable[..., EmbeddedLease]


@pytest.fixture
def take(folder: Path) -> Iterator[Acquire]:
    """Return a function that acquires a lease of the folder. At the end the fixture releases all of these leases."""
    leases: list[EmbeddedLease] = []

    def take(**options: object) -> EmbeddedLease:
        leases.append(acquire(folder, **{"linger": LINGER, **options}))  # type: ignore[arg-type]
        return leases[-1]

    yield take
    for lease in leases:
        lease.release()


def say(lease: EmbeddedLease, *arguments: str | int) -> Reply:
    return ask(lease.socket_path, *arguments)


def server_of(folder: Path) -> int:
    (pid,) = servers_in(folder)
    return pid


def watch(holds: Callable[[], object]) -> None:
    """Check that a condition holds for longer than a supervisor needs to change it."""
    until = time.monotonic() + 5 * LINGER
    while time.monotonic() < until:
        assert holds()


def test_the_first_client_starts_the_server_and_the_last_client_ends_it(folder: Path, take: Acquire) -> None:
    first = take()
    pid = server_of(folder)
    second = take()  # a lease in the same process
    assert say(first, "PING") == say(second, "PING") == "PONG"
    assert server_of(folder) == pid
    first.release()
    first.release()
    watch(lambda: say(second, "PING") == "PONG")
    second.release()
    gone(folder)


def test_written_data_is_there_when_the_server_starts_again(folder: Path, binary: ServerBinary) -> None:
    with acquire(folder, binary=binary, linger=0) as lease:
        say(lease, "SET", "k", "v")
    gone(folder)
    with acquire(folder, binary=binary, linger=0) as lease:
        assert say(lease, "GET", "k") == "v"


def test_the_server_is_configured_to_keep_messages(folder: Path, take: Acquire) -> None:
    lease = take()
    for setting, value in {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "port": "0",
        "unixsocketperm": "700",
    }.items():
        assert say(lease, "CONFIG", "GET", setting) == [setting, value]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert Path(lease.socket_path).stat().st_mode & 0o777 == 0o700


def test_ensure_running_does_nothing_while_the_server_runs(folder: Path, take: Acquire) -> None:
    lease = take()
    pid = server_of(folder)
    lease.ensure_running()
    assert server_of(folder) == pid


def test_a_killed_client_neither_ends_the_server_nor_keeps_it_running(folder: Path, take: Acquire) -> None:
    code = (
        "from sbredis.servers import acquire\nlease = acquire(sys.argv[1], linger=0.1)\nsay(up=True); time.sleep(600)"
    )
    with script(code, str(folder)) as client:
        client.hear()
        lease = take()
        pid = server_of(folder)
        client.kill(signal.SIGKILL)
        client.process.wait()
        watch(lambda: say(lease, "PING") == "PONG")
        assert server_of(folder) == pid
    lease.release()
    gone(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_server_is_started_again_with_its_data(folder: Path, take: Acquire, number: signal.Signals) -> None:
    lease = take(fsync="always")
    say(lease, "SET", "k", "v")
    pid, path = server_of(folder), lease.socket_path
    os.kill(pid, number)
    wait_until(lambda: not is_running(pid))
    lease.ensure_running()
    assert server_of(folder) != pid
    assert (lease.socket_path, say(lease, "GET", "k")) == (path, "v")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_when_its_supervisor_is_killed(folder: Path, take: Acquire, number: signal.Signals) -> None:
    lease = take(fsync="always")
    say(lease, "SET", "k", "v")
    pid = server_of(folder)
    supervisor = parent_of(pid)
    os.kill(supervisor, number)
    wait_until(lambda: not is_running(pid) and not is_running(supervisor))
    lease.ensure_running()
    assert say(lease, "GET", "k") == "v"


def test_a_new_client_gets_a_server_although_the_supervisor_was_just_killed(folder: Path, take: Acquire) -> None:
    say(take(fsync="always"), "SET", "k", "v")
    supervisor = parent_of(server_of(folder))
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_running(supervisor))  # until then the server runs as before
    assert say(take(), "GET", "k") == "v"
    assert len(servers_in(folder)) == 1


def test_a_new_client_ends_a_server_that_outlived_its_supervisor(
    folder: Path, take: Acquire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor starts the server without the death signal. So the server outlives its supervisor, as outside
    Linux.
    """
    monkeypatch.setattr("sbredis.servers._starting._ORPHAN_GRACE", 0.1)
    monkeypatch.setattr(
        "sbredis.servers._starting.python_command",
        lambda _: [
            *("python3", "-c"),
            "import sbredis.servers._embedded_supervisor as k; k.dies_with_parent = lambda _: None; k.main()",
        ],
    )
    lease = take()
    say(lease, "SET", "k", "v")
    orphan = server_of(folder)
    supervisor = parent_of(orphan)
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_running(supervisor))
    assert is_running(orphan)
    assert say(take(), "GET", "k") == "v"
    assert not is_running(orphan)


def test_a_removed_socket_is_replaced(folder: Path, take: Acquire) -> None:
    lease = take()
    say(lease, "SET", "k", "v")
    watch(lambda: say(lease, "PING") == "PONG")
    Path(lease.socket_path).unlink()
    lease.ensure_running()
    assert say(lease, "GET", "k") == "v"
    assert len(servers_in(folder)) == 1


def test_removing_the_folder_ends_the_server_and_clients_get_an_error(folder: Path, take: Acquire) -> None:
    lease = take()
    pid = server_of(folder)
    watch(lambda: say(lease, "PING") == "PONG")
    folder.rename(folder.with_name("moved away"))
    wait_until(lambda: not is_running(pid))
    with pytest.raises(ServerUnsuitableError, match="removed or replaced"):
        lease.ensure_running()
    assert say(take(), "PING") == "PONG"  # a new client gets a new server in a new folder


def test_files_left_by_dead_processes_have_no_effect(folder: Path, take: Acquire) -> None:
    folder.mkdir()
    for name in ("owner.lock", "clients.lock", "server.lock", "supervisor.lock"):
        (folder / name).write_text("1")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "server.sock"))
    assert say(take(), "PING") == "PONG"


def test_a_folder_whose_path_is_too_long_for_a_socket_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with acquire(deep, linger=0) as lease, acquire(deep) as other:
        assert len(lease.socket_path) < 100
        assert lease.socket_path == other.socket_path
        assert Path(lease.socket_path).parent.stat().st_mode & 0o777 == 0o700
        assert say(other, "PING") == "PONG"
    gone(deep)
    assert not Path(lease.socket_path).parent.exists()


def test_a_socket_folder_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("f" * 60)
    with acquire(deep, linger=0) as lease:
        shared = Path(lease.socket_path).parent
    gone(deep)
    shared.mkdir(mode=0o755)
    try:
        with pytest.raises(ServerUnsuitableError, match="only this user can use"):
            acquire(deep)
    finally:
        shared.rmdir()


def test_a_folder_with_a_strange_name_works(tmp_path: Path) -> None:
    folder = tmp_path / 'a "b" \\c %d\nü'
    with acquire(folder, linger=0) as lease:
        assert say(lease, "PING") == "PONG"
    gone(folder)


def test_fsync_is_made_stricter_on_demand_and_never_relaxed(folder: Path, take: Acquire) -> None:
    modest = take()
    assert say(modest, "CONFIG", "GET", "appendfsync") == ["appendfsync", "everysec"]
    careful = take(fsync="always")
    assert say(modest, "CONFIG", "GET", "appendfsync") == ["appendfsync", "always"]
    take()
    assert say(modest, "CONFIG", "GET", "appendfsync") == ["appendfsync", "always"]
    os.kill(server_of(folder), signal.SIGKILL)
    modest.ensure_running()
    careful.ensure_running()
    assert say(modest, "CONFIG", "GET", "appendfsync") == ["appendfsync", "always"]


def test_a_server_that_is_killed_before_its_fsync_is_read_is_started_again(
    folder: Path, take: Acquire, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def ask_and_kill(path: str, *arguments: str) -> Reply:
        if not killed:
            killed.append(server_of(folder))
            os.kill(killed[0], signal.SIGKILL)
            wait_until(lambda: not is_running(killed[0]))
        return ask(path, *arguments)

    monkeypatch.setattr("sbredis.servers._embedded.ask", ask_and_kill)
    lease = take(fsync="always")
    assert say(lease, "CONFIG", "GET", "appendfsync") == ["appendfsync", "always"]
    assert server_of(folder) != killed[0]


def test_a_truncated_last_entry_of_the_data_is_left_out(folder: Path, take: Acquire) -> None:
    lease = take()
    say(lease, "SET", "whole", "1")
    say(lease, "SET", "cut", "1")
    lease.release()
    gone(folder)
    log = last_increment(folder)
    log.write_bytes(log.read_bytes()[:-3])
    lease = take()
    assert (say(lease, "GET", "whole"), say(lease, "GET", "cut")) == ("1", None)


def test_the_error_for_invalid_data_quotes_the_server(folder: Path, take: Acquire) -> None:
    lease = take()
    for number in range(100):
        say(lease, "SET", number, "v" * 100)
    lease.release()
    gone(folder)
    log = last_increment(folder)
    data = log.read_bytes()
    log.write_bytes(data[:2000] + b"garbage!" * 10 + data[2080:])
    for _ in range(2):
        with pytest.raises(ServerUnsuitableError, match=r"(?s)Bad file format.+check-aof"):
            take()
        gone(folder)
    log.write_bytes(data)
    assert say(take(), "GET", "99") == "v" * 100


def test_a_folder_with_other_contents_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("")
    with pytest.raises(ServerUnsuitableError, match=r"thesis\.txt"):
        acquire(folder)
    assert [entry.name for entry in folder.iterdir()] == ["thesis.txt"]


def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("")
    for path in (folder, folder / "below"):
        with pytest.raises(ServerUnsuitableError, match="is a file"):
            acquire(path)


def test_a_folder_that_may_not_be_written_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o500)
    code = """
import os
from sbredis.servers import acquire, find_server
from sbredis.exceptions import ServerUnsuitableError
if os.geteuid() == 0:
    os.seteuid(65534)
for path in sys.argv[1:]:
    try:
        acquire(path)
    except ServerUnsuitableError as error:
        say(error=str(error))
"""
    with script(code, str(folder), str(folder / "below")) as client:
        for _ in range(2):
            assert "Permission denied" in client.hear()["error"]


def test_a_server_program_that_cannot_be_run_is_refused(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "valkey-server"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(ServerUnsuitableError, match="Exec format error"):
        acquire(folder, binary=str(broken))


def test_a_server_that_answers_too_late_causes_a_transient_error(folder: Path, take: Acquire) -> None:
    lease = take()
    patient = lease._starter
    pid = server_of(folder)
    os.kill(pid, signal.SIGSTOP)
    lease._starter = replace(patient, timeout=0.2)
    try:
        with pytest.raises(ServiceBusConnectionError, match="did not answer") as caught:
            lease.ensure_running()
        assert caught.value.is_transient
    finally:
        os.kill(pid, signal.SIGCONT)
    lease._starter = patient
    lease.ensure_running()
    assert server_of(folder) == pid


def test_a_released_lease_says_that_it_was_released(folder: Path, take: Acquire) -> None:
    lease = take()
    lease.release()
    with pytest.raises(ServiceBusConnectionError, match="released") as caught:
        lease.ensure_running()
    assert not caught.value.is_transient
    gone(folder)


def test_a_forked_child_keeps_the_lease_of_its_parent(folder: Path) -> None:
    code = """
import os
from sbredis.servers import acquire
lease = acquire(sys.argv[1], linger=0.1)
child = os.fork()
if child:
    say(child=child)
    lease.release()  # the parent's own end of it
time.sleep(600)
"""
    with script(code, str(folder)) as client:
        child = client.hear()["child"]
        pid = server_of(folder)
        client.kill(signal.SIGKILL)
        client.process.wait()
        watch(lambda: ask(str(folder / "server.sock"), "PING") == "PONG")
        assert server_of(folder) == pid
        os.kill(child, signal.SIGKILL)
        gone(folder)
