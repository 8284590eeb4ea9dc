"""Malformed arguments: for each script a set of well-formed arguments, and every way to make one of them wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sbredis.engine import MAXIMUM_CALL_MESSAGES, NEVER, PartitionSettings
from sbredis.engine._settings import SETTINGS
from sbredis.transport import Argument
from tests.engine.terms import BAND_WIDTH

__all__ = ["NOT_NAMES", "OTHER_TOKEN", "SETTING", "TOKEN", "WELL_FORMED", "Malformed", "malformed", "not_numbers"]

TOKEN, OTHER_TOKEN, STAMP = "aaaaaaaaAAB", "bbbbbbbbbbb", "aaaaaaaaaaaa"

SETTING = {setting.stored: place for place, setting in enumerate(SETTINGS.values(), 4)}
"""The index of each setting among the arguments of `configure`."""

_GRANT = "r sb:bench:{abc}:e:push:c 1 ? aaaaaaaa 0 0 0 0 1 0 1 1000 b   "
"""A grant: receiver, channel, number, run, prefix, seen, messages, bytes, begun, hands, callers, limit, size limit,
flags, retired prefixes, source."""
_LONG = "1" + "0" * 15
"""A number with more digits than those of a grant may have."""

WELL_FORMED: dict[str, tuple[Argument, ...]] = {
    "accept_session": ("=t", OTHER_TOKEN),
    "bury_session": ("=s", TOKEN, 500, b""),
    "get_state": ("=s", TOKEN),
    "list_sessions": (10, "", ""),
    "release_session": ("=s", TOKEN),
    "renew_session": ("=s", TOKEN),
    "ripe": (10, 1000),
    "settlements": (0, 10),
    "set_state": ("=s", TOKEN, "1", b"state"),
    "abandon": ("1", TOKEN, 1, "1", "", 0),
    "cancel": ("1",),
    "close": (1000, 2),
    "complete": (TOKEN, 1, "1"),
    "configure": (
        "0",
        "sb:bench:{abc}:wake:due",
        STAMP,
        "0",
        *PartitionSettings(clock="test", lock_duration=30_000, max_delivery_count=3).arguments(),
    ),
    "count": (),
    "inspect": (),
    "dead_letter": (TOKEN, 1, "1", ""),
    "defer": (TOKEN, 1, "1", ""),
    "destroy": (500,),
    "due": (),
    "forget_source": (STAMP, "q:birth"),
    "freeze": ("a:1", "holder", TOKEN, "", "1", ""),
    "grant": (_GRANT,),
    "outgoing": (10, 1000, 0, ""),
    "settle_batch": ("a:1", 1, TOKEN, "taken"),
    "sweep": (10, 1000, "a:1", "holder", TOKEN, 1),
    "take": ("q:birth", 1, "1", "", "send", 2, "", b"m"),
    "peek": ("", 0, 10, 1000, "alwfs", ""),
    "publish": ("r", "", "", "", "", b"m"),
    "plan": (1, "", "", "", 10, 1000, 0),
    "purge": ("", NEVER, 10, 0, ""),
    "read_pin": (),
    "read_range": (TOKEN, 0, 0, 10, 1000, 0),
    "receive_deferred": ("lock", TOKEN, "", 1, "1"),
    "redrive": ("d1", "", ""),
    "renew": (TOKEN, 1, "1"),
    "send": ("", b"m"),
    "touch": (),
    "unpin": (1,),
    "transact": ("", 1, 0, 1, "send", 2, "", b"m"),
    "watermarks": ("", "0"),
}
"""Well-formed arguments of each script, which come after the six arguments of every call.

