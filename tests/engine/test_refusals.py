"""Every script that refuses a call returns a code and changes no byte; the tests cover every code.

The partition of these tests has messages in every state, and much due work.
So a script that does due work before it refuses a call fails a test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sbredis.engine import (
    NEVER,
    REFUSALS,
    Content,
    MalformedCallError,
    Outgoing,
    Partition,
    PartitionSettings,
    PartRefusedError,
    Request,
    SessionLock,
    advance,
    encode,
    once,
    perform,
    transact,
)
from sbredis.engine._scripts import load
from sbredis.engine._state import FIELD_LISTS
from sbredis.exceptions import Outcome, ScriptRefusedError, ServiceBusError
from sbredis.transport import Argument
from tests.engine.bench import SETTINGS, START, Bench, Everything
from tests.engine.contracts import COMMON_REFUSALS, OF_A_PARTITION, OF_EVERY_CALL, contract_of
from tests.engine.malformed import NEW_TOKEN, NOT_NAMES, SETTING, TOKEN, WELL_FORMED, malformed, not_numbers
from tests.engine.terms import State
from tests.offenders import Offenders, for_each
from tests.stored_settings import with_settings

VERSION = 2
KINDS: dict[str, PartitionSettings] = {
    "queue": SETTINGS,
    "sessions": replace(SETTINGS, sessions=True),
    "topic": replace(SETTINGS, topic=True),
    "reserved": replace(SETTINGS, reserved=True),
}
OF_SESSIONS = (
    *("accept_session", "bury_session", "get_state", "list_sessions", "release_session", "renew_session"),
    "set_state",
)


OF_READERS = ("plan", "read_pin", "read_range", "unpin")


def kind_of(script: str) -> str:
    """Return the kind of entity that a script is mainly used with."""
    if script in OF_READERS:
        return "reserved"
    return "sessions" if script in OF_SESSIONS else "topic" if script in {"publish", "ripe"} else "queue"


HELD = "ccccccccAAB"
"""The token of a valid lease."""


@dataclass(frozen=True)
class Call:
    """The arguments of a call: the common arguments except the run id, and the script's own arguments."""

    own: tuple[Argument, ...]
    incarnation: Argument = "first"
    version: Argument = VERSION
    lane: Argument = ""
    number: Argument = 0
    now: Argument = START + 100_000
    more_keys: tuple[bytes, ...] = ()

    def request(self, script: str, keys: tuple[bytes, ...]) -> Request[Any]:
        common = (self.incarnation, self.version, self.lane, self.number, self.now)
        return Request(load(script), keys + self.more_keys, (*common, *self.own), lambda reply: reply, repeatable=False)


@dataclass(frozen=True)
class Case:
    """A call that is refused with a code, because of its arguments or the state of the partition."""

    what: str
    code: str
    call: Call
    state: tuple[tuple[str, str], ...] = ()
    """Fields of the partition's state that get these values during the call."""
    store: tuple[tuple[str, str], ...] = ()
    partition_is_there: bool = True
    on: str = ""
    """The kind of entity, if it is not the main kind for the script."""


# -- the cases ---------------------------------------------------------------------------------------------------------


def common_cases(good: Call) -> Iterator[Case]:
    """Yield the cases that includes/calls/begin.lua refuses in every script."""
    yield Case("another incarnation", "GONE", replace(good, incarnation="second"))
    yield Case("no incarnation", "GONE", replace(good, incarnation=""))
    yield Case("a partition that is being destroyed", "GONE", good, state=(("status", "Deleting"),))
    yield Case("no partition", "GONE", good, partition_is_there=False)
    yield Case("another layout", "LAYOUT", good, state=(("layout", "3"),))
    yield Case(
        "another layout and another incarnation", "LAYOUT", replace(good, incarnation="second"), (("layout", "0"),)
    )
    yield Case("no time for a test clock", "BADCALL", replace(good, now=""))
    yield Case("a time for the server's clock", "BADCALL", good, state=(("clock", "server"),))
    for value in ("x", -1, "1.5", NEVER):
        yield Case(f"the time {value!r}", "BADCALL", replace(good, now=value))
    for value in ("", "x", -1, "1.5", 10**15):
        yield Case(f"the number {value!r}", "BADCALL", replace(good, number=value))
        yield Case(f"the version {value!r}", "BADCALL", replace(good, version=value))
    yield Case("the number 0 in a lane", "BADCALL", replace(good, lane="known"))
    yield Case("the version 0", "BADCALL", replace(good, version=0))
    for number in (1, 2):
        yield Case("an older call of a lane", "REPEATED", replace(good, lane="known", number=number))
    yield Case("the second call of a lane that is not known", "LANE", replace(good, lane="unknown", number=2))
    yield Case("older settings", "STALE", replace(good, version=VERSION - 1))
    yield Case("older settings in a lane", "STALE", replace(good, version=VERSION - 1, lane="known", number=4))
    yield Case("newer settings", "CONFIG", replace(good, version=VERSION + 1))


