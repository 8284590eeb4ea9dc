"""The Python parser reads the same replies as hiredis, wherever the network splits them."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.transport._resp import ProtocolError, PythonParser, ReplyError, ReplyLimits, reply_parser

Encoded = tuple[bytes, Any]
"""A reply as bytes, and as a parsed value."""

DROPPED = object()
WORDS = st.text("abc :$*XÄ", max_size=12)


def string(data: bytes) -> Encoded:
    return b"$%d\r\n%b\r\n" % (len(data), data), data


def error(text: str) -> Encoded:
    return f"-{text}\r\n".encode(), ReplyError(text)


def double(number: float) -> Encoded:
    return b",%b\r\n" % repr(number).encode(), number


def verbatim(text: str) -> Encoded:
    return b"=%d\r\ntxt:%b\r\n" % (len(text.encode()) + 4, text.encode()), text.encode()


LEAVES: st.SearchStrategy[Encoded] = st.one_of(
    st.binary(max_size=40).map(string),
    WORDS.map(lambda text: (f"+{text}\r\n".encode(), text.encode())),
    WORDS.map(error),
    WORDS.map(verbatim),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: (b":%d\r\n" % number, number)),
    st.floats(allow_nan=False).map(double),
    st.booleans().map(lambda true: (b"#t\r\n" if true else b"#f\r\n", true)),
    st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"_\r\n"]).map(lambda data: (data, None)),
)
KEYS: st.SearchStrategy[Encoded] = st.one_of(
    st.binary(max_size=8).map(string), st.integers(0, 99).map(lambda n: (b":%d\r\n" % n, n))
)


def aggregate(kind: bytes) -> Callable[[list[Encoded]], Encoded]:
    def encode(items: list[Encoded]) -> Encoded:
        return b"%b%d\r\n" % (kind, len(items)) + b"".join(data for data, _ in items), [value for _, value in items]

    return encode


def mapping(pairs: list[tuple[Encoded, Encoded]]) -> Encoded:
    data = b"%%%d\r\n" % len(pairs) + b"".join(key + value for (key, _), (value, _) in pairs)
    return data, {key: value for (_, key), (_, value) in pairs}


REPLIES: st.SearchStrategy[Encoded] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        *(st.lists(inner, max_size=4).map(aggregate(kind)) for kind in (b"*", b"~")),
        st.lists(st.tuples(KEYS, inner), max_size=3, unique_by=lambda pair: pair[0]).map(mapping),
    ),
    max_leaves=12,
)


PUSHES: st.SearchStrategy[Encoded] = (
    st.lists(REPLIES, max_size=3).map(aggregate(b">")).map(lambda push: (push[0], DROPPED))
)
"""Messages that a server pushes. They answer no call, so the parser must not return them as a reply."""


def comparable(value: Any) -> Any:
    """Return a value for comparison: errors are equal if their texts are equal, and True differs from 1."""
    if isinstance(value, ReplyError):
        return "error", value.code, value.detail
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return [(key, comparable(item)) for key, item in value.items()]
    return type(value), value


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def read(parse: Callable[[bytes], list[Any]], data: bytes, cuts: list[int]) -> list[Any]:
    return [comparable(reply) for piece in pieces(data, cuts) for reply in parse(piece)]


@given(st.lists(REPLIES | PUSHES, max_size=6), st.lists(st.integers(0), max_size=8))
def test_the_parser_agrees_with_hiredis_for_any_split(replies: list[Encoded], cuts: list[int]) -> None:
    data = b"".join(encoded for encoded, _ in replies)
    expected = [comparable(value) for _, value in replies if value is not DROPPED]
    assert read(PythonParser().feed, data, cuts) == expected
    assert read(reply_parser(), data, cuts) == expected


@given(st.lists(REPLIES, max_size=3))
def test_the_parser_reads_replies_that_arrive_byte_by_byte(replies: list[Encoded]) -> None:
    data = b"".join(encoded for encoded, _ in replies)
    assert read(PythonParser().feed, data, list(range(len(data)))) == [comparable(value) for _, value in replies]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"!12\r\nOOM no room.\r\n", ReplyError("OOM no room.")),
        (b"(3492890328409238509324850943850943825024385\r\n", 3492890328409238509324850943850943825024385),
        (b",inf\r\n", math.inf),
        (b",-inf\r\n", -math.inf),
        (b",1e3\r\n", 1000.0),
        (b"*0\r\n", []),
        (b"~0\r\n", []),
        (b"%0\r\n", {}),
        (b"*2\r\n*0\r\n*1\r\n%0\r\n", [[], [{}]]),
        (b"*1\r\n" * 50 + b"*0\r\n", eval("[" * 51 + "]" * 51)),  # noqa: S307  # brackets
        (b"-\r\n", ReplyError("")),
        (b"-\xff x\r\n", ReplyError("\ufffd x")),
    ],
)
def test_the_parser_reads_rare_types(data: bytes, value: Any) -> None:
    assert read(PythonParser().feed, data, []) == [comparable(value)]


def test_nan_is_read_as_nan() -> None:
    (number,) = PythonParser().feed(b",nan\r\n")
    assert math.isnan(number)


GARBAGE = [
    b"HTTP/1.1 400 Bad Request", b"\r\n", b"\x00", b"\x16\x03\x01\x00", b":\r\n", b":x\r\n", b":1.5\r\n",
    b"$x\r\n", b"$\r\n", b"*x\r\n", b"%x\r\n", b"#x\r\n", b",x\r\n", b"(x\r\n", b"%1\r\n*0\r\n:1\r\n", b"*1\r\n?\r\n",
    b":" + b"9" * 5000 + b"\r\n",
]  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: repr(data[:12]))
@pytest.mark.parametrize("parser", [lambda: PythonParser().feed, reply_parser], ids=["python", "hiredis"])
def test_bytes_of_another_protocol_are_detected_at_once(
    parser: Callable[[], Callable[[bytes], list[Any]]], data: bytes
) -> None:
    with pytest.raises(ProtocolError):
        parser()(data)


@pytest.mark.parametrize("parser", [lambda: PythonParser().feed, reply_parser], ids=["python", "hiredis"])
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0), max_size=4))
def test_any_bytes_become_replies_or_a_protocol_error(
    parser: Callable[[], Callable[[bytes], list[Any]]], data: bytes, cuts: list[int]
) -> None:
    try:
        read(parser(), data, cuts)
    except ProtocolError:
        return


def steps(work: Callable[[], object]) -> int:
    """Return the number of Python lines that some work executes. This number does not depend on the load of the
    machine.
    """
    count = 0

    def tick(*_: object) -> Any:
        nonlocal count
        count += 1
        return tick

    before = sys.gettrace()
    sys.settrace(tick)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("count", [100, 1000])
def test_the_pieces_of_a_long_string_are_joined_only_once(count: int) -> None:
    """The work for each piece stays the same, however many pieces came before it."""
    parser = PythonParser()
    piece = b"x" * 1000
    assert parser.feed(b"*1\r\n$%d\r\n" % (count * 1000)) == []
    first = steps(lambda: parser.feed(piece))
    for _ in range(count - 2):
        parser.feed(piece)
    assert len(parser._rest) < 100  # a new piece does not copy the earlier ones
    last = steps(lambda: parser.feed(piece))
    assert last <= first
    assert parser.feed(b"\r\n") == [[b"x" * count * 1000]]


def test_a_long_list_in_many_pieces_is_parsed_only_once() -> None:
    parser = PythonParser()
    parser.feed(b"*10000\r\n")
    first = steps(lambda: parser.feed(b":1\r\n:2\r\n"))
    for _ in range(4997):
        parser.feed(b":1\r\n:2\r\n")
    assert steps(lambda: parser.feed(b":1\r\n:2\r\n")) <= first
    assert parser.feed(b":1\r\n:2\r\n") == [[1, 2] * 5000]


# -- limits ------------------------------------------------------------------------------------------------------------

LIMITS = ReplyLimits(bytes=4000, small=2000)
PARSERS = pytest.mark.parametrize("parser", [lambda: PythonParser(LIMITS).feed, lambda: reply_parser(LIMITS)])
LIKE_LIST = st.sampled_from([b"\r\n*9999999", b"\r\n%12", b"\r\n*999999\r", b"\r\n", b"*1000000\r\n", b"x", b">"])
LIKE_LISTS = st.lists(LIKE_LIST, max_size=8)


@given(st.lists(LIKE_LISTS.map(b"".join), min_size=1, max_size=4), st.lists(st.integers(0), max_size=12))
def test_a_string_may_look_like_a_long_list(texts: list[bytes], cuts: list[int]) -> None:
    """However the network splits it."""
    data = b"+OK\r\n*%d\r\n" % len(texts) + b"".join(string(text)[0] for text in texts) + b":5\r\n"
    assert read(reply_parser(), data, cuts) == [comparable(each) for each in (b"OK", texts, 5)]


ANNOUNCED = [
    b"*1000000\r\n",
    b"%1000000\r\n",
    b"~99999999\r\n",
    b">999999999\r\n",
    b"*3\r\n:1\r\n*1000000\r\n",
    b"*-2\r\n",
    b"*2678\r\n" * 500,
    b"|1\r\n+a\r\n+b\r\n:1\r\n",
    b"*600000\r\n:1\r\n*399999\r\n:1\r\n*10\r\n",
    b"%499990\r\n:1\r\n:1\r\n:1\r\n%10\r\n",
]


@PARSERS
@pytest.mark.parametrize("data", ANNOUNCED)
@given(cuts=st.lists(st.integers(0), max_size=4))
def test_a_reply_that_announces_too_many_items_is_refused_before_they_come(
    parser: Callable[[], Callable[[bytes], list[Any]]], data: bytes, cuts: list[int]
) -> None:
    with pytest.raises(ProtocolError):
        read(parser(), b"+OK\r\n" + data, cuts)


@PARSERS
def test_the_announced_items_of_each_reply_are_counted_anew(parser: Callable[[], Callable[[bytes], list[Any]]]) -> None:
    parse = parser()
    for _ in range(3):
        assert parse(b"*2\r\n*-1\r\n") == []
        assert parse(b"*90\r\n" + b":1\r\n" * 90) == [[None, [1] * 90]]
    assert parse(b"*999999\r\n") == []
    with pytest.raises(ProtocolError):
        parse(b"*10\r\n")


def test_a_list_behind_a_string_without_its_end_is_refused_if_memory_is_too_small() -> None:
    """hiredis does not look at the end of a string, so no rule about lines finds that list."""
    program = """