A script accepts them, whatever it answers. For arguments that name a session, "s" must be locked under TOKEN.
"""

NEW_TOKEN: dict[str, int] = {"accept_session": 1, "receive_deferred": 1}
"""The index of an argument that is a token and must be unused."""

_NUMBERS: dict[str, dict[int, tuple[int, int]]] = {
    "abandon": {5: (0, NEVER)},
    "configure": {
        SETTING[setting.stored]: (setting.least, setting.most)
        for setting in SETTINGS.values()
        if setting.least is not None and setting.most is not None and not setting.optional
    },
    "bury_session": {2: (1, MAXIMUM_CALL_MESSAGES)},
    "close": {0: (1, NEVER), 1: (2, 3)},
    "destroy": {0: (0, MAXIMUM_CALL_MESSAGES)},
    "outgoing": {0: (1, MAXIMUM_CALL_MESSAGES), 1: (1, 1 << 30)},
    "settle_batch": {1: (1, 999_999_999_999_999)},
    "sweep": {0: (0, MAXIMUM_CALL_MESSAGES), 1: (1, 1 << 30), 5: (1, 999_999_999_999_999)},
    "take": {1: (1, 999_999_999_999_999), 5: (2, 2)},
    "list_sessions": {0: (1, MAXIMUM_CALL_MESSAGES)},
    "ripe": {0: (1, MAXIMUM_CALL_MESSAGES), 1: (1, 1 << 30)},
    "settlements": {0: (0, 999_999_999_999_999), 1: (1, MAXIMUM_CALL_MESSAGES)},
    "peek": {1: (0, BAND_WIDTH - 1), 2: (1, MAXIMUM_CALL_MESSAGES), 3: (1, 1 << 30)},
    "plan": {0: (1, 999_999_999_999_999), 4: (0, 999_999_999), 5: (1, 999_999_999_999_999)},
    "purge": {1: (0, NEVER), 2: (1, MAXIMUM_CALL_MESSAGES)},
    "read_range": {1: (0, BAND_WIDTH - 1), 2: (0, BAND_WIDTH - 1), 3: (1, MAXIMUM_CALL_MESSAGES), 4: (1, 1 << 30)},
    "receive_deferred": {3: (1, 1 << 30)},
    "unpin": {0: (1, 999_999_999_999_999)},
}
"""The arguments that are numbers, and the bounds of each."""

_NOT_DESTINATIONS: tuple[Argument, ...] = ("", "a", "a:", ":1", "a:x", "a b:1", "a:1:", "a" * 64 + ":1")
_NOT_ORIGINS: tuple[Argument, ...] = ("", "q", "q:", ":birth", "q b:birth", "q:b c", "q" * 128 + ":birth")

_CHOICES: dict[str, dict[int, tuple[Argument, ...]]] = {
    "abandon": {0: ("", "2", "01", "true", "-1")},
    "list_sessions": {
        1: ("s", "0"),
        2: ("x", "-1", "1.5", NEVER + 1, 5),
    },  # 5 is a valid time, but with a time the argument before must be a number
    "set_state": {2: ("", "2", "yes", "0")},  # with "0", which removes the state, the bytes must be empty
    "configure": {
        0: ("", "2", "yes"),
        1: ("", "elsewhere", "sb:bench:{other}:wake:due", "{abc}"),
        2: ("", "short", "a" * 13, "a b c d e f "),
        SETTING["window"]: ("0", "-1", "x", str(NEVER + 1)),
        **{
            SETTING[setting.stored]: (
                *("", "2", "-", "Deleting"),
                *(wrong for word in setting.words for wrong in (f"{word} ", word.swapcase())),
            )
            for setting in SETTINGS.values()
            if setting.least is None
        },
    },
    "forget_source": {1: _NOT_ORIGINS},
    "freeze": {0: _NOT_DESTINATIONS, 1: ("", "a b", "\u00e9", "x" * 65), 4: ("", "0", "x1", "1 2", "9" * 17)},
    "outgoing": {2: ("", "x", "-1", "1.5", "9" * 17), 3: _NOT_DESTINATIONS[1:]},
    "settle_batch": {0: _NOT_DESTINATIONS, 3: ("", "Taken", "again", "refused", "over")},
    "sweep": {2: _NOT_DESTINATIONS, 3: ("", "a b", "\u00e9", "x" * 65), 4: ("",)},
    "take": {
        0: _NOT_ORIGINS,
        2: ("", "0", "x", "1-", "2-1", "1-1001", "1,,2", "1,", "1 2", "1-500,2001-2501"),
        3: ("short", "a" * 13),
        4: ("", "Send", "peek", "publish"),
    },
    "peek": {0: ("x", "D", "T", "dd", "tt", "0"), 4: ("", "z", "alz", "A", "a,l", " ")},
    "plan": {1: (TOKEN, "a b"), 2: ("1", "x"), 3: ("1", "x"), 6: ("", "2", "yes", "-1")},
    "read_range": {0: ("", "a b"), 5: ("", "2", "yes", "-1")},
    "purge": {0: ("x", "D", "T", "dd", "tt", "0"), 3: ("", "x", "-1", "1.5", "1e3", "9" * 17)},
    "receive_deferred": {0: ("", "Lock", "peek", "deleted")},
    "watermarks": {0: ("x" * 513,), 1: ("", "x", "-1", "1.5", "1" * 21)},
}
"""The arguments that must be one of a few words, each with words that are not allowed."""

_TOKENS: dict[str, int] = NEW_TOKEN | dict.fromkeys(
    ("bury_session", "get_state", "release_session", "renew_session", "set_state"), 1
)
_WITHOUT_TOKEN = {"get_state"}
"""The scripts whose token is optional."""
_SESSIONS: dict[str, int] = {"list_sessions": 1, "peek": 5, "purge": 4, "receive_deferred": 2}
"""The index of an optional session name. In other scripts a session name is the first argument, and required."""
_NOT_SESSIONS: tuple[Argument, ...] = ("s", "-s", " =s", b"=\xff", b"=s\xffa", "=" + "s" * 513)
_NOT_TOKENS: tuple[Argument, ...] = ("", "a" * 10, "a" * 12, "a" * 10 + " ", "a" * 10 + "+", "é" * 5 + "a", bytes(11))
_NOT_STAMPS: tuple[Argument, ...] = ("", "a" * 11, "a" * 13, "a" * 11 + " ", "a" * 11 + "+", "é" * 6, b"\x00" * 12)
NOT_NAMES = (
    *("", "0", "01", "-1", "+1", "1.5", "d", "d0", "t0", "D1", "1d", " 1", "1\n", "1 2", "1,2", "x"),
    *("9" * 17, "d" + "9" * 16),
)


class Malformed(NamedTuple):
    """Arguments that replace well-formed arguments, and a description of the mistake."""

    what: str
    own: tuple[Argument, ...]


def not_numbers(least: int, most: int) -> Iterator[Argument]:
    """Yield values that are not a whole number between two bounds, including some that look like one."""
    yield from ("", "x", "-1", "+1", " 1", "1 ", "1.5", "1e2", "0x10", "1,000", "nan", "inf")
    yield from ("1" * 16, b"1\x00", "\uff11")
    if least:
        yield least - 1
    if most < 999_999_999_999_999:
        yield most + 1


def malformed(script: str) -> Iterator[Malformed]:
    """Yield every wrong set of a script's own arguments that can be made without a partition."""
    good = WELL_FORMED[script]

    def with_(place: int, value: Argument) -> Malformed:
        return Malformed(f"argument {place + 1} is {value!r}", (*good[:place], value, *good[place + 1 :]))

    for place, (least, most) in _NUMBERS.get(script, {}).items():
        yield from (with_(place, value) for value in not_numbers(least, most))
    for place, words in _CHOICES.get(script, {}).items():
        yield from (with_(place, word) for word in words)
    if script in _TOKENS:
        optional = script in _WITHOUT_TOKEN
        yield from (with_(_TOKENS[script], token) for token in _NOT_TOKENS if token or not optional)
    if script in _SESSIONS or good[:1] == ("=s",):
        place = _SESSIONS.get(script, 0)
        yield from (with_(place, session) for session in (*_NOT_SESSIONS, *(() if script in _SESSIONS else ("",))))
    if script in _STRIDES:
        yield from _groups(good[: -_STRIDES[script] - 2], _STRIDES[script], least=0 if script == "renew" else 1)
    if script in {"cancel", "receive_deferred"}:
        yield from _lists_of_names(good[:-1])
    if script == "redrive":
        yield from _redrives()
    yield from _grants(script)
    yield from _moves(script)
    if script == "plan":
        for position in ((TOKEN, "x", 1), (TOKEN, 1, "x"), (TOKEN, 1, BAND_WIDTH), ("", 1, 1), ("a b", 1, 1)):
            yield Malformed(f"the position {position}", (1, *position, *good[4:]))
    if script in {"publish", "send"}:
        yield from _messages(good[: len(good) - (1 if script == "send" else 2)], routed=script == "publish")


