"""Backups that are restored into new folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError, ServiceBusServerBusyError
from sbredis.servers import LocalServer, ServerBinary, acquire, back_up, find_server, restoring
from tests.plugins.parts import first
from tests.servers.data import ask, content, gone, keys_of, last_increment, modes, write_data
from tests.servers.processes import processes_in, script
from tests.waiting import wait_until

KEYS = {f"k{number}" for number in range(10)}


def restore(backup: Path, folder: Path, *, binary: ServerBinary | None = None) -> int:
    """Restore a backup, and return the number of bytes that were left out."""
    with restoring(backup, folder, binary=binary) as restored:
        assert restored.folder == folder.resolve()
        return restored.cut_bytes


# -- what is a backup --------------------------------------------------------------------------------------------------


def as_it_is(folder: Path, _: Path) -> Path:
    return folder


def only_the_data(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder / "appendonlydir", tmp_path / "data of monday")
    return tmp_path / "data of monday"


def a_new_folder_with_the_data(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder / "appendonlydir", tmp_path / "copy" / "appendonlydir")
    return tmp_path / "copy"


def a_backup(folder: Path, tmp_path: Path) -> Path:
    return back_up(folder, tmp_path / "backup").path


def under_other_names(folder: Path, tmp_path: Path) -> Path:
    """Another server may have the setting ``appendfilename``."""
    copy = tmp_path / "other"
    copy.mkdir()
    for path in (folder / "appendonlydir").iterdir():
        text = path.read_bytes()
        if path.suffix == ".manifest":
            text = text.replace(b"appendonly.aof", b"bus.aof")
        (copy / path.name.replace("appendonly.aof", "bus.aof")).write_bytes(text)
    return copy


@pytest.mark.parametrize(
    "made",
    first(
        2,
        [as_it_is, a_backup, only_the_data, a_new_folder_with_the_data, under_other_names],
        "it starts a server for each kind of backup",
    ),
    ids=lambda f: f.__name__,
)
def test_a_backup_is_restored_into_a_folder_that_an_embedded_server_uses(
    folder: Path, tmp_path: Path, made: Callable[[Path, Path], Path]
) -> None:
    write_data(folder)
    target = tmp_path / "restored"
    assert restore(made(folder, tmp_path), target) == 0
    assert modes(target) == {"file 600", "folder 700"}
    assert sorted(path.name for path in target.iterdir()) == ["appendonlydir", "owner.lock"]
    assert keys_of(target) == KEYS
    assert keys_of(folder) == KEYS, "the backup was changed"
    with acquire(target, linger=0) as lease:  # the next rewriting of the files works too
        ask(lease.socket_path, "SET", "later", "x")
        ask(lease.socket_path, "BGREWRITEAOF")
        wait_until(lambda: "aof_rewrites:1" in str(ask(lease.socket_path, "INFO", "persistence")))
        wait_until(lambda: "aof_rewrite_in_progress:0" in str(ask(lease.socket_path, "INFO", "persistence")))
    gone(target)
    assert keys_of(target) == KEYS | {"later"}


def test_a_snapshot_is_restored(binary: ServerBinary, tmp_path: Path) -> None:
    with LocalServer(binary=binary, directory=tmp_path / "server") as server:
        server.ask("SET", "a", "1")
        server.ask("SAVE")
    assert restore(tmp_path / "server" / "dump.rdb", tmp_path / "restored", binary=binary) == 0
    assert keys_of(tmp_path / "restored", binary=binary) == {"a"}
    with acquire(tmp_path / "restored", linger=0, binary=binary) as lease:
        ask(lease.socket_path, "SET", "b", "1")
    gone(tmp_path / "restored")
    assert keys_of(tmp_path / "restored", binary=binary) == {"a", "b"}


def test_what_a_copy_lacks_of_its_last_command_is_left_out_and_told(folder: Path, tmp_path: Path) -> None:
    last = write_data(folder)
    last.write_bytes(last.read_bytes()[:-5])
    with restoring(folder, tmp_path / "restored") as restored:
        kept = restored.server.ask("DBSIZE")
        assert restored.cut_bytes > 100
        assert restored.changed.timestamp() == pytest.approx(last.stat().st_mtime)
    assert kept == 9
    assert keys_of(tmp_path / "restored") == KEYS - {"k9"}


def test_an_existing_folder_without_data_is_used(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    backup = only_the_data(folder, tmp_path)
    (tmp_path / "mounted" / "lost+found").mkdir(parents=True)
    restore(backup, tmp_path / "mounted")
    assert keys_of(tmp_path / "mounted") == KEYS
    shutil.rmtree(folder / "appendonlydir")  # the folder of a server whose data were put away
    restore(backup, folder)
    assert keys_of(folder) == KEYS


# -- refusals ----------------------------------------------------------------------------------------------------------


def broken_base(backup: Path) -> None:
    base = next(backup.glob("*.base.rdb"))
    data = bytearray(base.read_bytes())
    data[-1] ^= 1  # a byte of the checksum
    base.write_bytes(data)


def no_manifest(backup: Path) -> None:
    next(backup.glob("*.manifest")).unlink()


def two_manifests(backup: Path) -> None:
    (backup / "other.manifest").write_text("file a seq 1 type i\n")


def missing_file(backup: Path) -> None:
    next(backup.glob("*.base.rdb")).unlink()


def garbage(backup: Path) -> None:
    with next(backup.glob("*.incr.aof")).open("ab") as file:
        file.write(b"garbage")


def unknown_command(backup: Path) -> None:
    with next(backup.glob("*.incr.aof")).open("ab") as file:
        file.write(b"*1\r\n$7\r\nNOTHING\r\n")


UNUSABLE = {
    no_manifest: "is not a backup.* has no append-only file",
    two_manifests: "is not a backup.* has several manifests",
    missing_file: "is not a backup.* names the file appendonly.aof.1.base.rdb, which does not exist",
    garbage: r"appendonly.aof.1.incr.aof is damaged: it cannot be read from byte [\d,]+ on. Nothing was changed",
    broken_base: r"(?s)cannot be loaded, and nothing was changed.*(?i:checksum|crc)",
    unknown_command: r"(?s)cannot be loaded, and nothing was changed.*(?i:unknown command)",
}


@pytest.mark.parametrize(("damage", "text"), UNUSABLE.items(), ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("exists", [False, True])
def test_a_backup_that_cannot_be_used_is_refused_and_nothing_is_changed(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], text: str, exists: bool
) -> None:
    write_data(folder)
    backup = only_the_data(folder, tmp_path)
    damage(backup)
    target = tmp_path / "restored"
    if exists:
        target.mkdir()
    before = content(tmp_path)
    with pytest.raises(ServerUnsuitableError, match=text):
        restore(backup, target)
    assert content(tmp_path) == before


def test_a_file_that_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for name, text in {"notes.txt": "is neither a folder", "missing": "cannot be read: No such file"}.items():
        with pytest.raises(ServerUnsuitableError, match=f"{name}.* {text}"):
            restore(tmp_path / name, tmp_path / "restored")
    assert content(tmp_path) == {"notes.txt": b"hello"}


def test_a_folder_with_data_or_other_files_is_refused_and_stays(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    backup = only_the_data(folder, tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("hello")
    before = content(tmp_path)
    with pytest.raises(ServerUnsuitableError, match=r"has data already\. Nothing was changed\."):
        restore(backup, folder)
    with pytest.raises(ServerUnsuitableError, match="contains files that are not from sbredis"):
        restore(backup, tmp_path / "mine")
    with pytest.raises(ServerUnsuitableError, match="is a file"):
        restore(backup, tmp_path / "mine" / "notes.txt")
    assert content(tmp_path) == before


def test_a_folder_that_is_in_use_is_refused(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    backup = only_the_data(folder, tmp_path)
    with acquire(folder, linger=0) as lease:
        with pytest.raises(ServerUnsuitableError, match=r"has data already\. A server is running on it"):
            restore(backup, folder)
        shutil.rmtree(folder / "appendonlydir")  # the server keeps its open files
        with pytest.raises(ServerUnsuitableError, match="A server or a client is using"):
            restore(backup, folder)
        assert not (folder / "appendonlydir").exists()
        assert ask(lease.socket_path, "DBSIZE") == 10
    gone(folder)


def test_files_to_which_a_server_writes_are_no_backup(tmp_path: Path) -> None:
    with LocalServer(directory=tmp_path / "server", config={"appendonly": "yes"}):
        with pytest.raises(ServerUnsuitableError, match=r"A server is writing to .* sbredis server backup"):
            restore(tmp_path / "server", tmp_path / "restored")
        assert not (tmp_path / "restored").exists()


def test_a_disk_without_room_is_named_and_nothing_is_changed(folder: Path, small: Path) -> None:
    write_data(folder)
    with last_increment(folder).open("ab") as file:
        file.truncate(50_000_000)
    with pytest.raises(ServiceBusServerBusyError, match=r"has no room: 5\d,\d+,\d+ bytes are needed"):
        restore(folder, small / "data")
    assert content(small) == {}


def test_a_copied_backup_is_refused_as_a_folder_and_the_error_names_the_command(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    copy = a_new_folder_with_the_data(folder, tmp_path)
    before = content(copy)
    with pytest.raises(ServerUnsuitableError, match=f"sbredis server restore {copy} NEW_FOLDER"):
        acquire(copy)
    assert content(copy) == before


# -- interruptions -----------------------------------------------------------------------------------------------------

RESTORE = """
from sbredis.servers import restoring
backup, folder, program = sys.argv[1:]
try:
    with restoring(backup, folder, binary=program):
        pass