def own_cases(script: str, good: Call) -> Iterator[Case]:
    """Yield the cases that a script refuses for its own reasons."""
    for what, own in malformed(script):
        yield Case(what, "BADCALL", replace(good, own=own), on=_where_refused(script, good, own))
    if contract_of(script).fact("laneless").always:
        yield Case("a lane, where nothing is kept", "BADCALL", replace(good, lane="known", number=4))
    if script in NEW_TOKEN:
        own = (*good.own[: NEW_TOKEN[script]], HELD, *good.own[NEW_TOKEN[script] + 1 :])
        yield Case("a token that is in use", "BADCALL", replace(good, own=own))
    for status in _DISABLING.get(script, ()):
        yield Case(f"the status {status}", "DISABLED", good, state=(("status", status),))
    if script in {"publish", "send"}:
        yield from _cases_of_incoming(script, good)
    if script in OF_SESSIONS or "session" in contract_of(script).arguments:
        yield from _cases_of_sessions(script, good)
    special = {
        "configure": _cases_of_settings,
        "plan": _cases_of_plans,
        "publish": _cases_of_targets,
        "read_range": _cases_of_ranges,
        "receive_deferred": _cases_of_deferred,
        "transact": _cases_of_transactions,
        "unpin": _cases_of_fences,
    }
    if script in special:
        yield from special[script](good)
    if script == "take":
        own = ("q:birth", 1, "1", "", "publish", 6, "r", "second", "", "", "1", b"m")
        yield Case("a target that is gone", "TARGET", replace(good, own=own, more_keys=_TARGET), on="topic")
        yield Case("a target too many", "BADCALL", replace(good, more_keys=_TARGET))
    if script == "ripe":
        yield Case("what is no topic", "BADCALL", good, state=(("topic", "0"),))
    if script == "destroy":
        yield Case("another incarnation", "GONE", replace(good, incarnation="second"))
        yield Case("another layout", "LAYOUT", good, state=(("layout", "3"),))


TRANSACTED = ("abandon", "complete", "dead_letter", "defer", "publish", "send", "set_state")
"""The operations that can be part of a transaction."""