_CARRYING = {"abandon", "accept_session", "complete", "dead_letter", "defer", "release_session"}
"""The scripts whose arguments may end with grants."""


def _grants(script: str) -> Iterator[Malformed]:
    if script in _CARRYING:
        yield Malformed("a malformed grant at the end", (*WELL_FORMED[script], _grant({13: "z"})))
    if script != "grant":
        return
    wrong: dict[int, tuple[str, ...]] = {
        0: ("", "a\u00e9", "r" * 65),
        1: ("elsewhere", "sb:bench:{other}:e:push:c", ""),
        2: ("0", "-1", "x", "", _LONG),
        3: ("", "123456789"),
        4: ("", "aaaaaaa", "aaaaaaaaa", "aaaaaaa+"),
        5: ("-1", "x", _LONG),
        6: ("2", "x"),
        7: ("1001", "-1"),
        8: ("-1", "", _LONG),
        9: ("0", "100001"),
        10: ("2", "-1"),
        11: ("100001", "-1"),
        12: (str((1 << 30) + 1), "-1"),
        13: ("z", "B", "l", "y"),
        14: ("x", "aaaaaaaa", "aaaaaaaa:1", "aaaaaaaa:1:1,", "aaaaaaaa:1:x", f"aaaaaaaa:{_LONG}:1"),
        15: ("1:1", "x", "1"),
        16: ("x", "D", "dd", "nex", "nexts", "=s"),
    }
    for place, values in wrong.items():
        yield from (Malformed(f"word {place} is {value!r}", (_grant({place: value}),)) for value in values)
    for what, words in {
        "fewer callers than messages": {6: "2", 11: "2", 12: "9"},
        "counts that are too long": {6: _LONG, 10: _LONG, 11: _LONG},
        "bytes that are too many": {7: _LONG, 12: _LONG},
        "too many retired prefixes": {14: ",".join(f"aaaaa{number:03}:1:1" for number in range(33))},
        "leaving free sessions": {13: "l", 16: "next"},
        "yielding free sessions": {13: "y", 16: "next"},
        "too many first messages": {15: "1001:1", 16: "next"},
        "first messages without bytes": {15: "1", 16: "next"},
        "first messages of a held session": {0: TOKEN, 15: "1:1", 16: "=s"},
        "a session with a name that is too long": {0: TOKEN, 16: "=" + "s" * 513},
    }.items():
        yield Malformed(what, (_grant(words),))
    other_bytes = _grant({0: TOKEN, 16: "=s"}).encode() + b"\xff"
    yield Malformed("a session with a byte that no name has", (other_bytes,))
    yield Malformed("no grant", ())
    yield Malformed("no text", ("",))
    yield Malformed("a receiver twice", (_GRANT, _GRANT))
    yield Malformed("more grants than a call takes", tuple(f"r{number}{_GRANT[1:]}" for number in range(33)))