except KeyboardInterrupt:
    say(interrupted=True)
"""


def hanging(tmp_path: Path) -> Path:
    """Make a server program that notes that it was started, and then loads its data for ever."""
    program = tmp_path / "hanging-server"
    program.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && exec '{find_server(None).path}' --version\n"
        f"touch '{tmp_path}/begun'\nexec sleep 3600\n"
    )
    program.chmod(0o755)
    return program


def test_after_a_killed_restore_no_server_starts_until_it_is_repeated(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    target = tmp_path / "restored"
    with script(RESTORE, str(folder), str(target), str(hanging(tmp_path))) as running:
        wait_until((tmp_path / "begun").exists)
        with pytest.raises(ServerUnsuitableError, match="Another process is starting or ending"):
            restore(folder, target)
        running.kill()
        running.process.wait()
    assert not (target / "appendonlydir").exists()
    before = content(target)
    with pytest.raises(ServerUnsuitableError, match=r"was being restored into .* did not finish"):
        acquire(target, linger=0)
    assert {name: data for name, data in content(target).items() if not name.endswith(".lock")} == {
        name: data for name, data in before.items() if not name.endswith(".lock")
    }
    restore(folder, target)
    assert keys_of(target) == KEYS


def test_an_interrupted_restore_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    with script(RESTORE, str(folder), str(tmp_path / "restored"), str(hanging(tmp_path))) as running:
        wait_until((tmp_path / "begun").exists)
        running.kill(2)
        assert running.hear() == {"interrupted": True}
        running.process.wait()
    assert not (tmp_path / "restored").exists()
    assert not processes_in(tmp_path / "restored")


def test_a_block_that_raises_restores_nothing(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    with pytest.raises(ZeroDivisionError), restoring(folder, tmp_path / "restored"):
        raise ZeroDivisionError
    assert not (tmp_path / "restored").exists()
