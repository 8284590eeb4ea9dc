"""Repairing append-only files that a server does not load."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers import Damage, LocalServer, ServerBinary, acquire, repairing
from tests.plugins.parts import first
from tests.servers.data import ask, content, gone, keys_of, last_increment, write_data

KEYS = {f"k{number}" for number in range(10)}
MULTI, SET = b"*1\r\n$5\r\nMULTI\r\n", b"*3\r\n$3\r\nSET\r\n$4\r\nlate\r\n$3\r\nabc\r\n"
TAILS = {
    "random bytes": random.Random(3).randbytes(700),
    "a random byte": b"\x93",
    "a command that is cut and zeros and more": SET[:-6] + bytes(4096) + b"\x01",
    "a transaction without an end, and random bytes": MULTI + SET + b"\xff\x00\xff",
    "a transaction without an end, and zeros": MULTI + SET + bytes(4096) + b"x",
    "text": b"no command\r\n",
}
"""What a server refuses to load. Each of them was written after the last acknowledged command."""


def add(path: Path, tail: bytes) -> None:
    with path.open("ab") as file:
        file.write(tail)


def found(folder: Path, *, binary: ServerBinary | None = None) -> Damage | None:
    with repairing(folder, binary=binary) as damage:
        return damage


@pytest.mark.parametrize("tail", first(1, TAILS.values(), "it starts a server for each kind of damage"), ids=TAILS)
def test_a_server_that_does_not_start_starts_after_the_repair_with_all_that_was_acknowledged(
    folder: Path, tail: bytes, binary: ServerBinary
) -> None:
    last = write_data(folder, binary=binary)
    whole = last.read_bytes()
    add(last, tail)
    with pytest.raises(ServerUnsuitableError, match=re.escape(f"sbredis server repair {folder}")):
        acquire(folder, linger=0, binary=binary)
    gone(folder)
    before = content(folder)
    damage = found(folder, binary=binary)
    assert damage is not None
    assert content(folder) == before, "looking changed something"
    assert (damage.cut_at, damage.cut_bytes, damage.readable) == (len(whole), len(tail), 0)
    with repairing(folder, binary=binary) as damage:
        assert damage is not None
        copy = damage.cut()
    assert (last.read_bytes(), copy.read_bytes()) == (whole, whole + tail)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(rf"{re.escape(last.name)}\.damaged-\d{{8}}T\d{{6}}Z", copy.name)
    assert keys_of(folder, binary=binary) == KEYS
    assert copy.read_bytes() == whole + tail, "the server has removed the copy"


ENDINGS = {
    "zeros": (bytes(4096), "unreadable", 0),
    "a command that is cut": (SET[:-3], "torn", 0),
    "a transaction without an end": (MULTI + SET + SET, "transaction", 3),
}


@pytest.mark.parametrize(("tail", "ending", "unfinished"), ENDINGS.values(), ids=ENDINGS)
def test_what_a_start_would_cut_off_by_itself_is_cut_in_the_same_place(
    folder: Path, tail: bytes, ending: str, unfinished: int
) -> None:
    last = write_data(folder)
    whole = last.read_bytes()
    add(last, tail)
    with repairing(folder) as damage:
        assert damage is not None
        assert (damage.ending, damage.unfinished, damage.readable) == (ending, unfinished, 0)
        assert damage.zeros == (ending == "unreadable")
        damage.cut()
    assert last.read_bytes() == whole
    add(last, tail)
    assert keys_of(folder) == KEYS
    assert last.read_bytes() == whole


def test_a_local_server_that_does_not_start_names_the_command_too(binary: ServerBinary, tmp_path: Path) -> None:
    server = LocalServer(binary=binary, directory=tmp_path, config={"appendonly": "yes", "appendfsync": "always"})
    with server:
        server.ask("SET", "a", "1")
        server.kill()
        add(last_increment(tmp_path), b"garbage")
        with pytest.raises(ServerUnsuitableError, match=re.escape(f"sbredis server repair {tmp_path}")):
            server.start()
        with repairing(tmp_path, binary=binary) as damage:
            assert damage is not None
            damage.cut()
        server.start()
        assert server.ask("GET", "a") == "1"


def test_nothing_is_wrong_with_the_data_of_a_server_that_has_ended(folder: Path, binary: ServerBinary) -> None:
    write_data(folder, binary=binary)
    with acquire(folder, linger=0, binary=binary) as lease:
        ask(lease.socket_path, "CONFIG", "SET", "aof-timestamp-enabled", "yes")
        ask(lease.socket_path, "BGREWRITEAOF")
        ask(lease.socket_path, "SET", "a", "1")
    gone(folder)
    before = content(folder)
    assert found(folder, binary=binary) is None
    assert content(folder) == before


def test_the_time_of_the_last_change_is_told_if_the_file_has_it(folder: Path) -> None:
    last = write_data(folder)
    add(last, b"#TS:1700000000\r\n" + SET + b"garbage")
    damage = found(folder)
    assert damage is not None
    assert damage.time == datetime.fromtimestamp(1_700_000_000, UTC)
    assert damage.sample == b"garbage"


# -- damage in the middle ----------------------------------------------------------------------------------------------


def flipped_first_byte(data: bytes, place: int) -> bytes:
    return data[:place] + b"+" + data[place + 1 :]


def flipped_length(data: bytes, place: int) -> bytes:
    assert data[place:].startswith(b"*3\r\n$3\r\nSET\r\n$2\r\nk5\r\n$100\r\n")
    return data[:place] + data[place:].replace(b"$100", b"$200", 1)


@pytest.mark.parametrize("damaged", [flipped_first_byte, flipped_length])
def test_whole_commands_after_the_damage_are_counted(folder: Path, damaged: Callable[[bytes, int], bytes]) -> None:
    last = write_data(folder)
    whole = last.read_bytes()
    place = whole.index(b"*3\r\n$3\r\nSET\r\n$2\r\nk5")
    last.write_bytes(damaged(whole, place))
    before = content(folder)
    with pytest.raises(ServerUnsuitableError, match="sbredis server repair"):
        acquire(folder, linger=0)
    gone(folder)
    assert last.read_bytes() == damaged(whole, place)
    with repairing(folder) as damage:
        assert damage is not None
        assert (damage.cut_at, damage.damaged_at, damage.readable) == (place, place, 4)
        assert damage.first_commands == tuple(f"SET k{number}" for number in range(6, 10))
    assert content(folder).keys() == before.keys()
    with repairing(folder) as damage:
        assert damage is not None
        damage.cut()
    assert keys_of(folder) == {f"k{number}" for number in range(5)}


# -- refusals ----------------------------------------------------------------------------------------------------------


def broken_base(folder: Path) -> None:
    base = next((folder / "appendonlydir").glob("*.base.rdb"))
    data = bytearray(base.read_bytes())
    data[-1] ^= 1
    base.write_bytes(data)


def broken_base_of_commands(folder: Path) -> None:
    next((folder / "appendonlydir").glob("*.base.rdb")).write_bytes(SET + b"garbage")


def broken_earlier_increment(folder: Path) -> None:
    last = last_increment(folder)
    add(last, SET[:-1])
    later = last.with_name("appendonly.aof.2.incr.aof")
    later.write_bytes(SET)
    add(last.with_name("appendonly.aof.manifest"), f"file {later.name} seq 2 type i\n".encode())


def no_manifest(folder: Path) -> None:
    (folder / "appendonlydir" / "appendonly.aof.manifest").unlink()


def no_base(folder: Path) -> None:
    next((folder / "appendonlydir").glob("*.base.rdb")).unlink()


REFUSED = {
    broken_base: r"base\.rdb is damaged: .* says: .*(?i:checksum|crc).* Nothing was changed\. Restore a backup",
    broken_base_of_commands: r"base\.rdb is damaged: it cannot be read from byte 32 on",
    broken_earlier_increment: r"1\.incr\.aof is damaged: .* This is the increment before the last one",
    no_manifest: "has no append-only file",
    no_base: "base.rdb, which does not exist",
}


@pytest.mark.parametrize(("damage", "text"), REFUSED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_damage_elsewhere_is_refused_and_nothing_is_changed(
    folder: Path, damage: Callable[[Path], None], text: str, binary: ServerBinary
) -> None:
    write_data(folder, binary=binary)
    damage(folder)
    before = content(folder)
    with pytest.raises(ServerUnsuitableError, match=text):
        found(folder, binary=binary)
    assert content(folder) == before


def test_a_program_that_cannot_check_a_base_file_does_not_condemn_it(folder: Path, tmp_path: Path) -> None:
    """A wrapper of a server ignores the name by which it is called."""
    write_data(folder)
    program = tmp_path / "wrapper"
    program.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Redis server v=7.0.0' && exit\nexit 1\n")
    program.chmod(0o755)
    assert found(folder, binary=ServerBinary(program)) is None


def test_data_that_are_in_use_are_refused_and_nothing_is_changed(folder: Path, tmp_path: Path) -> None:
    write_data(folder)
    with acquire(folder, linger=0) as lease:
        add(last_increment(folder), b"garbage")
        before = last_increment(folder).read_bytes()
        with pytest.raises(ServerUnsuitableError, match=f"is using {folder}.* sbredis server stop {folder}"):
            found(folder)
        assert last_increment(folder).read_bytes() == before
        assert ask(lease.socket_path, "DBSIZE") == 10
    gone(folder)
    with LocalServer(directory=tmp_path / "other", config={"appendonly": "yes"}) as server:
        server.ask("SET", "a", "1")
        before = last_increment(tmp_path / "other").read_bytes()
        with pytest.raises(ServerUnsuitableError, match=f"is using {tmp_path / 'other'}"):
            found(tmp_path / "other")
        assert last_increment(tmp_path / "other").read_bytes() == before


def test_the_end_of_a_server_without_clients_is_awaited(folder: Path) -> None:
    write_data(folder)
    with acquire(folder, linger=0.5):
        pass
    assert found(folder) is None


def test_no_server_starts_during_a_repair(folder: Path) -> None:
    last = write_data(folder)
    add(last, b"garbage")
    with repairing(folder) as damage:
        assert damage is not None
        with pytest.raises(Exception, match="Another process has been starting or ending"):
            acquire(folder, timeout=0.2)
        damage.cut()
    assert keys_of(folder) == KEYS
