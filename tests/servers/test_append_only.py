"""Reading append-only files: where they may be cut. The server's own program is the judge."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbredis.servers import ServerBinary
from sbredis.servers._append_only import FileReading, commands_after, read_file


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


SELECT, MULTI, EXEC = command(b"SELECT", b"0"), command(b"MULTI"), command(b"EXEC")
SET, HSET = command(b"set", b"k", b"v" * 30), command(b"HSET", b"h", b"field", b"a\r\n*1\r\n$4\r\nEXEC\r\n")
TIME = b"#TS:1700000000\r\n"
WHOLE = SELECT + SET + MULTI + SET + HSET + EXEC + HSET

ENDINGS: dict[str, tuple[bytes, int, int, str]] = {
    "nothing": (b"", 0, 0, "whole"),
    "a command cut within a value": (SET[:-10], 0, 0, "torn"),
    "a command cut within the end of its last line": (SET[:-1], 0, 0, "torn"),
    "a command cut within its first line": (b"*", 0, 0, "torn"),
    "a command cut before a length": (b"*2\r\n$3\r\nGET\r\n", 0, 0, "torn"),
    "an annotation that is cut": (b"#TS:17", 0, 0, "torn"),
    "an annotation": (TIME, len(TIME), len(TIME), "whole"),
    "an annotation of an unknown kind": (b"#new thing\r\n", 12, 12, "whole"),
    "zeros": (bytes(500), 0, 0, "unreadable"),
    "a value of zeros": (SET[:20] + bytes(500), 0, 0, "unreadable"),
    "text": (b"no command", 0, 0, "unreadable"),
    "a transaction without an end": (MULTI + SET, 0, len(MULTI + SET), "transaction"),
    "a transaction whose end is cut": (MULTI + SET + EXEC[:-3], 0, len(MULTI + SET), "torn"),
    "garbage in a transaction": (SET + MULTI + SET + b"garbage", len(SET), len(SET + MULTI + SET), "unreadable"),
    "an annotation in a transaction": (MULTI + TIME + SET, 0, len(MULTI + TIME + SET), "transaction"),
    "a transaction in a transaction": (MULTI + SET + MULTI, 0, len(MULTI + SET), "unreadable"),
    "the end of no transaction": (EXEC, 0, 0, "unreadable"),
    "a command without words": (b"*0\r\n", 0, 0, "unreadable"),
    "a command without a name": (command(b"\x00\x01"), 0, 0, "unreadable"),
    "a wrong end of a value": (b"*1\r\n$4\r\nPINGxx", 0, 0, "unreadable"),
    "a length that is no number": (b"*1\r\n$x\r\nPING\r\n", 0, 0, "unreadable"),
}


@pytest.mark.parametrize(("tail", "cut_at", "stopped", "ending"), ENDINGS.values(), ids=ENDINGS)
def test_a_file_is_whole_up_to_its_last_command_that_is_in_no_open_transaction(
    tail: bytes, cut_at: int, stopped: int, ending: str
) -> None:
    found = read_file(WHOLE + tail)
    assert (found.whole - len(WHOLE), found.stopped - len(WHOLE), found.ending) == (cut_at, stopped, ending)
    assert found.size == len(WHOLE + tail)


def test_every_beginning_of_a_file_is_cut_at_a_command_and_never_within_a_transaction() -> None:
    ends = [0]
    for part in (SELECT, SET, MULTI + SET + HSET + EXEC, TIME, HSET):
        ends.append(ends[-1] + len(part))
    whole = SELECT + SET + MULTI + SET + HSET + EXEC + TIME + HSET
    for size in range(len(whole) + 1):
        found = read_file(whole[:size])
        assert found.whole == max(end for end in ends if end <= size)
        assert found.ending != "unreadable"


def test_the_commands_and_the_last_time_before_the_cut_are_told() -> None:
    found = read_file(WHOLE + TIME + SET + b"#TS:1800000000\r\n" + MULTI + HSET + b"#TS:1900000000\r\n" + SET)
    assert (found.commands, found.time) == (8, 1_800_000_000)
    assert [(each.name, each.first) for each in found.pending] == [(b"MULTI", b""), (b"HSET", b"h"), (b"SET", b"k")]
    assert read_file(b"") == FileReading(0, 0, 0, "whole", 0, (), None)


LATER: dict[str, tuple[bytes, int]] = {
    "nothing": (b"\xff\xfe", 0),
    "zeros": (bytes(1000), 0),
    "a torn command": (SET[:-3], 0),
    "a wrong first byte": (b"x" + SET[1:] + SET + SELECT, 2),
    "a length that is too large": (SET.replace(b"$30", b"$40") + HSET + SELECT, 2),
    "a length beyond the end of the file": (SET.replace(b"$30", b"$99999") + HSET + SELECT, 2),
    "garbage between commands": (b"garbage" + SET + b"garbage" + HSET + b"*2\r\n$3\r\nGET\r\n", 2),
}


@pytest.mark.parametrize(("rest", "count"), LATER.values(), ids=LATER)
def test_whole_commands_after_the_damage_are_found(rest: bytes, count: int) -> None:
    data = WHOLE + rest
    found = read_file(data)
    assert found.whole == len(WHOLE)
    # The value of HSET contains the text of a command. It is counted only if the command around it cannot be read.
    assert len(list(commands_after(data, found.stopped))) == count


def judged(binary: ServerBinary, path: Path) -> int:
    """Return where the server's program would cut a file."""
    ran = subprocess.run(
        [f"{binary.flavour}-check-aof", str(path)],
        executable=os.path.realpath(binary.path),
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if b"is not an AOF file" in ran.stdout or b"is empty" in (ran.stdout + ran.stderr).lower():
        return 0
    found = re.search(rb"ok_up_to=(\d+)", ran.stdout)
    assert found is not None, ran
    return int(found[1])


def damaged() -> Iterator[bytes]:
    """Yield files with damage of all kinds, the same in each run."""
    chance = random.Random(7)
    whole = WHOLE + TIME + WHOLE
    for tail, *_ in ENDINGS.values():
        yield whole + tail
    for _ in range(30):
        yield whole[: chance.randrange(1, len(whole))] + chance.randbytes(chance.randrange(20))
    for _ in range(60):
        place = chance.randrange(len(whole))
        yield whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]


def is_known_to_be_stricter(data: bytes, found: FileReading, other: int) -> bool:
    """Return whether our cut is before that of the program for a known reason.

    The program takes an annotation without its end for whole, although a server would append the next command to it. It
    also takes any bytes for the name of a command, and accepts a command without words. A server starts with neither.
    """
    name = re.match(rb"\*\d+\r\n\$\d+\r\n([^\r]*)", data[found.stopped :])
    odd = name is not None and not re.fullmatch(rb"[A-Za-z]+", name[1])
    return found.whole < other and (odd or data[found.stopped :].startswith((b"#", b"*0")))


def test_files_are_cut_where_the_program_of_the_server_cuts_them(binary: ServerBinary, tmp_path: Path) -> None:
    path = tmp_path / "appendonly.aof.1.incr.aof"
    differing: list[tuple[bytes, FileReading, int]] = []
    for data in damaged():
        path.write_bytes(data)
        found, other = read_file(data), judged(binary, path)
        if found.whole != other and not is_known_to_be_stricter(data, found, other):
            differing.append((data, found, other))
    assert differing == []