def _cases_of_transactions(_: Call) -> Iterator[Case]:
    """Yield the refusals of each operation, in a transaction of this operation alone, and those of the transaction."""

    def alone(script: str, own: tuple[Argument, ...], targets: int = 0) -> tuple[Argument, ...]:
        return ("", 1, targets, 1, script, len(own), *own)

    for script in TRANSACTED:
        for case in own_cases(script, Call(WELL_FORMED[script])):
            call = replace(case.call, own=alone(script, case.call.own, len(case.call.more_keys)))
            yield replace(case, what=f"{script}: {case.what}", call=call, on=case.on or kind_of(script))
    for script in ("abandon", "complete", "dead_letter", "defer"):
        yield Case(f"{script}: a lost lock", "UNLOCKED", Call(alone(script, WELL_FORMED[script])))
    yield Case("a key that is known", "KNOWN", Call(alone("once", (1000, "new", 1000, "known"))))
    yield Case("a watermark that has another value", "CHANGED", Call(alone("advance", ("known", "", "new"))))
    yield Case("a watermark that is not there", "CHANGED", Call(alone("advance", ("new", "old", "new"))))
    yield Case("a watermark too many", "FULL", Call(alone("advance", ("new", "", "new"))))
    for step, every in _MALFORMED_STEPS.items():
        yield from (Case(f"{step}: {wrong}", "BADCALL", Call(alone(step, wrong))) for wrong in every)
    yield Case("withdraw: a message that is not there", "ABSENT", Call(alone("withdraw", (TOKEN, "99", ""))))
    yield Case("a dead letter of a dead letter", "DEAD", Call(alone("dead_letter", (TOKEN, 1, "d1", ""))))
    good = alone("send", WELL_FORMED["send"])
    for what, own in (
        ("no transaction", ("",)),
        ("no operation", ("", 0, 0)),
        ("more keys of subscriptions than there are", ("", 1, 5, *good[3:])),
        (
            "an operation that cannot be part of a transaction",
            alone("receive_deferred", WELL_FORMED["receive_deferred"]),
        ),
        ("an operation without arguments", ("", 1, 0, 1, "send", 0)),
        ("an operation that is cut off", good[:-1]),
        ("no grant at the end", (*good, "a b")),
        ("nothing at the end", (*good, "")),
        ("101 operations", ("", 101, 0, *good[3:] * 101)),
        ("101 transactions", ("", *good[1:] * 101)),
        ("a participant without keys", ("second 1", *good[1:])),
        ("an incarnation without a version", ("second", *good[1:])),
        *((f"{count!r} operations", ("", count, *good[2:])) for count in not_numbers(1, 1)),
        *((f"{count!r} keys of subscriptions", ("", 1, count, *good[3:])) for count in not_numbers(0, 0)),
        *((f"the place {place!r}", ("", 1, 0, place, *good[4:])) for place in not_numbers(1, 1)),
        *((f"{count!r} arguments", (*good[:5], count, *good[6:])) for count in not_numbers(1, 2)),
    ):
        yield Case(what, "BADCALL", Call(own))
    same = Partition("bench", "abc", "e1", "first", 1, SETTINGS).keys
    yield Case("a participant twice", "BADCALL", Call((f"first {VERSION}", *good[1:]), more_keys=same))
    yield Case("a participant with older settings", "STALE", Call(("first 1", 1, 0, 2, *good[4:]), more_keys=same))
    yield Case("a participant too many", "BADCALL", Call((" ".join(["first 2"] * 8), *good[1:]), more_keys=same * 8))


_DESTINATION = "e the-e 9"
_TOO_MANY_TRANSFERS: tuple[Argument, ...] = ("", _DESTINATION, *[b"m"] * 1001)
_MALFORMED_STEPS: dict[str, tuple[tuple[Argument, ...], ...]] = {
    "once": (
        *(("", "new"), ("1",), ("1", ""), ("0", "new"), ("x", "new"), ("1", "new", "1"), ("1", "new", "1", "new")),
        ("1", "x" * 513),
        tuple(argument for number in range(101) for argument in ("1", f"key{number}")),
    ),
    "advance": (
        *(("known",), ("known", ""), ("known", "", ""), ("", "", "new"), ("new", "", "1", "")),
        *(("new", "", "\t"), ("new", "", "\n"), ("new", "", "x" * 129), ("x" * 513, "", "1")),
    ),
    "transfer": (
        *(("",), ("", _DESTINATION), ("", "", b"m"), ("", "x" * 65_537, b"m")),
        *(("i", _DESTINATION, "1", b"m"), ("t", _DESTINATION, "1", b"m"), ("ll", _DESTINATION, "1", "1", b"m")),
        *(("l", _DESTINATION, "8", b"m"), ("l", _DESTINATION, "1")),
        _TOO_MANY_TRANSFERS,
    ),
    "withdraw": ((), (TOKEN,), (TOKEN, "1"), (TOKEN, "x", ""), (TOKEN, "1", "", "1", "")),
}
"""Arguments of the steps that only a transaction has."""


def _where_refused(script: str, good: Call, own: tuple[Argument, ...]) -> str:
    """Return the kind of entity for a case: an entity without sessions would refuse a call that names a session."""
    at = contract_of(script).arguments.index("session") if "session" in contract_of(script).arguments else None
    return "sessions" if at is not None and len(own) > at and own[at] != good.own[at] else ""


