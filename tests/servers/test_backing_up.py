"""Backups of servers that run."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError, ServiceBusServerBusyError
from sbredis.servers import LocalServer, ServerBinary, back_up, restoring
from sbredis.servers._append_only import read_file
from tests.servers.data import content, keys_of, last_increment, modes, write_data


@contextmanager
def writing(server: LocalServer) -> Iterator[list[int]]:
    """Let a server store numbers and rewrite its file again and again. The block gets what it has acknowledged."""
    acknowledged: list[int] = []
    ended = threading.Event()
    faults: list[BaseException] = []

    def write() -> None:
        try:
            while not ended.is_set():
                number = len(acknowledged)
                server.ask(
                    "EVAL", "for _, k in ipairs(KEYS) do redis.call('SET', k, 'x') end", 2, f"a{number}", f"b{number}"
                )
                acknowledged.append(number)
                if number % 20 == 0 and "aof_rewrite_in_progress:0" in str(server.ask("INFO", "persistence")):
                    server.ask("BGREWRITEAOF")
        except BaseException as error:  # noqa: BLE001 -- the test raises it
            faults.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        ended.set()
        thread.join()
    assert faults == []


@pytest.mark.long("it sends until a backup is complete")
def test_a_backup_of_a_server_that_rewrites_its_file_has_all_that_was_acknowledged(
    binary: ServerBinary, tmp_path: Path
) -> None:
    rewritten: set[str] = set()
    with (
        LocalServer(binary=binary, directory=tmp_path / "server", config={"appendonly": "yes"}) as server,
        writing(server) as acknowledged,
    ):
        for number in range(15):
            before = len(acknowledged)
            made = back_up(tmp_path / "server", tmp_path / f"backup-{number}")
            rewritten |= {path.name for path in made.path.glob("*.base.rdb")}
            with restoring(made.path, tmp_path / f"restored-{number}", binary=binary) as restored:
                assert restored.cut_bytes == 0
                kept = set(map(str, restored.server.ask("KEYS", "*")))  # type: ignore[arg-type]
            assert kept >= {f"{letter}{each}" for letter in "ab" for each in range(before)}
            assert {key[1:] for key in kept if key[0] == "a"} == {key[1:] for key in kept if key[0] == "b"}
    assert len(rewritten) > 1, "the server did not rewrite its file meanwhile"


def test_a_backup_can_be_read_by_this_user_only_and_ends_with_a_whole_command(folder: Path, tmp_path: Path) -> None:
    last = write_data(folder)
    with last.open("ab") as file:
        file.write(b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\ny\r\n*3\r\n$3\r\nSE")
    before = content(folder)
    made = back_up(folder, tmp_path / "backup")
    assert content(folder) == before
    assert modes(tmp_path / "backup") == {"file 600"}
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    assert made.size == sum(path.stat().st_size for path in made.path.iterdir())
    assert read_file((made.path / last.name).read_bytes()).ending == "whole"
    with restoring(made.path, tmp_path / "restored"):
        pass
    assert keys_of(tmp_path / "restored") == {f"k{number}" for number in range(10)}


class SlowServer(threading.Thread):
    """A server that has acknowledged a change, and writes it only after a few questions."""

    def __init__(self, path: Path, file: Path, change: bytes) -> None:
        super().__init__(daemon=True)
        self.asked = 0
        self._file, self._change = file, change
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()

    def run(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(1000)
                self.asked += 1
                if self.asked == 3:
                    with self._file.open("ab") as file:
                        file.write(self._change)
                left = 0 if self.asked >= 3 else len(self._change)
                text = f"aof_current_size:{1000 - left}\r\naof_base_size:88\r\naof_buffer_length:{left}\r\n"
                connection.sendall(f"${len(text)}\r\n{text}\r\n".encode())


def test_a_backup_waits_until_the_server_has_written_what_it_has_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    last = write_data(folder, 1)
    change = b"*3\r\n$3\r\nSET\r\n$4\r\nlate\r\n$1\r\nx\r\n"
    (folder / "server.sock").unlink(missing_ok=True)
    slow = SlowServer(folder / "server.sock", last, change)
    slow.start()
    made = back_up(folder, tmp_path / "backup")
    assert slow.asked == 3
    assert (made.path / last.name).read_bytes().endswith(change)


def nothing(_: Path) -> None:
    pass


def without_the_increment(folder: Path) -> None:
    last_increment(folder).unlink()


def with_garbage(folder: Path) -> None:
    with last_increment(folder).open("ab") as file:
        file.write(b"garbage")


def without_a_manifest(folder: Path) -> None:
    next((folder / "appendonlydir").glob("*.manifest")).unlink()


def with_a_wrong_manifest(folder: Path) -> None:
    next((folder / "appendonlydir").glob("*.manifest")).write_text("file ../other seq 1 type i\n")


def without_data(folder: Path) -> None:
    for path in (folder / "appendonlydir").iterdir():
        path.unlink()


REFUSED = {
    "no data": (without_data, "has no append-only file"),
    "no manifest": (without_a_manifest, "has no append-only file"),
    "a wrong manifest": (with_a_wrong_manifest, "is not a manifest of an append-only file"),
    "a missing file": (without_the_increment, r"names the file appendonly.aof.1.incr.aof, which does not exist"),
    "damage": (with_garbage, r"appendonly.aof.1.incr.aof is damaged: .* 'sbredis server repair' shows"),
}


@pytest.mark.parametrize(("damage", "text"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_cannot_be_copied_is_refused_and_no_backup_is_left(
    folder: Path, tmp_path: Path, damage: object, text: str
) -> None:
    write_data(folder)
    assert callable(damage)
    damage(folder)
    before = content(tmp_path)
    with pytest.raises(ServerUnsuitableError, match=text):
        back_up(folder, tmp_path / "backup")
    assert content(tmp_path) == before


def test_a_backup_is_not_written_over_another_one(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    back_up(folder, tmp_path / "backup")
    before = content(tmp_path)
    with pytest.raises(ServerUnsuitableError, match="exists already"):
        back_up(folder, tmp_path / "backup")
    with pytest.raises(ServerUnsuitableError, match=f"The folder {re.escape(str(tmp_path / 'no'))} does not exist"):
        back_up(folder, tmp_path / "no" / "backup")
    assert content(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert back_up(folder, tmp_path / "empty").path == tmp_path / "empty"


def test_a_full_disk_is_named_before_anything_is_copied(folder: Path, small: Path) -> None:
    write_data(folder)
    with last_increment(folder).open("ab") as file:
        file.truncate(50_000_000)  # the file has holes and takes no room here
    with pytest.raises(ServiceBusServerBusyError, match=r"has no room: 5\d,\d+,\d+ bytes are needed"):
        back_up(folder, small / "backup")
    assert content(small) == {}
