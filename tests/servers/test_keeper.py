"""A server that stays on a folder without clients, until it is told to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers import LocalServer, acquire, find_kept, free_port, start_kept, stop_kept
from tests.servers.data import ask
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "bus"
    yield path
    stop_kept(path)


def test_a_server_stays_without_clients_until_it_is_stopped_and_its_data_stay(folder: Path) -> None:
    assert find_kept(folder) is None
    assert not folder.exists(), "looking makes no folder"
    kept = start_kept(folder)
    assert kept.url == f"embedded://{folder}"
    assert find_kept(folder) == kept
    ask(kept.address, "SET", "k", "v")
    assert kept.information()["tcp_port"] == "0"
    with pytest.raises(ServerUnsuitableError, match=r"is kept on .* already: embedded://"):
        start_kept(folder)
    assert stop_kept(folder) == kept
    assert stop_kept(folder) is None
    with acquire(folder) as lease:
        assert ask(lease.socket_path, "GET", "k") in ("v", b"v")


def test_a_killed_keeper_is_not_mistaken_for_a_living_one(folder: Path) -> None:
    kept = start_kept(folder)
    os.kill(kept.pid, signal.SIGKILL)
    wait_until(lambda: find_kept(folder) is None)
    assert (folder / ".keeper.json").exists()
    assert stop_kept(folder) is None
    assert start_kept(folder).pid != kept.pid


def test_a_server_can_listen_on_the_loopback_address(folder: Path) -> None:
    port = free_port()
    kept = start_kept(folder, port=port)
    assert kept.url == f"redis://127.0.0.1:{port}"
    assert ask(("127.0.0.1", port), "CONFIG", "GET", "bind") == ["bind", "127.0.0.1"]
    os.kill(int(kept.information()["process_id"]), signal.SIGKILL)
    wait_until(lambda: _answers(port), what="the server was not started again")


def _answers(port: int) -> bool:
    try:
        return ask(("127.0.0.1", port), "PING") == "PONG"
    except OSError:
        return False


def test_a_port_that_is_taken_is_refused_and_nothing_is_left_running(folder: Path) -> None:
    with LocalServer() as other, pytest.raises(ServerUnsuitableError, match=f"cannot listen on port {other.port}"):
        start_kept(folder, port=other.port)
    assert find_kept(folder) is None


def test_a_cluster_is_kept(folder: Path) -> None:
    kept = start_kept(folder, masters=3)
    assert (kept.nodes, kept.url.startswith("redis+cluster://127.0.0.1:")) == (3, True)
    assert kept.information()["cluster_enabled"] == "1"
    assert stop_kept(folder) == kept
    assert kept.information() == {}


def test_a_folder_with_other_files_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x", "utf-8")
    with pytest.raises(ServerUnsuitableError, match=r"files that are not from sbredis"):
        start_kept(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]