def _grant(changed: dict[int, str]) -> str:
    """Return a grant some of whose words are others."""
    return " ".join(changed.get(place, word) for place, word in enumerate(_GRANT.split(" ")))


def _moves(script: str) -> Iterator[Malformed]:
    if script == "forget_source":
        yield from (Malformed(f"the door {stamp!r}", (stamp, "q:birth")) for stamp in _NOT_STAMPS)
    many = tuple(argument for number in range(1, 1002) for argument in (str(number), ""))
    if script == "freeze":
        yield Malformed("no message", ("a:1", "holder", TOKEN, ""))
        yield Malformed("a message without its changes", ("a:1", "holder", TOKEN, "", "1"))
        yield Malformed("a message that comes twice", ("a:1", "holder", TOKEN, "", "1", "", "1", ""))
        yield Malformed("more messages than a call takes", ("a:1", "holder", TOKEN, "", *many))
        yield Malformed("a long purpose", ("a:1", "holder", TOKEN, "x" * 131_073, "1", ""))
    elif script == "settle_batch":
        for verdict, rest in (
            ("taken", ("1",)),
            ("back", ("1",)),
            ("again", ("1", "1")),
            ("again", ("x",)),
            ("refused", ("1",)),
            ("refused", ("1", "", "1", "")),
            ("refused", ("x", "")),
        ):
            yield Malformed(f"the verdict {verdict} and {rest}", ("a:1", 1, TOKEN, verdict, *rest))
    elif script == "take":
        good = WELL_FORMED["take"]
        yield Malformed("more names than messages", ("q:birth", 1, "1-2", "", "send", 2, "", b"m"))
        yield Malformed("more messages than names", ("q:birth", 1, "1", "", "send", 3, "", b"m", b"n"))
        yield Malformed("an unknown column", ("q:birth", 1, "1", "", "send", 3, "x", "1", b"m"))
        yield Malformed("no messages", ("q:birth", 1, "1", "", "send", 1, ""))
        yield Malformed("messages that are too large", ("q:birth", 1, "1", "", "toolarge", 2, "", b"m"))
        yield Malformed("a second batch without messages", (*good, "r:birth", 1, "1", "", "send"))
        yield Malformed("a second batch of no origin", (*good, "r", *good[1:]))
        yield Malformed("more batches than a call takes", good * 101)
    elif script == "sweep":
        good = WELL_FORMED["sweep"]
        yield Malformed("no number of a batch that was taken", (*good[:5], ""))
        yield Malformed("a second source without its keys", (*good, "second", 1, "a:1", "holder", "", ""))
        yield Malformed("a second source without a destination", (*good, "second", 1))


