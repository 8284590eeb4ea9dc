"""The ways in which a call can be malformed: in its own arguments, or in the common ones. Each must be refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sbredis.engine import NEVER
from sbredis.transport import Argument
from tests.engine.malformed import malformed, not_numbers

Arguments = tuple[Argument, ...]
Breakage = Callable[[Arguments], Arguments]

WITHOUT_LANE = (
    *("count", "get_state", "list_sessions", "list_sessions_since", "peek", "ripe"),
    *("accept_next", "receive"),
)
"""Operations whose calls must have no lane."""

VERSION, LANE, NUMBER, NOW, OWN = range(1, 6)
"""The indexes of the common arguments after the run id and the incarnation."""


def _put(place: int, value: Argument) -> Breakage:
    return lambda given: (*given[:place], value, *given[place + 1 :])


def _own(own: Arguments) -> Breakage:
    return lambda given: (*given[:OWN], *own)


def _in_a_lane(given: Arguments) -> Arguments:
    return (*given[:LANE], "fresh", "1", *given[NOW:])


def script_of(operation: str) -> str:
    """Return the name of an operation's script, which is mostly the name of the operation."""
    return _SCRIPTS.get(operation, operation)


_SCRIPTS = {"receive": "grant", "accept_next": "grant", "list_sessions_since": "list_sessions"}


TRANSACTED = ("abandon", "complete", "dead_letter", "defer", "publish", "send", "set_state")
"""The operations that can be part of a transaction."""


def _malformed(operation: str) -> list[Arguments]:
    if operation != "transact":
        return [one.own for one in malformed(script_of(operation))]
    good = (1, "send", 2, "", b"m")
    places: list[Arguments] = [("", place, *good[1:]) for place in not_numbers(1, 1)]
    sizes: list[Arguments] = [("", *good[:2], size, *good[3:]) for size in not_numbers(1, 2)]
    parts = [(name, one.own) for name in TRANSACTED for one in malformed(name)]
    wrapped: list[Arguments] = [("", 1, name, len(own), *own) for name, own in parts]
    return [("",), ("", 1, "cancel", *good[2:]), ("second", *good), ("", *good * 101), *places, *sizes, *wrapped[::5]]


@cache
def breakages(operation: str) -> list[Breakage]:
    """Return the changes that make a well-formed call of this operation malformed."""
    own = [_own(one) for one in _malformed(operation)]
    own += [_in_a_lane] if operation in WITHOUT_LANE else []
    versions = [_put(VERSION, value) for value in not_numbers(1, 999_999_999_999_999)]
    if operation == "destroy":
        return own  # destroy accepts any version
    if operation == "configure":
        return own + versions
    numbers = [_put(NUMBER, value) for value in not_numbers(0, 999_999_999_999_999)]
    times = [_put(NOW, value) for value in not_numbers(0, NEVER - 1)]
    return own + versions + numbers + times