def _cases_of_sessions(script: str, good: Call) -> Iterator[Case]:
    """Yield refusals for sessions: the entity or the message has no session, or the caller does not have the lock."""
    names = contract_of(script).arguments

    def put(**changed: Argument) -> Call:
        return replace(
            good,
            own=tuple(changed.get(name, own) for name, own in zip(names, good.own, strict=False))
            + good.own[len(names) :],
        )

    without = (("sessions", "0"),)
    if script in OF_SESSIONS:
        yield Case("an entity without sessions", "SESSIONS", good, state=without)
    else:
        yield Case("a session of an entity without sessions", "SESSIONS", put(session="=s"))
    if script == "receive_deferred":
        yield Case("no session", "SESSIONS", put(token="never_given"), on="sessions")
        most = replace(good, own=("lock", HELD, "=u", 1, *map(str, range(1, 1001))))
        yield Case("more than can be out", "HELD", most, on="sessions")
    if script == "accept_session":
        yield Case("messages that are forwarded", "FORWARDS", good, (("forwards", "1"),))
    elif "token" in names:
        yield Case("a token of nothing", "LOST", put(session="=s", token="nothing-led"), on="sessions")
        yield Case("the lock on another session", "LOST", put(session="=t", token=TOKEN), on="sessions")
        yield Case("a lock that has ended", "LOST", put(session="=over", token="lapsed_____"), on="sessions")
    if script == "set_state":
        yield Case("a state that is too large", "TOOLARGE", good, store=(("largest", "4"),))
        yield Case("a state for which there is no room", "QUOTA", good, store=(("quota", "0"),))


_DISABLING = {
    "accept_session": ("ReceiveDisabled", "Disabled"),
    "publish": ("SendDisabled", "Disabled"),
    "redrive": ("SendDisabled", "ReceiveDisabled", "Disabled"),
    "send": ("SendDisabled", "Disabled"),
    "receive_deferred": ("ReceiveDisabled", "Disabled"),
}


def _cases_of_deferred(good: Call) -> Iterator[Case]:
    yield Case("a reserved main side", "RESERVED", good, state=(("reserved", "1"),))


def _cases_of_fences(good: Call) -> Iterator[Case]:
    yield Case("a lower fence", "OVERTAKEN", good, state=(("pin", "2 1 0 5 5 0"),))
    yield Case("a partition that is not reserved", "BADCALL", good, state=(("reserved", "0"),))


def _cases_of_plans(good: Call) -> Iterator[Case]:
    """Yield positions that do not fit the third plan, which begins at 10 and ends at 20."""
    yield from _cases_of_fences(good)
    for position in (("other", 2, 10), (TOKEN, 4, 20), (TOKEN, 3, 21), (TOKEN, 3, 15), (TOKEN, 2, 9), (TOKEN, 3, 10)):
        own = (good.own[0], *position, *good.own[4:])
        yield Case(f"the position {position}", "LOSS", replace(good, own=own), (("pin", "1 3 10 20 20 0"),))
    own = (good.own[0], TOKEN, 3, 20, *good.own[4:])
    yield Case("a plan that is not ready", "LOSS", replace(good, own=own), (("pin", "1 3 10 15 20 0"),))


def _cases_of_ranges(good: Call) -> Iterator[Case]:
    for birth, after, upto in (("other", 10, 20), (TOKEN, 9, 20), (TOKEN, 10, 21)):
        own = (birth, after, upto, *good.own[3:5], 1)
        yield Case(
            f"a range that is not pinned: {own[:3]}", "LOSS", replace(good, own=own), (("pin", "1 3 10 20 20 0"),)
        )