import resource, sys
from sbredis.transport._resp import ProtocolError, reply_parser
parse = reply_parser()
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    parse(b"*2\\r\\n$1\\r\\nx\\r\\x0e*4294967200\\r\\n")
except ProtocolError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "not a reply: it has more than 999999 items\n"


@PARSERS
@pytest.mark.parametrize(
    "pieces",
    [
        [b"$100000\r\n", *[b"x" * 500] * 20],
        [b"*1000\r\n", *[b"*9\r\n" + b"*0\r\n" * 9] * 200],
        [b"+", *[b"x" * 5000] * 20],
        [b"*1000\r\n", *[b"$900\r\n" + b"x" * 900 + b"\r\n"] * 20],
    ],
    ids=["string", "items", "line", "strings"],
)
def test_a_reply_that_is_too_large_is_refused_when_it_comes(
    parser: Callable[[], Callable[[bytes], list[Any]]], pieces: list[bytes]
) -> None:
    parse = parser()
    with pytest.raises(ProtocolError):
        list(map(parse, pieces))


def test_replies_within_the_limits_follow_each_other() -> None:
    parse = reply_parser(LIMITS)
    for _ in range(20):
        assert parse(b"$3000\r\n" + b"x" * 2000) == []
        assert parse(b"x" * 1000 + b"\r\n*1\r\n:1") == [b"x" * 3000]
        assert parse(b"\r\n") == [[1]]
