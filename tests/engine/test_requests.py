"""An impossible call is refused when its request is made: no script is called, and no server is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_MESSAGE_BYTES,
    NEVER,
    NO_CALL_ID,
    CallId,
    Copy,
    LaneUnknownError,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    PartRefusedError,
    Request,
    new_token,
    perform,
    push_channel,
    read_record,
    slot_channel,
)
from sbredis.engine._keys import entity_pattern, namespace_pattern, partition_keys
from sbredis.engine._refusals import refused
from sbredis.exceptions import (
    DataLayoutError,
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ScriptRefusedError,
    ServiceBusError,
)
from sbredis.transport import Script
from tests.engine.malformed import NOT_NAMES

SETTINGS = PartitionSettings(clock="test", largest_message=2_000_000)
OF = Partition("n", "abc", "e", "incarnation", 1, SETTINGS)
TURN = CallId("lane", 1, 0)
TOKEN = new_token()
MANY = [str(number) for number in range(1, MAXIMUM_CALL_MESSAGES + 2)]
ANY: Any = None

Build = Callable[[], Request[Any]]


class Nobody:
    """A transport that must not be used."""

    async def call(self, script: Script, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"{script} was called")


def each(what: dict[str, Build]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("build", what.values(), ids=what.keys())


NOT_WHOLE: tuple[Any, ...] = (-1, 1.0, "1", b"1", None, True)
SETTLING: dict[str, Callable[[list[Lock]], Request[Any]]] = {
    "complete": lambda locks: OF.complete(TURN, locks),
    "renew": lambda locks: OF.renew(TURN, locks),
    "abandon": lambda locks: OF.abandon(TURN, locks),
    "defer": lambda locks: OF.defer(TURN, locks),
    "dead_letter": lambda locks: OF.dead_letter(TURN, locks),
}
NOT_TOKENS = ("", "a" * 10, "a" * 12, "a" * 10 + " ", "a" * 10 + "é", "a" * 10 + "\n")


@each(
    {
        "no message": lambda: OF.send(TURN, []),
        "too many messages": lambda: OF.send(TURN, [Outgoing(b"")] * (MAXIMUM_CALL_MESSAGES + 1)),
        "too many to publish": lambda: OF.publish(
            TURN, [Outgoing(b"")] * (MAXIMUM_CALL_MESSAGES + 1), [()] * (MAXIMUM_CALL_MESSAGES + 1), []
        ),
        "a level above 7": lambda: OF.send(TURN, [Outgoing(b"", level=8)]),
        "a time to live beyond the end": lambda: OF.send(TURN, [Outgoing(b"", NEVER + 1)]),
        "a due time at the end": lambda: OF.send(TURN, [Outgoing(b"", due=NEVER)]),
        "no room": lambda: OF.receive_deferred(TURN, TOKEN, ["1"], room=0),
        "too much room": lambda: OF.receive_deferred(TURN, TOKEN, ["1"], room=(1 << 30) + 1),
        "a peek at a side that there is not": lambda: OF.peek(0, 1, side=ANY),
        "a page of nothing": lambda: OF.peek(0, 0),
        "a page of too many": lambda: OF.peek(0, MAXIMUM_CALL_MESSAGES + 1),
        "a page without room": lambda: OF.peek(0, 1, room=0),
        "a page from beyond all numbers": lambda: OF.peek(1 << 48, 1),
        "no states": lambda: OF.peek(0, 1, states=""),
        "unknown states": lambda: OF.peek(0, 1, states="ay"),
        "a purge of nothing": lambda: OF.purge(TURN, 0, share=0),
        "a purge of too many": lambda: OF.purge(TURN, 0, share=MAXIMUM_CALL_MESSAGES + 1),
        "a purge beyond the end": lambda: OF.purge(TURN, NEVER + 1),
        "a purge from beyond all scores": lambda: OF.purge(TURN, 0, start=(1 << 53) + 1),
        "a destruction in negative steps": lambda: OF.destroy(share=-1),
        "a delay beyond the end": lambda: OF.abandon(TURN, [Lock(TOKEN, "1", delay=NEVER + 1)]),
        "a name that comes twice": lambda: OF.cancel(TURN, ["1", "1"]),
        "a deferred one that comes twice": lambda: OF.receive_deferred(TURN, TOKEN, ["d1", "d1"]),
        "the number 0 in a lane": lambda: OF.due(CallId("lane", 0, 0)),
        "too high a number": lambda: OF.due(CallId("lane", 10**15, 0)),
        "a time at the end": lambda: OF.due(CallId("lane", 1, NEVER)),
    }
)
async def test_an_argument_out_of_bounds_is_refused_before_sending(build: Build) -> None:
    with pytest.raises(ValueError, match=r"."):
        await perform(Nobody(), build())


@each(
    {
        "level": lambda: OF.send(TURN, [Outgoing(b"", level=ANY)]),
        "due": lambda: OF.send(TURN, [Outgoing(b"", due=ANY)]),
        "time_to_live": lambda: OF.send(TURN, [Outgoing(b"", ANY)]),
        "room": lambda: OF.receive_deferred(TURN, TOKEN, ["1"], room=ANY),
        "peek start": lambda: OF.peek(ANY, 1),
        "peek wanted": lambda: OF.peek(0, ANY),
        "peek room": lambda: OF.peek(0, 1, room=ANY),
        "before": lambda: OF.purge(TURN, ANY),
        "share": lambda: OF.purge(TURN, 0, share=ANY),
        "purge start": lambda: OF.purge(TURN, 0, start=ANY),
        "destroy share": lambda: OF.destroy(share=ANY),
        "delay": lambda: OF.abandon(TURN, [Lock(TOKEN, "1", delay=ANY)]),
        "number": lambda: OF.due(CallId("lane", ANY, 0)),
        "now": lambda: OF.due(CallId("lane", 1, ANY)),
        "version": lambda: Partition("n", "abc", "e", "i", ANY, SETTINGS).due(),
    }
)
async def test_a_fractional_number_is_refused_before_sending(
    build: Build, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    optional = any(name in request.node.callspec.id for name in ("due", "time_to_live", "now"))
    for wrong in NOT_WHOLE:
        if wrong is None and optional:
            continue
        monkeypatch.setitem(globals(), "ANY", wrong)
        with pytest.raises(ValueError, match="must be a whole number from"):
            await perform(Nobody(), build())


async def test_a_message_that_is_too_large_is_refused_before_sending() -> None:
    small = Partition("n", "abc", "e", "i", 1, replace(SETTINGS, largest_message=10))
    small.send(TURN, [Outgoing(b"x" * 10)])
    builds: list[Build] = [
        lambda: small.send(TURN, [Outgoing(b""), Outgoing(b"x" * 11)]),
        lambda: small.publish(TURN, [Outgoing(b""), Outgoing(b"x" * 11)], [(), ()], []),
    ]
    for build in builds:
        with pytest.raises(MessageSizeExceededError, match="message 1 has 11 bytes; the entity takes"):
            await perform(Nobody(), build())


async def test_messages_that_are_too_large_together_are_refused_before_sending() -> None:
    """The limit for one message is higher than the limit for several messages of a call together."""
    third = MAXIMUM_CALL_BYTES // 3
    OF.send(TURN, [Outgoing(b"x" * third)] * 3)
    with pytest.raises(MessageSizeExceededError, match="too large for one call"):
        await perform(Nobody(), OF.send(TURN, [*[Outgoing(b"x" * third)] * 3, Outgoing(b"xx")]))
    huge = Partition("n", "abc", "e", "i", 1, replace(SETTINGS, largest_message=MAXIMUM_MESSAGE_BYTES))
    huge.send(TURN, [Outgoing(b"x" * (MAXIMUM_CALL_BYTES + 1))])


@pytest.mark.parametrize("name", NOT_NAMES)
async def test_an_invalid_message_name_is_refused_before_sending(name: str) -> None:
    builds: list[Build] = [lambda: OF.cancel(TURN, ["1", name]), lambda: OF.receive_deferred(TURN, TOKEN, [name])]
    builds += [lambda settle=settle: settle([Lock(TOKEN, name)]) for settle in SETTLING.values()]  # type: ignore[misc]
    for build in builds:
        with pytest.raises(ValueError, match="is not the number of a message"):
            await perform(Nobody(), build())


@pytest.mark.parametrize("token", NOT_TOKENS)
async def test_an_invalid_token_is_refused_before_sending(token: str) -> None:
    builds: list[Build] = [lambda: OF.accept_session(TURN, token, "s"), lambda: OF.receive_deferred(TURN, token, ["1"])]
    builds += [lambda settle=settle: settle([Lock(token, "1")]) for settle in SETTLING.values()]  # type: ignore[misc]
    for build in builds:
        with pytest.raises(ValueError, match="is not the token of a lease"):
            await perform(Nobody(), build())
    for key in (token, TOKEN + "0", TOKEN + "x1", TOKEN + "1" * 16):
        with pytest.raises(ValueError, match="is not the key of a lease"):
            OF.renew(TURN, [], [key])


@pytest.mark.parametrize("names", [[], MANY], ids=["none", "too many"])
async def test_a_call_with_no_or_too_many_messages_is_refused_before_sending(names: list[str]) -> None:
    builds: list[Build] = [lambda: OF.cancel(TURN, names), lambda: OF.receive_deferred(TURN, TOKEN, names)]
    locks = [Lock(TOKEN if int(name) % 2 else TOKEN[::-1], name) for name in names]
    builds += [lambda settle=settle: settle(locks) for settle in SETTLING.values()]  # type: ignore[misc]
    for build in builds:
        with pytest.raises(ValueError, match=f"a call takes 1 to {MAXIMUM_CALL_MESSAGES} messages, not {len(names)}"):
            await perform(Nobody(), build())


@pytest.mark.parametrize("lane", [" ", "a b", "a\n", "é", "x" * 65, "\x7f"])
async def test_an_invalid_lane_is_refused_before_sending(lane: str) -> None:
    with pytest.raises(ValueError, match="is not a lane"):
        await perform(Nobody(), OF.due(CallId(lane, 1)))


@pytest.mark.parametrize("routes", [[], [()], [(), (), ()], [(0,), (1,)], [(-1,), ()], [(1,), ()]])
async def test_impossible_routes_are_refused_before_sending(routes: list[tuple[int, ...]]) -> None:
    copies = [[Copy(place) for place in route] for route in routes]
    with pytest.raises(ValueError, match=r"route|copies"):
        await perform(Nobody(), OF.publish(TURN, [Outgoing(b"m"), Outgoing(b"n")], copies, [OF]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "active"},
        {"clock": "wall"},
        {"lock_duration": 0},
        {"lock_duration": 1.5},
        {"max_delivery_count": 0},
        {"max_delivery_count": 100_000},
        {"time_to_live": 0},
        {"time_to_live": NEVER + 1},
        {"duplicate_window": 0},
        {"duplicate_window": True},
        {"quota": -1},
        {"quota": 10**15},
        {"largest_message": -1},
        {"largest_message": MAXIMUM_MESSAGE_BYTES + 1},
        {"most_ids": -1},
        {"most_ids": 10**15},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        PartitionSettings(**wrong)


def test_a_partition_has_an_incarnation_and_a_version() -> None:
    with pytest.raises(ValueError, match="incarnation"):
        Partition("n", "abc", "e", "", 1, SETTINGS)
    for version in (0, 10**15):
        with pytest.raises(ValueError, match="version"):
            Partition("n", "abc", "e", "i", version, SETTINGS)


@pytest.mark.parametrize("word", ["", "{", "a}", "a:b", "a b", "a\n", "é", "-a", "*"])
def test_a_key_part_that_would_change_the_slot_is_refused(word: str) -> None:
    for build in (
        lambda: partition_keys(word, "abc", "e"),
        lambda: partition_keys("n", word, "e"),
        lambda: partition_keys("n", "abc", word),
        lambda: partition_keys("n", "abc", "e", word or "{"),
        lambda: push_channel("n", "abc", "e", word),
        lambda: push_channel("n", "abc", word, "c"),
        lambda: slot_channel("n", "abc", word),
        lambda: entity_pattern("n", word),
        lambda: namespace_pattern(word),
    ):
        with pytest.raises(ValueError, match=r"."):
            build()


def test_new_tokens_are_valid_and_differ() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    for token in tokens:
        OF.receive_deferred(NO_CALL_ID, token, ["1"])


def test_a_record_of_an_unknown_form_is_refused() -> None:
    with pytest.raises(DataLayoutError, match="a form that this release does not know"):
        read_record(b"z0" + b"0" * 13)


def test_the_refusal_of_a_part_of_a_transaction_names_the_part() -> None:
    error = refused(ScriptRefusedError("UNLOCKED", "#2 7 8"))
    assert isinstance(error, PartRefusedError)
    assert (error.operation, error.detail) == (1, "7 8")
    assert isinstance(error.reason, MessageLockLostError)
    assert error.reason.message.startswith("The transaction was refused and has changed nothing.")


@pytest.mark.parametrize(
    ("code", "kind", "outcome"),
    [
        ("GONE", MessagingEntityNotFoundError, Outcome.UNKNOWN),
        ("LANE", LaneUnknownError, Outcome.UNKNOWN),
        ("DISABLED", MessagingEntityDisabledError, Outcome.REFUSED),
    ],
)
def test_a_refusal_after_a_lost_answer_has_an_unknown_outcome_only_if_the_record_may_be_gone(
    code: str, kind: type[ServiceBusError], outcome: Outcome
) -> None:
    for after_unknown in (False, True):
        error = refused(ScriptRefusedError(code, "x", after_unknown=after_unknown))
        assert type(error) is kind
        assert error.outcome is (outcome if after_unknown else Outcome.REFUSED)
