"""Damage to valid inputs: to bytes and texts with their structure in mind, and to the values of replies. Pure.

An input is bytes, a text, or a value of a reply: a list of such values, a whole number, a truth value or ``None``. The
damage depends on the given generator alone, so a seed gives the same inputs in each run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

__all__ = ["damaged", "size_of"]

_LARGEST = 1 << 16
"""The largest size of most inputs, in bytes."""
_NUMBERS = (
    *(b"0", b"-1", b"-3", b"1", b"00", b"-0", b"+1", b"1_0", b" 1", b"1e9", b"1e999999999", b"1.5", b"NaN", b"inf"),
    *(b"255", b"256", b"65536", b"2147483648", b"4294967296", b"9223372036854775808", b"18446744073709551616"),
    *(b"-9223372036854775809", b"99999999", b"1-99999999", b"4-3", b"1-", b"-", b"9" * 25, b"9" * 5000),
)
_BYTES = (
    *(b"\x00", b"\xff", b"\x7f", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff\xff\xff\xff\x7f"),
    *(b"\x80\x80\x80\x80\x80\x80\x00", b"\r\n", b" ", b",", b":", b"-", b"=", b'"', b"\\u0000", b"\\ud800", b"null"),
    *(b"[", b"]", b"{", b"}", b"*", b"$", b"'", b"{}", b"[[]]", b"d", b"t", b"\xd9\xa3", b"\xc2\xb2", b"%", b"@"),
)
_NUMBER = re.compile(rb"-?[0-9]+")
_WHOLE = (0, -1, 1, 2, 3, 255, -(1 << 63), (1 << 63) - 1, 1 << 53, 10**15)
Value = Any


def size_of(value: Value) -> int:
    """Return about how many bytes an input has on its way."""
    if isinstance(value, (bytes, str)):
        return len(value) + 8
    size, lists = 8, [value] if isinstance(value, list) else []
    for each in lists:  # grows while it is read
        for inner in each:
            kind = type(inner)
            size += len(inner) + 8 if kind is bytes or kind is str else 8
            if kind is list:
                lists.append(inner)
    return size


def damaged(value: Value, others: Sequence[Value], random: Random) -> Value:
    """Return a valid input with one to six kinds of damage. ``others`` are other valid inputs."""
    for left in reversed(range(random.choice((1, 1, 1, 2, 3, 6)))):
        value = _damaged(value, others, random)
        if left and size_of(value) > 4 * _LARGEST:
            break
    return value


def _damaged(value: Value, others: Sequence[Value], random: Random) -> Value:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        more = [each.encode() for each in others if isinstance(each, str)] or [data]
        return _bytes(data, more, random).decode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return _bytes(value, [each for each in others if isinstance(each, bytes)] or [value], random)
    if isinstance(value, list):
        return _list(value, others, random)
    return _replaced(value, random)


# -- bytes -------------------------------------------------------------------------------------------------------------


def _place(data: bytes, random: Random) -> int:
    return random.randrange(len(data) + 1)


def _part(data: bytes, random: Random) -> tuple[int, int]:
    begin, end = sorted((_place(data, random), _place(data, random)))
    return begin, min(end, begin + random.choice((1, 4, 32, 4096)))


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return b"\x01"
    at = random.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


def _set(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + bytes((random.choice((0, 1, 2, 12, 13, 127, 128, 255, random.randrange(256))),)) + data[at + 1 :]


def _insert(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + random.choice(_BYTES) + data[at:]


def _delete(data: bytes, random: Random) -> bytes:
    begin, end = _part(data, random)
    return data[:begin] + data[end:]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: _place(data, random)]


def _repeat(data: bytes, random: Random) -> bytes:
    begin, end = _part(data, random)
    times = min(random.choice((2, 3, 50, 20_000)), _LARGEST // max(1, end - begin))
    return data[:end] + data[begin:end] * times + data[end:]


def _number(data: bytes, random: Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _insert(data, random)
    one = random.choice(found)
    return data[: one.start()] + random.choice(_NUMBERS) + data[one.end() :]


def _length(data: bytes, random: Random) -> bytes:
    """Replace a byte by a length of several bytes, or by one that is a little wrong."""
    at = _place(data, random)
    if at < len(data) and random.random() < 0.5:
        return data[:at] + bytes(((data[at] + random.choice((-1, 1, 64))) % 256,)) + data[at + 1 :]
    return data[:at] + random.choice((b"\xff\xff\xff\x7f", b"\x80\x01", b"\xff\x7f", b"\x7f")) + data[at + 1 :]


def _nest(data: bytes, random: Random) -> bytes:
    """Put a part of the data into itself again and again."""
    begin, end = _part(data, random)
    before, after = data[max(0, begin - random.randrange(1, 9)) : begin], data[end : end + random.randrange(0, 9)]
    depth = min(random.choice((2, 17, 70, 2000)), _LARGEST // max(1, len(before) + len(after)))
    return data[:begin] + before * depth + data[begin:end] + after * depth + data[end:]


_DAMAGE: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flip, _flip, _set, _set, _insert, _insert, _delete, _cut, _repeat, _number, _number, _number, _length, _length),
    _nest,
)


def _bytes(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    if random.random() < 0.06:
        other = random.choice(others)
        return data[: _place(data, random)] + other[_place(other, random) :]
    return random.choice(_DAMAGE)(data, random)


# -- values of replies -------------------------------------------------------------------------------------------------


def _replaced(value: Value, random: Random) -> Value:
    """Return a value in place of a number, a truth value or ``None``."""
    if isinstance(value, int) and random.random() < 0.5:
        return value + random.choice((-1, 1, 2, 100_000))
    return random.choice((*_WHOLE, None, True, b"", b"1", b"-1", [], [b"1"], 1.5, {b"a": 1}, b"\xff"))


def _list(value: list[Value], others: Sequence[Value], random: Random) -> Value:
    if not value or random.random() < 0.03:
        return random.choice((None, 0, b"", [value], [None], [b"x"] * 3))
    at = random.randrange(len(value))
    chance = random.random()
    if chance < 0.75:  # most of the damage is further inside
        inner = [each[at] for each in others if isinstance(each, list) and at < len(each)]
        return [*value[:at], _damaged(value[at], inner or [value[at]], random), *value[at + 1 :]]
    if chance < 0.80:
        return value[:at] + value[at + 1 :]
    if chance < 0.85:
        return [*value[:at], *[value[at]] * random.choice((1, 2, 1000)), *value[at:]]
    if chance < 0.90:
        other = random.randrange(len(value))
        mixed = list(value)
        mixed[at], mixed[other] = mixed[other], mixed[at]
        return mixed
    if chance < 0.95:
        return [*value[:at], _replaced(value[at], random), *value[at + 1 :]]
    nested: Value = value[at]
    for _ in range(random.choice((1, 3, 40))):  # a parser of replies allows no more
        nested = [nested]
    return [*value[:at], nested, *value[at + 1 :]]
