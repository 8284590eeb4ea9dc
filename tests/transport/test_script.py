"""Scripts and calls: a call is packed once, and the same bytes may be sent many times."""

from __future__ import annotations

import enum
from hashlib import sha1
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis._parsers.encoders import Encoder
from redis.connection import PythonRespSerializer

from sbredis.transport import Keys, Script
from sbredis.transport._script import Call, Command, pack

ARGUMENT = st.one_of(st.binary(max_size=2000), st.text(max_size=50), st.integers())
RUN_ID = b"0123456789abcdef" * 2 + b"01234567"


def packed_by_redis_py(*arguments: bytes | str | int) -> bytes:
    encoder: Any = Encoder
    packer: Any = PythonRespSerializer(6000, encoder("utf-8", "strict", decode_responses=False).encode)
    return b"".join(packer.pack(*arguments))


@given(st.lists(ARGUMENT, max_size=12).map(lambda arguments: ["SET", *arguments]))  # redis-py splits the name at blanks
def test_a_command_is_packed_in_the_same_way_as_by_redis_py(arguments: list[bytes | str | int]) -> None:
    assert pack(arguments) == packed_by_redis_py(*arguments)


@pytest.mark.parametrize("length", [0, 1, 9, 10, 1022, 1023, 1024, 1025, 1_000_000])
def test_arguments_of_every_length_are_packed(length: int) -> None:
    assert pack((b"SET", b"x" * length)) == packed_by_redis_py(b"SET", b"x" * length)


@given(st.lists(st.lists(st.binary(max_size=20), max_size=4).map(tuple), min_size=1, max_size=4))
def test_joined_keys_are_packed_like_keys_that_were_together_from_the_beginning(parts: list[tuple[bytes, ...]]) -> None:
    packed_before = Keys(parts[0])
    assert packed_before.packed
    joined = Keys.joined([packed_before, *parts[1:]])
    together = Keys(key for part in parts for key in part)
    assert (joined, joined.packed) == (together, together.packed)


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    SEVEN = 7


class OwnBytes(bytes):
    """A subclass of bytes, like those that some libraries use."""


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (Colour.RED, b"red"),
        (Number.SEVEN, b"7"),
        (OwnBytes(b"a"), b"a"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
    ],
)
def test_subclasses_of_text_bytes_and_numbers_are_accepted(argument: Any, text: bytes) -> None:
    assert pack([argument]) == pack([text])


@pytest.mark.parametrize("argument", [None, True, False, 1.5, [], ("a",), object(), {"a": 1}])
def test_an_ambiguous_argument_type_is_refused(argument: Any) -> None:
    with pytest.raises(TypeError, match=type(argument).__name__):
        pack([b"SET", argument])
    with pytest.raises(TypeError, match=type(argument).__name__):
        Call(Script("s", "return 1"), [b"k"], [argument])


# -- scripts -----------------------------------------------------------------------------------------------------------


def test_a_script_is_identified_by_the_hash_of_its_source() -> None:
    script = Script("s", "return 'ä'")
    assert script.sha == sha1("return 'ä'".encode(), usedforsecurity=False).hexdigest()
    assert repr(script) == "Script('s')"


def test_the_source_of_a_script_is_made_when_it_is_needed() -> None:
    made: list[str] = []

    def source() -> str:
        made.append("s")
        return "#!lua\nreturn 1"

    script = Script("s", source, only_reads=True)
    call = Call(script, [b"k"], [])
    assert (call.size > 0, script.command, made) == (True, "EVALSHA_RO", [])
    assert script.sha == sha1(b"#!lua\nreturn 1", usedforsecurity=False).hexdigest()
    assert (script.source, made) == ("#!lua\nreturn 1", ["s"])


@pytest.mark.parametrize(
    ("source", "stripped"),
    [
        ("#!lua\nreturn 1", "\nreturn 1"),
        ("#!lua flags=allow-oom\r\nreturn 1\n", "\nreturn 1\n"),
        ("#!lua", ""),
        ("return 1", "return 1"),
        ("\n#!lua\nreturn 1", "\n#!lua\nreturn 1"),
        ("", ""),
    ],
)
def test_a_script_without_its_first_line_keeps_its_line_numbers(source: str, stripped: str) -> None:
    script = Script("s", source, takes_run_id=True).without_shebang()
    assert (script.source, script.name, script.takes_run_id) == (stripped, "s", True)
    assert script.sha == sha1(stripped.encode(), usedforsecurity=False).hexdigest()
    assert script.source.count("\n") == source.count("\n")


# -- calls -------------------------------------------------------------------------------------------------------------

KEYS = st.lists(st.binary(max_size=20), max_size=4)
ARGUMENTS = st.lists(ARGUMENT, max_size=4)


@given(KEYS, ARGUMENTS)
def test_a_call_is_packed_as_evalsha_with_the_number_of_keys(
    keys: list[bytes], arguments: list[bytes | str | int]
) -> None:
    script = Script("s", "return 1")
    call = Call(script, keys, arguments)
    assert call.payload(RUN_ID) == packed_by_redis_py("EVALSHA", script.sha, len(keys), *keys, *arguments)
    assert call.size >= len(call.payload(RUN_ID))


@pytest.mark.parametrize("first", ["#!lua flags=no-writes", "#!lua flags=no-writes,allow-stale"])
def test_a_script_that_only_reads_is_called_as_such(first: str) -> None:
    """A user with the right to read the keys may call it."""
    script = Script("s", f"{first}\nreturn 1")
    assert Call(script, [b"k"], [b"a"]).payload(RUN_ID) == packed_by_redis_py("EVALSHA_RO", script.sha, 1, b"k", b"a")
    assert script.without_shebang().command == "EVALSHA"  # fakeredis knows no other


@given(KEYS, ARGUMENTS, st.sampled_from([RUN_ID, b"?"]))
def test_the_run_id_is_the_first_argument_of_a_script_that_takes_it(
    keys: list[bytes], arguments: list[bytes | str | int], run_id: bytes
) -> None:
    script = Script("s", "return 1", takes_run_id=True)
    call = Call(script, keys, arguments)
    assert call.payload(run_id) == packed_by_redis_py("EVALSHA", script.sha, len(keys), *keys, run_id, *arguments)
    assert call.size >= len(call.payload(run_id))


def test_a_payload_is_frozen_when_the_call_is_made() -> None:
    keys, arguments, buffer = [b"k"], [b"a"], bytearray(b"b")
    script = Script("s", "return 1", takes_run_id=True)
    call = Call(script, keys, [*arguments, buffer])  # type: ignore[list-item]  # still accepted
    before = call.payload(RUN_ID)
    keys.append(b"other")
    arguments.clear()
    buffer[:] = b"x"
    assert call.payload(RUN_ID) == before
    assert call.payload(b"?") != before  # only the run id of the server differs


def test_the_repr_of_a_command_shows_its_name_and_never_its_arguments() -> None:
    command = Command(b"AUTH", b"secret")
    assert command.payload(RUN_ID) == packed_by_redis_py("AUTH", "secret")
    assert str(command) == "command AUTH"
    assert str(Command("PING")) == "command PING"
    assert str(Call(Script("send", "return 1"), [], [])) == "script send"