def _cases_of_incoming(script: str, good: Call) -> Iterator[Case]:
    small, large = (b"m", b"m" * 101)
    two = (*good.own, "", large) if script == "publish" else (*good.own, large)
    yield Case("a message that is too large", "TOOLARGE", replace(good, own=two), store=(("largest", "100"),))
    yield Case("no room", "QUOTA", good, store=(("quota", "0"),))
    many = good.own + (("", small) if script == "publish" else (small,)) * 100
    yield Case(
        "less room than is needed", "QUOTA", replace(good, own=many), store=(("bytes", "950"), ("quota", "1000"))
    )
    yield Case("sending to a subscription", "BADCALL", good, state=(("shared", "1"),))
    if script == "send":
        yield Case("sending to a topic", "BADCALL", good, state=(("topic", "1"),))
        yield Case("a message without a session", "SESSIONS", replace(good, own=("", IN_SESSION, b"m")), on="sessions")
        for wrong in (b"\x01\x02\x02s\xff\x00", b"\x01\x02\x81\x04" + b"s" * 513 + b"\x00"):
            yield Case("a session that cannot be one", "BADCALL", replace(good, own=("", wrong)), on="sessions")
    else:
        yield Case("publishing to a queue", "BADCALL", good, state=(("topic", "0"),))


def _cases_of_targets(good: Call) -> Iterator[Case]:
    for what, incarnations in (
        ("of another incarnation", "second"),
        ("the second of which is another's", "first second"),
    ):
        targets = len(incarnations.split())
        yield Case(
            f"targets {what}",
            "TARGET",
            replace(good, own=("r", incarnations, "", "", "1", b"m"), more_keys=_TARGET * targets),
        )
    there = replace(good, own=("r", "first", "", "", "1", b"m"), more_keys=_TARGET)
    for route in ("2", "1 2", "0", "1a1", "1e1", "1a", "1x"):
        yield Case(f"the route {route}", "BADCALL", replace(there, own=("r", "first", "", "", route, b"m")))
    yield Case("changes that are longer", "BADCALL", replace(there, own=("rc", "first", "", "", "1a1", b"ab", b"m")))
    yield Case(
        "one that was not judged and is not scheduled",
        "BADCALL",
        replace(there, own=("rd", "first", "", "", "-", "", b"m")),
    )
    yield Case(
        "the same target twice",
        "BADCALL",
        replace(there, own=("r", "first first", "", "", "1", b"m"), more_keys=_TARGET * 2),
    )
    sessions = replace(there, own=("r", "first+", "", "", "1", b"m"), more_keys=(*_TARGET, *_TARGET[:3]))
    yield Case("a target that has no sessions", "BADCALL", sessions)
    yield Case(
        "somebody else's role", "FENCED", replace(good, own=("r", "", "8", "", "", b"m")), state=(("route_fence", "9"),)
    )
    yield Case("half a target", "BADCALL", replace(there, more_keys=_TARGET[:3]))
    yield Case("a target too many", "BADCALL", replace(there, more_keys=_TARGET * 2))


# The cases use keys of the partition itself as the keys of a target. They are refused like the keys of a real target.
_TARGET = Partition("bench", "abc", "e1", "first", 1, SETTINGS).target_keys()


def _cases_of_settings(good: Call) -> Iterator[Case]:
    yield Case("another incarnation", "GONE", replace(good, incarnation="second"))
    yield Case("no partition, and none to be made", "GONE", good, partition_is_there=False)
    yield Case("a partition that is being destroyed", "GONE", good, state=(("status", "Deleting"),))
    yield Case("another layout", "LAYOUT", good, state=(("layout", "3"),))
    yield Case("older settings", "STALE", replace(good, version=VERSION - 1))

    def configured(**changed: Argument) -> Call:
        own = list(good.own)
        for name, value in changed.items():
            own[SETTING[name]] = value
        return replace(good, own=tuple(own))

    for what in ({"clock": "server"}, {"window": 1000}, {"shared": 1}, {"sessions": 1}, {"topic": 1}):
        yield Case(f"other settings: {what}", "FIXED", configured(**what))
    for what in ({"shared": 0, "sessions": 1}, {"shared": 1, "sessions": 0}):
        yield Case("a topic that gives something out", "BADCALL", configured(**what, topic=1))
        yield Case("what cannot change", "FIXED", configured(**what))
    for what in ({"topic": 1}, {"sessions": 1}, {"forwards": 1}):
        yield Case("a reserved entity that gives nothing out", "BADCALL", configured(**what, reserved=1))
    for pin in ("1 3 10 10 20 0", "1 3 99 99 99 0"):
        state = (("reserved", "1"), ("pin", pin))
        yield Case("the end of a reservation with messages that are pinned or committed", "BADCALL", good, state=state)
    yield Case("a setting too few", "BADCALL", replace(good, own=good.own[:-1]))
    yield Case("a setting too many", "BADCALL", replace(good, own=(*good.own, 0)))
    yield Case("the end of duplicate detection", "FIXED", good, state=(("window", "1000"),))
    yield Case("no incarnation", "BADCALL", replace(good, incarnation=""))
    for version in not_numbers(1, 999_999_999_999_999):
        yield Case(f"the version {version!r}", "BADCALL", replace(good, version=version))