_STRIDES = {"abandon": 3, "complete": 1, "dead_letter": 2, "defer": 2, "renew": 1}
"""The number of arguments for each message of a group."""


def _groups(before: Sequence[Argument], stride: int, *, least: int) -> Iterator[Malformed]:
    one = ("1", "", 0)[:stride]

    def case(what: str, *rest: Argument) -> Malformed:
        return Malformed(what, (*before, *rest))

    yield case("no group")
    yield case("a token alone", TOKEN)
    if least:
        yield case("a group of nothing", TOKEN, 0)
    else:
        yield case("more leases than a call takes", *((TOKEN, 0) * 1001))
        yield case("a lease with a name", TOKEN, 0, *one)
        yield case("the key of a single message's lease, with a name", TOKEN + "1", 1, *one)
        for name in ("0", "01", "x1", "x", " ", "d", "d0", "1" * 17):
            yield case(f"the key of the lease of {name!r}", TOKEN + name, 0)
    yield case("a group that is shorter than it says", TOKEN, 2, *one)
    yield case("a group that is longer than it says", TOKEN, 1, *one, *one)
    yield case("a second group of nothing", TOKEN, 1, *one, OTHER_TOKEN)
    yield from (
        case(f"a count of {count!r}", TOKEN, count, *one) for count in not_numbers(least, MAXIMUM_CALL_MESSAGES)
    )
    yield from (case(f"the token {token!r}", token, 1, *one) for token in _NOT_TOKENS)
    many = [argument for number in range(1, 1002) for argument in (str(number), "", 0)[:stride]]
    yield case("more messages than a call takes", TOKEN, 1001, *many)
    half = 501 * stride
    yield case("too many in two groups", TOKEN, 501, *many[:half], OTHER_TOKEN, 500, *many[half:])
    if stride > 1:
        yield case("a message without its columns", TOKEN, 1, "1")


