"""An embedded server under faults: killed while it starts, on a full disk, and after a loss of power."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.exceptions import ServerUnsuitableError, ServiceBusConnectionError, ServiceBusError
from sbredis.model import ServiceBusMessage
from sbredis.servers import ServerBinary, acquire, find_server
from sbredis.servers._repairing import take_zeros_away
from tests.servers.data import ask, gone, write_data
from tests.servers.processes import LINUX
from tests.waiting import eventually, given_time

pytestmark = pytest.mark.skipif(not LINUX, reason="these tests look processes up in /proc")


# -- killed while it starts --------------------------------------------------------------------------------------------


def dying(tmp_path: Path, times: int, how: str) -> ServerBinary:
    """Make a server program that dies in this way at its first ``times`` starts, and then works as a server."""
    real = find_server(None).path
    lives = tmp_path / "lives"
    program = tmp_path / "dying-server"
    program.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && exec '{real}' --version
echo died >> '{lives}'
[ $(wc -l < '{lives}') -le {times} ] && {{ {how}; }}
exec '{real}' "$@"
"""
    )
    program.chmod(0o755)
    return ServerBinary(program)


@pytest.mark.parametrize(
    "how", ["kill -9 $$", "kill -9 $PPID; kill -9 $$"], ids=["the server", "the supervisor and the server"]
)
def test_a_server_that_is_killed_while_it_starts_is_started_once_more(folder: Path, tmp_path: Path, how: str) -> None:
    with acquire(folder, binary=dying(tmp_path, 3, how), linger=0, timeout=60) as lease:
        assert ask(lease.socket_path, "PING") == "PONG"
    assert len((tmp_path / "lives").read_text().splitlines()) == 4
    gone(folder)


@pytest.mark.long("it lets a server fail for eight seconds")
def test_a_server_that_is_killed_at_every_start_causes_a_transient_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ServiceBusConnectionError, match=r"was killed each time it was started|did not (answer|start) within"
    ) as raised:
        acquire(folder, binary=dying(tmp_path, 10_000, "kill -9 $$"), timeout=8)
    assert raised.value.is_transient
    assert len((tmp_path / "lives").read_text().splitlines()) > 1
    gone(folder)


def test_a_server_that_exits_by_itself_is_not_started_again(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ServerUnsuitableError, match="no such luck") as raised:
        acquire(folder, binary=dying(tmp_path, 10_000, "echo no such luck; exit 3"), timeout=60)
    assert not raised.value.is_transient
    assert len((tmp_path / "lives").read_text().splitlines()) == 1
    gone(folder)


# -- a full disk -------------------------------------------------------------------------------------------------------


def fill(disk: Path) -> Path:
    """Fill a disk completely; return the file that uses the space."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0
    return filler


async def send_until_refused(sender: ServiceBusSender, timeout: float) -> None:
    """Send messages until one is refused. The first may succeed, because the last page of the file may have space."""
    for _ in range(100):
        await sender.send_messages(ServiceBusMessage("x" * 4000), timeout=timeout)


@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_the_error_names_the_full_disk_until_there_is_space(small: Path, fsync: str) -> None:
    url = f"embedded://{small}/data?fsync={fsync}"
    async with ServiceBusClient(url, connect_timeout=60) as client:
        sender = client.get_queue_sender("q", create_if_missing=True)
        await sender.send_messages(ServiceBusMessage("kept"))
        filler = fill(small)
        raised = await given_time(
            lambda seconds: send_until_refused(sender, seconds), r"(?i)no space left on device", seconds=5
        )
        assert isinstance(raised, ServiceBusError)
        assert raised.is_transient
        filler.unlink()
        await sender.send_messages(ServiceBusMessage("after"), timeout=60)
        receiver = client.get_queue_receiver("q")
        bodies: list[object] = []
        while bodies[-1:] != [b"after"]:
            bodies += [message.body for message in await receiver.receive_messages(200, 60)]
        assert bodies[0] == b"kept"


async def test_a_server_is_not_started_on_a_full_disk_and_the_error_gives_this_reason(small: Path) -> None:
    (small / "data").mkdir(mode=0o700)
    filler = fill(small)
    clients: list[ServiceBusClient] = []

    async def opened(seconds: float) -> None:
        clients.append(ServiceBusClient(f"embedded://{small}/data", connect_timeout=seconds))
        await clients[-1].ensure_queue("q", timeout=4 * seconds)

    async def works() -> bool:
        with suppress(ServiceBusError):
            await clients[-1].ensure_queue("q", timeout=60)
            return True
        return False

    raised = await given_time(opened, r"has no room for its data: no space left on device", seconds=5)
    assert isinstance(raised, ServiceBusError)
    assert raised.is_transient
    filler.unlink()
    await eventually(works)
    for client in clients:
        await client.close()


# -- after a loss of power ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [1, 4095, 200_000])
def test_zeros_at_the_end_of_the_data_are_removed(folder: Path, zeros: int, caplog: pytest.LogCaptureFixture) -> None:
    file = write_data(folder)
    whole = file.read_bytes()
    with file.open("ab") as end:
        end.write(bytes(zeros))
    with caplog.at_level(logging.WARNING, "sbredis"), acquire(folder, linger=0) as lease:
        assert ask(lease.socket_path, "DBSIZE") == 10
    assert f"{file.resolve()} ended with {zeros} zero bytes" in caplog.text
    gone(folder)
    assert file.read_bytes().startswith(whole)


def test_zeros_after_a_truncated_entry_are_removed_together_with_the_entry(folder: Path) -> None:
    """The entry is cut off within a value, which would otherwise be read as a value of zeros."""
    file = write_data(folder)
    whole = file.read_bytes()
    file.write_bytes(whole[:-60] + bytes(5000))
    with acquire(folder, linger=0) as lease:
        assert ask(lease.socket_path, "DBSIZE") == 9
    gone(folder)


def test_zeros_elsewhere_are_kept_and_the_error_names_the_repair_command(folder: Path) -> None:
    file = write_data(folder)
    whole = file.read_bytes()
    damaged = whole[:200] + bytes(100) + whole[300:]
    file.write_bytes(damaged)
    command = f"sbredis server repair {folder.resolve()}"
    with pytest.raises(ServerUnsuitableError) as raised:
        acquire(folder, linger=0)
    assert command in str(raised.value)
    assert file.read_bytes() == damaged
    gone(folder)


def test_an_intact_file_is_not_changed(folder: Path) -> None:
    file = write_data(folder)
    before = file.stat().st_mtime_ns, file.read_bytes()
    assert take_zeros_away(folder) == 0
    assert (file.stat().st_mtime_ns, file.read_bytes()) == before


def test_without_data_no_file_is_repaired(tmp_path: Path) -> None:
    assert take_zeros_away(tmp_path) == 0
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").write_text("file ../other seq 1 type i\nnonsense\n")
    assert take_zeros_away(tmp_path) == 0


def test_a_file_that_contains_only_zeros_becomes_empty(folder: Path) -> None:
    file = write_data(folder)
    file.write_bytes(bytes(150_000))
    with acquire(folder, linger=0) as lease:
        assert ask(lease.socket_path, "DBSIZE") == 0
    gone(folder)