def cases_of(script: str) -> list[Case]:
    good = Call(WELL_FORMED[script])
    common = common_cases(good) if script in OF_EVERY_CALL else iter(())
    return [*common, *own_cases(script, good)]


# -- the tests ---------------------------------------------------------------------------------------------------------


IN_SESSION = encode(Content(b"m", session_id="s"))


@pytest.fixture
async def busy(bench: Bench) -> Bench:
    """A partition with messages in every state, much due work and a lane of three calls."""
    reserved = bench.partition.settings.reserved
    await bench.change(lock_duration=60_000, reserved=False)
    for _ in range(3):
        await bench.tell(bench.partition.due(bench.call_id("known")))
    if bench.partition.settings.topic:
        later = [Outgoing(b"%d" % number, due=START + 1000 * number) for number in range(1, 4)]
        await bench.tell(bench.partition.publish(bench.call_id(), later, [()] * 3, []))
        bench.now = START + 100_000
        return bench
    if bench.partition.settings.sessions:
        return await busy_with_sessions(bench)
    await bench.tell(transact(bench.call_id(), [once(bench.partition, {b"known": 1_000_000})]))
    await bench.tell(transact(bench.call_id(), [advance(bench.partition, b"known", None, "1")]))
    lasting = next(key for key in bench.partition.keys if key.endswith(b":lasting"))
    await bench.transport.command("HSET", lasting, "watermarks", 10_000, key=lasting)  # as if it kept as many as it may
    await bench.send(*(b"%d" % number for number in range(12)))
    deferred, delayed, dead, *_ = await bench.receive()
    await bench.defer(deferred)
    await bench.abandon(delayed, delay=1000)
    await bench.dead_letter(dead)
    await bench.send(b"brief", time_to_live=1000)
    await bench.send(b"scheduled", due=START + 1000)
    await bench.send(b"active")
    bench.later(50_000)
    await bench.tell(bench.receiving(HELD, 1))
    await bench.abandon((await bench.receive(1))[0], delay=20_000)
    bench.now = START + 100_000
    if reserved:
        await reserve(bench)
    return bench


async def reserve(bench: Bench) -> None:
    """Reserve the partition for the reader of the tests, without due work being done."""
    state = bench.partition.keys[0]
    settings = with_settings((await bench.whole())[state.decode()][1][b"settings"], {"reserved": "1"})
    fields = ("settings", settings, "birth", TOKEN, "pin", "1 3 0 0 0 0")
    await bench.transport.command("HSET", state, *fields, key=state)


async def busy_with_sessions(bench: Bench) -> Bench:
    """Lock two sessions under the tokens of the tests; a third lock has ended, and has not lapsed yet."""
    of = bench.partition

    async def accept(name: str, token: str) -> SessionLock:
        await bench.tell(of.accept_session(bench.call_id(), token, name))
        return SessionLock(name, token)

    for name in ("s", "s", "s", "over", "over", "free", "t", "u"):
        await bench.send(encode(Content(b"m", session_id=name)))
    over = await accept("over", "lapsed_____")
    await bench.tell(bench.receiving(over.token, 10, session="over"))
    await bench.send(encode(Content(b"m", session_id="s")), due=START + 1000)
    await bench.send(encode(Content(b"m", session_id="t")), time_to_live=1000)
    bench.later(50_000)
    mine = await accept("s", TOKEN)
    await bench.tell(of.set_state(bench.call_id(), mine, b"kept"))
    await bench.tell(bench.receiving(TOKEN, 2, session="s"))
    other = await accept("u", HELD)
    await bench.tell(bench.receiving(HELD, 1, session=other.name))
    bench.now = START + 100_000
    return bench