def _lists_of_names(before: Sequence[Argument]) -> Iterator[Malformed]:
    yield Malformed("no name", tuple(before))
    yield Malformed("a name that comes twice", (*before, "1", "2", "1"))
    yield Malformed("more names than a call takes", (*before, *map(str, range(1, 1002))))
    yield from (Malformed(f"the name {name!r}", (*before, "1", name)) for name in NOT_NAMES)


def _redrives() -> Iterator[Malformed]:
    yield Malformed("a message without its columns", ("d1", ""))
    yield Malformed("a name that comes twice", ("d1", "", "", "d2", "", "", "d1", "", ""))
    many = [argument for number in range(1, 1002) for argument in (f"d{number}", "", "")]
    yield Malformed("more messages than a call takes", tuple(many))
    yield Malformed("messages of both dead-letter queues", ("d1", "", "", "t2", "", b"changes"))
    yield Malformed("a transfer without a destination", ("t1", "", ""))
    names = {*NOT_NAMES, "1"}
    yield from (Malformed(f"the name {name!r}", ("d1", "", "", name, "", "")) for name in sorted(names))
    times = (value for value in not_numbers(0, NEVER) if value != "")
    yield from (Malformed(f"the time to live {time!r}", ("d1", time, "")) for time in times)


def _messages(before: Sequence[Argument], *, routed: bool) -> Iterator[Malformed]:
    prefix, route, targets = ("r", ("",), tuple(before[1:])) if routed else ("", (), ())

    def case(what: str, columns: str, *messages: Argument) -> Malformed:
        return Malformed(what, (prefix + columns, *targets, *messages))

    yield case("no message", "")
    yield case("a column twice", "tt", *route, 1, 1, b"m")
    yield from (case(f"the column {letter!r}", letter, *route, 1, b"m") for letter in ("x", "T", " ", "1"))
    yield case("a message without its columns", "tl", *route, 1, b"m")
    yield case("more messages than a call takes", "", *((*route, b"m") * 1001))
    yield case("more bytes than a call takes", "", *((*route, b"m" * 1_000_000) * 5))
    bounds = {"t": (0, NEVER), "l": (0, 7), "d": (0, NEVER - 1)} | ({"o": (1, 999_999_999_999_999)} if routed else {})
    for letter, (least, most) in bounds.items():
        for value in not_numbers(least, most):
            if value != "":
                yield case(f"{letter} is {value!r}", letter, *route, "", b"m", *route, value, b"m")
    if routed:
        routes = ("1", "0", "-1", "x", "1 1", "1.5", "1a", "1e0", "a1", "1x3", "1a1e1")
        yield Malformed("no column of routes", ("", "", "", "", b"m"))
        yield Malformed("more incarnations than targets", ("r", "one", "", "", "", b"m"))
        yield from (Malformed(f"the route {r!r}", ("r", "", "", "", r, b"m")) for r in routes)
        yield from (
            Malformed(f"the bounds {bounds!r}", ("r", "", "", bounds, "", b"m")) for bounds in ("x", "a b:", "a:b:")
        )
        yield Malformed("changes of no copy", ("rc", "", "", "", "", b"c", b"m"))
        yield from (
            Malformed(f"the fence {fence!r}", ("r", "", fence, "", "", b"m"))
            for fence in not_numbers(1, 999_999_999_999_999)
            if fence != ""
        )
        yield Malformed("a session that cannot be one", (*before, "", b"\x01\x02\x02s\xff\x00"))
        yield Malformed("a session that is too long", (*before, "", b"\x01\x02\x81\x04" + b"s" * 513 + b"\x00"))