@asynccontextmanager
async def standing_otherwise(bench: Bench, case: Case, before: Everything) -> AsyncIterator[Everything]:
    """Put the partition into the state of a case while the block runs, and then back into its earlier state."""
    keys = bench.partition.keys

    async def put(place: int, fields: dict[Any, Any]) -> None:
        words = {name: fields.pop(name) for name in FIELD_LISTS["WORDS"] if name in fields}
        if words:
            held = before[keys[place].decode()][1]
            fields["settings"] = with_settings(held[b"settings"], words)
        if fields:
            flat = [word for pair in fields.items() for word in pair]
            await bench.transport.command("HSET", keys[place], *flat, key=keys[place])

    if case.partition_is_there and not case.state and not case.store:
        yield before
        return
    if case.partition_is_there:
        await put(0, dict(case.state))
        await put(8, dict(case.store))
    else:
        await bench.transport.command("UNLINK", keys[0], key=keys[0])
    yield await bench.whole()
    await put(0, before[keys[0].decode()][1])
    await put(8, before[keys[8].decode()][1])


async def refused(bench: Bench, script: str, case: Case) -> None:
    """Check that a call is refused with the code of the case, and that the caller gets the error for this code."""
    with pytest.raises(ServiceBusError) as caught:
        await perform(bench.transport, case.call.request(script, bench.partition.keys))
    told = caught.value.__context__
    error = caught.value.reason if isinstance(caught.value, PartRefusedError) else caught.value
    assert isinstance(told, ScriptRefusedError)
    kind, text = REFUSALS[case.code](re.sub(r"^#\d+ ", "", told.detail))
    assert (told.reply_code, type(error), error.outcome) == (case.code, kind, Outcome.REFUSED)
    assert text in str(error)
    assert str(error).startswith(text) is not isinstance(caught.value, PartRefusedError)


@pytest.mark.parametrize("target", ["server"], indirect=True)  # the state machines provoke all refusals in memory too
@pytest.mark.parametrize(("on", "settings"), KINDS.items(), ids=[*KINDS])
async def test_a_refused_call_returns_the_expected_code_and_changes_nothing(busy: Bench, on: str) -> None:
    """The cases cover every code that the header of a script names, for every reason."""
    every = [(script, case) for script in OF_A_PARTITION for case in cases_of(script)]
    of_this_kind = [(script, case) for script, case in every if (case.on or kind_of(script)) == on]
    at_first = await busy.whole()
    was_due = True
    with Offenders(len(of_this_kind)) as offenders:
        for script, case in sorted(of_this_kind, key=lambda each: each[1].code == "QUOTA"):
            if was_due and case.code == "QUOTA":
                await busy.due()  # a call is refused for lack of room only when no work is due
                at_first, was_due = await busy.whole(), False
            async with standing_otherwise(busy, case, at_first) as before:
                with offenders.of(f"{script}: {case.what} -> {case.code}"):
                    await refused(busy, script, case)
                    assert await busy.whole() == before, "it changed something"


@for_each("script", OF_A_PARTITION)
def test_the_cases_provoke_every_refusal_code_of_the_header(script: str) -> None:
    """The cases provoke no other code. The code DUE depends on due work and not on the call: see proof/scenes.py."""
    named = set(contract_of(script).refusals)
    expected = named - {"call", "DUE"} | (set(COMMON_REFUSALS) if "call" in named else set())
    assert {case.code for case in cases_of(script)} == expected


def test_there_are_well_formed_arguments_for_every_operation() -> None:
    assert set(WELL_FORMED) == set(OF_A_PARTITION)


async def test_the_partition_of_these_tests_has_much_due_work(busy: Bench) -> None:
    """The tests therefore notice a script that does due work before it refuses a call."""
    before = [await busy.stored(state) for state in (State.LOCKED, State.DELAYED, State.SCHEDULED)]
    await busy.due()
    assert before > [await busy.stored(state) for state in (State.LOCKED, State.DELAYED, State.SCHEDULED)]
    assert (await busy.stored(State.LOCKED), await busy.stored(State.DEFERRED)) == (1, 1)


@pytest.mark.parametrize(("kind", "settings"), list(KINDS.items()), ids=[*KINDS])
async def test_well_formed_calls_are_not_refused(bench: Bench, kind: str) -> None:
    """Well-formed calls work, so each refusal comes from the mistake in its case."""
    await bench.change(lock_duration=60_000)
    await bench.receive(side="d")
    if kind == "reserved":
        await reserve(bench)
    of_this_kind = [script for script in OF_A_PARTITION if kind_of(script) == kind]
    for script in sorted(of_this_kind, key=lambda script: script == "destroy"):
        _, leases = (await bench.whole()).get(bench.partition.keys[3].decode(), ("hash", {}))
        if "=s" in WELL_FORMED[script] and TOKEN.encode() not in leases:
            locking = Call(("=s", TOKEN))
            await perform(bench.transport, locking.request("accept_session", bench.partition.keys))
        await perform(bench.transport, Call(WELL_FORMED[script]).request(script, bench.partition.keys))


# -- other mistakes ----------------------------------------------------------------------------------------------------


async def sent_in_vain(bench: Bench, script: str, *arguments: Argument) -> str:
    """Return the code with which a call was refused, or None after another error. The call must change nothing."""
    before = await bench.whole()
    with pytest.raises(ServiceBusError) as caught:
        await bench.transport.call(load(script), bench.partition.keys, arguments)
    assert await bench.whole() == before
    return caught.value.reply_code if isinstance(caught.value, ScriptRefusedError) else ""


def too_few() -> Iterator[tuple[str, tuple[Argument, ...]]]:
    """Yield calls of each script that lack some of the arguments named in its header."""
    for script in OF_A_PARTITION:
        whole = ("first", 1, "", 0, START, *WELL_FORMED[script])
        yield from ((script, whole[:number]) for number in range(5 + len(contract_of(script).arguments)))


@pytest.mark.parametrize("target", ["server"])
async def test_a_call_that_lacks_arguments_is_refused(bench: Bench) -> None:
    """Any number of arguments may be missing. If the incarnation is missing too, the refusal says that the entity is
    not here.
    """
    for script, arguments in too_few():
        assert await sent_in_vain(bench, script, *arguments) in {"BADCALL", "GONE"}, (script, arguments)


@pytest.mark.parametrize("target", ["memory", "server"])
async def test_a_call_with_too_many_arguments_is_refused(bench: Bench) -> None:
    """A call with more arguments comes from a later release, in which these arguments have a meaning."""
    for script in OF_A_PARTITION:
        if contract_of(script).rest is None:
            whole = ("first", 1, "", 0, bench.now, *WELL_FORMED[script], "more")
            assert await sent_in_vain(bench, script, *whole) == "BADCALL", script


@pytest.mark.parametrize("target", ["memory"])
async def test_an_invalid_message_name_is_refused(bench: Bench) -> None:
    """An invalid name is not reported as a message whose lock is lost."""
    for script in ("abandon", "complete", "dead_letter", "defer", "renew"):
        first, *own = WELL_FORMED[script]
        for name in NOT_NAMES:
            named = (name if argument == "1" else argument for argument in own)
            assert await sent_in_vain(bench, script, "first", 1, "", 0, bench.now, first, *named) == "BADCALL", name


@pytest.mark.parametrize("target", ["memory"])
async def test_only_publish_accepts_routes_and_only_as_numbers(bench: Bench) -> None:
    """A column that the header does not name is refused."""
    routed = Call(("r", "first", "", "", "1", b"m"), version=1, more_keys=_TARGET)
    for script, call in (
        ("send", Call(("r", "", b"m"), version=1)),
        ("publish", replace(routed, own=("r", "first", "", "", "0x1", b"m"))),
        ("publish", replace(routed, own=("r", "first", "", "", "1e0", b"m"))),
    ):
        with pytest.raises(MalformedCallError):
            await perform(bench.transport, call.request(script, bench.partition.keys))


async def test_a_server_error_is_not_taken_for_a_refusal(bench: Bench) -> None:
    """If a key has another type, the script ends with an error of the server."""
    key = bench.partition.keys[0]
    await bench.transport.command("UNLINK", key, key=key)
    await bench.transport.command("ZADD", key, 1, "x", key=key)
    with pytest.raises(ServiceBusError, match="WRONGTYPE"):
        await bench.send(b"m")
