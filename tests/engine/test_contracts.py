"""The Python side and the Lua side of the engine agree: arguments, keys, numbers, flags, fields."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import pytest

from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_REPLY_BYTES,
    NEVER,
    NO_CALL_ID,
    REFUSALS,
    Batch,
    CallId,
    Committed,
    Copy,
    CreditGrant,
    Delivery,
    Destination,
    GiftPlace,
    Lock,
    Operation,
    Origin,
    Outgoing,
    Partition,
    PartitionSettings,
    Redrive,
    Request,
    SentGrant,
    SessionLock,
    SettlementsPlace,
    new_token,
    sweep_together,
    transact,
)
from sbredis.engine._bands import BAND_WIDTH, BANDS, EPOCH_LEAP, split_member
from sbredis.engine._keys import KINDS, SESSION_KINDS, STORE_KINDS, partition_keys
from sbredis.engine._lifecycle import Reason, Side
from sbredis.engine._lua_constants import GENERATED
from sbredis.engine._partition import TARGET_KINDS
from sbredis.engine._scripts import load, operations
from sbredis.engine._settings import SETTINGS
from sbredis.engine._state import FIELD_LISTS
from tests.engine.bench import Bench
from tests.engine.contracts import COMMON_REFUSALS, OF_A_PARTITION, OF_EVERY_CALL, contract_of, fragment, source_of
from tests.engine.proof.picture import SENTINEL, SENTINEL_SCORE
from tests.engine.rights import commands_of
from tests.offenders import for_each
from tests.stored_settings import settings_of
from tools.repository import ROOT

COMMON = ("run_id", "incarnation", "version", "lane", "number", "now")
PARTITION = Partition("n", "abc", "e", "incarnation", 7, PartitionSettings(clock="test"))
TARGETS = [
    Partition("n", "abc", name, f"of-{name}", 7, PartitionSettings(clock="test", shared=True), store="e")
    for name in ("s", "t")
]
TURN = CallId("lane", 5, 1_700_000_000_000)
TOKEN = new_token()
SESSION = SessionLock("s", TOKEN)
LOCKS = [Lock(TOKEN, "1", b"changes", 10), Lock(new_token(), "d2"), Lock(TOKEN, "3")]

OTHER = Partition("n", "abc", "f", "other", 3, PartitionSettings(clock="test"))
OTHER_SEND = Operation(OTHER, OTHER.send(NO_CALL_ID, [Outgoing(b"m")]))
COMPLETE = Operation(PARTITION, PARTITION.complete(NO_CALL_ID, LOCKS))

WITHOUT_CALL_ID = {"forget_source", "freeze", "outgoing", "settle_batch", "sweep", "take"}
"""The requests of a move take no call id, because any client may repeat them."""

each_operation = for_each("name", OF_A_PARTITION)

TO, FROM = Destination("x", 3), Origin("q", "birth")

# -- requests ----------------------------------------------------------------------------------------------------------

GRANT = SentGrant(
    "r",
    b"w",
    "",
    CreditGrant(*(1, "run", "prefixed", True, GiftPlace(0, 0, 0), 0, 1, 1, 1, 1, (), False, False, False, False, True)),
)
REQUESTS: dict[str, Callable[[Partition], Request[Any]]] = {
    "send": lambda of: of.send(TURN, [Outgoing(b"m", 1000, 3, b"id", 1), Outgoing(b"n")]),
    "publish": lambda of: of.publish(
        TURN,
        [Outgoing(b"m", 1000, 3, b"id", 5), Outgoing(b"", origin="7")],
        [(), (Copy(0, b"changes"), Copy(1, b"why", dead=True))],
        TARGETS,
        fence=9,
    ),
    "ripe": lambda of: of.ripe(3, room=4, call_id=TURN),
    "settlements": lambda of: of.read_settlements(SettlementsPlace(3), 4, call_id=TURN),
    "watermarks": lambda of: of.watermarks(b"name", "3", call_id=TURN),
    "accept_session": lambda of: of.accept_session(TURN, TOKEN, "s"),
    "renew_session": lambda of: of.renew_session(TURN, SESSION),
    "release_session": lambda of: of.release_session(TURN, SESSION),
    "set_state": lambda of: of.set_state(TURN, SESSION, b"state"),
    "get_state": lambda of: of.get_state(SESSION, TURN),
    "list_sessions": lambda of: of.list_sessions(3, "after", TURN),
    "bury_session": lambda of: of.bury_session(TURN, SESSION, b"why", share=4),
    "cancel": lambda of: of.cancel(TURN, ["1", "2"]),
    "grant": lambda of: of.grant([GRANT, GRANT._replace(source="d")], TURN),
    "receive_deferred": lambda of: of.receive_deferred(TURN, TOKEN, ["1", "2"]),
    "peek": lambda of: of.peek(3, 4, side="d", room=10, states="al", call_id=TURN),
    "complete": lambda of: of.complete(TURN, LOCKS),
    "renew": lambda of: of.renew(TURN, LOCKS, [TOKEN]),
    "abandon": lambda of: of.abandon(TURN, LOCKS, counted=False),
    "defer": lambda of: of.defer(TURN, LOCKS),
    "dead_letter": lambda of: of.dead_letter(TURN, LOCKS),
    "redrive": lambda of: of.redrive(TURN, [Redrive("d1", 1000, b"changes"), Redrive("d3")]),
    "purge": lambda of: of.purge(TURN, 1000, side="d", share=7, start=8, session="s"),
    "count": lambda of: of.count(TURN),
    "inspect": lambda of: of.inspect(TURN),
    "due": lambda of: of.due(TURN),
    "plan": lambda of: of.plan(3, Committed("birth", 4, 5), 6, room=7, accept=True, call_id=TURN),
    "read_pin": lambda of: of.read_pin(call_id=TURN),
    "read_range": lambda of: of.read_range("birth", 3, 4, wanted=5, room=6, call_id=TURN),
    "unpin": lambda of: of.unpin(3, call_id=TURN),
    "touch": lambda of: of.touch(TURN),
    "close": lambda of: of.close(1000, 8, now=TURN.now),
    "configure": lambda of: of.configure(create=True),
    "destroy": lambda of: of.destroy(share=9),
    "outgoing": lambda of: of.outgoing(wanted=3, room=4, start=5),
    "freeze": lambda of: of.freeze(TOKEN, TO, "holder", [Delivery("1", b"r"), Delivery("d2", b"r", changes=b"c")]),
    "settle_batch": lambda of: of.settle_batch(TOKEN, TO, 7, "refused", changes={"1": b"why"}),
    "sweep": lambda of: of.sweep(TO, "holder", Batch(TO, "holder", 7, ("1",)), TOKEN, wanted=3, room=4),
    "take": lambda of: of.take(FROM, Batch(TO, "holder", 7, ("1", "2", "d4")), TOKEN, publishing(of, 3)),
    "forget_source": lambda of: of.forget_source([FROM]),
    "transact": lambda of: transact(TURN, [COMPLETE._replace(partition=of), OTHER_SEND]),
}


def publishing(of: Partition, count: int) -> Request[Any]:
    return of.publish(NO_CALL_ID, [Outgoing(b"m")] * count, [(Copy(1),)] * count, TARGETS)


class Asked(NamedTuple):
    """The values that a builder passes on for a request."""

    name: str
    scalars: dict[str, Any]
    rest: Sequence[Any]


def asked(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Asked, Request[Any]]:
    """Return the values that the builder of an operation passes on, and the request."""
    found: list[Asked] = []
    make = Partition.request

    def spying(  # noqa: PLR0917 -- the parameters of the method that it replaces
        self: Partition, name: str, call_id: CallId, read: Any, scalars: dict[str, Any], rest: Sequence[Any] = ()
    ) -> Request[Any]:
        found.append(Asked(name, scalars, rest))
        return make(self, name, call_id, read, scalars, rest)

    monkeypatch.setattr(Partition, "request", spying)
    request = REQUESTS[name](PARTITION)
    return found[-1], request


def test_every_operation_of_a_partition_has_a_request() -> None:
    assert set(REQUESTS) == set(OF_A_PARTITION)


@each_operation
def test_the_arguments_match_the_header_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, request = asked(name, monkeypatch)
    header = contract_of(name)
    assert one.name == request.script.name == name
    assert (header.call, header.takes_run_id, request.script.takes_run_id) == (COMMON, True, True)
    assert tuple(one.scalars) == header.arguments
    if name not in {"sweep", "accept_session", "release_session"}:  # sweep_together and carrying add their last ones
        assert bool(one.rest) is (header.rest is not None)
    assert request.arguments == (*request.arguments[:5], *one.scalars.values(), *one.rest)


@each_operation
def test_five_common_arguments_come_before_the_arguments_of_an_operation(name: str) -> None:
    request = REQUESTS[name](PARTITION)
    call_id = NO_CALL_ID if name in {"configure", "destroy"} | WITHOUT_CALL_ID else TURN
    call_id = CallId("", 0, TURN.now) if name == "close" else call_id
    now = "" if call_id.now is None else call_id.now
    assert request.arguments[:5] == (PARTITION.incarnation, PARTITION.version, call_id.lane, call_id.number, now)
    assert len(COMMON) == 1 + 5  # the fifth argument, the run id, comes from the transport


@pytest.mark.slow
@each_operation
def test_the_keys_match_the_header(name: str) -> None:
    header, request = contract_of(name), REQUESTS[name](PARTITION)
    assert header.keys[0] == ("partition", len(KINDS))
    assert request.keys[: len(KINDS)] == PARTITION.keys == partition_keys("n", "abc", "e")
    if len(header.keys) == 1:
        assert len(request.keys) == len(KINDS)
    elif name == "transact":
        assert header.keys[1:] == (("others", 0),)
        assert request.keys[len(KINDS) :] == OTHER.keys
    elif name == "sweep":
        assert header.keys[1:] == (("others", 0),)
        both = sweep_together([request, OTHER.sweep(TO, "holder")])
        assert both.keys == (*PARTITION.keys, *OTHER.keys)
        assert both.arguments[len(request.arguments) :] == ("other", 3, str(TO), "holder", "", "")
    else:
        assert header.keys[1:] == (("targets", 0),)
        assert len(request.keys) == len(KINDS) + 2 * len(TARGET_KINDS)


def test_repeatable_calls_have_a_lane_or_are_idempotent() -> None:
    """A call without a lane that changes something is sent once."""
    for name, build in REQUESTS.items():
        request = build(PARTITION)
        assert request.repeatable is (request.arguments[2] != "" or contract_of(name).fact("repeatable").always)
    assert not PARTITION.send(NO_CALL_ID, [Outgoing(b"m")]).repeatable
    assert not PARTITION.receive_deferred(NO_CALL_ID, TOKEN, ["1"]).repeatable


# -- keys --------------------------------------------------------------------------------------------------------------


def numbered(source: str, table: str = "keys") -> dict[str, int]:
    """Return the names of the local variables for keys in a Lua text, by the numbers of the keys."""
    return {name: int(number) for name, number in re.findall(rf"(\w+) = {table}\[(\d+)\]", source)}


def test_keys_have_the_order_that_the_scripts_expect() -> None:
    found = numbered(fragment("begin"))
    assert "index = set.sessions and keys[27] or nil" in fragment("begin")
    found["sessions"] = 27  # key 27 is nil if the entity has no sessions
    assert found == {kind: place for place, kind in enumerate(KINDS, 1) if kind in found}
    assert set(found) == {kind for kind in KINDS if not re.fullmatch(r"m\d+", kind)} - {
        "settled"
    }  # which no script uses yet
    elsewhere = numbered(source_of("destroy"), "KEYS")
    assert elsewhere == {kind: found[kind] for kind in elsewhere}
    assert "local state, store = KEYS[1], KEYS[9]" in source_of("configure")
    assert (found["state"], found["store"]) == (1, 9)


def test_the_last_sixteen_keys_are_the_hashes_of_records() -> None:
    bucket = re.search(r"keys\[(\d+) \+ math\.floor\(number / (\d+)\) % (\d+)\]", fragment("record_key"))
    assert bucket is not None
    first, width, many = map(int, bucket.groups())
    assert KINDS.index("m0") == first - 1
    assert [kind for kind in KINDS if kind[1:].isdigit()] == [f"m{place}" for place in range(many)]
    assert len(KINDS) == first - 1 + many + len(SESSION_KINDS) + 6
    assert KINDS[8:] == (*STORE_KINDS, *SESSION_KINDS, "lasting", "once", "settled", "words", "grants", "kept")
    assert width == 4096


def test_publish_expects_the_keys_of_a_target_in_the_declared_order() -> None:
    source = fragment("open_targets")
    found = re.findall(
        r"\b(\w+) = keys\[at(?: \+ (\d))?\][ ,\n]", source.partition("local s =")[2].partition("if sessions")[0]
    )
    assert [name for name, _ in found] == list(TARGET_KINDS)
    assert [int(place or 0) for _, place in found] == list(range(len(TARGET_KINDS)))
    assert "target.index, target.turns, target.states = keys[at], keys[at + 1], keys[at + 2]" in source
    assert "check_publish(p, KEYS, ARGV, 7, KEY_COUNT + 1)" in source_of("publish")
    assert (len(KINDS), len(TARGET_KINDS), len(SESSION_KINDS)) == (35, 6, 3)
    with_sessions = Partition("n", "abc", "u", "of-u", 7, PartitionSettings(shared=True, sessions=True), store="e")
    assert with_sessions.target_keys() == (
        *with_sessions.keys[:3],
        with_sessions.keys[5],
        *with_sessions.keys[32:34],
        *with_sessions.keys[26:29],
    )
    request = PARTITION.publish(TURN, [Outgoing(b"m")], [[Copy(1)]], [TARGETS[0], with_sessions])
    assert request.keys[len(KINDS) :] == TARGETS[0].target_keys() + with_sessions.target_keys()
    assert request.arguments[5:] == ("r", "of-s of-u+", "", "", "2", b"m")


def test_every_script_declares_the_keys_that_it_uses_by_number() -> None:
    for name in OF_A_PARTITION:
        for number in re.findall(r"KEYS\[(\d+)\]", source_of(name).partition("-- @use")[2]):
            assert 1 <= int(number) <= len(KINDS), name


# -- numbers -----------------------------------------------------------------------------------------------------------


SOURCES = {path.stem: path.read_text("utf-8") for path in (ROOT / "lua").rglob("*.lua")}


def without_comments(source: str) -> str:
    return re.sub(r"--.*", "", source)


def evaluated(code: str) -> Any:
    """Return the result of a piece of Lua."""
    return importlib.import_module("lupa.lua51").LuaRuntime().execute(code)


def test_no_script_has_a_band_as_a_literal_number() -> None:
    assert {name for name in SOURCES if re.search(r"\d \* BAND\b", without_comments(SOURCES[name]))} == set()


def test_the_bounds_of_a_side_are_texts() -> None:
    """A command may get a number of this size in another form."""
    sides = evaluated(fragment("sides") + "return SIDES")
    assert {type(of[bound]) for of in sides.values() for bound in ("from", "to")} == {str}


def test_a_count_lists_the_states_in_the_order_of_their_bands() -> None:
    main = [state.value for side, state in BANDS if side is Side.MAIN]
    listed = re.search(r"main side: ([a-z, ]+)", re.sub(r"\s+", " ", contract_of("count").result))
    assert listed is not None
    assert listed[1].split(", ") == main


def turns() -> dict[str, int]:
    """Return the states of a session, each with the first score of its band."""
    found = evaluated(fragment("turns") + "return TURNS")
    return {str(name): int(score) for name, score in found.items()}


def test_four_bands_describe_the_state_of_a_session() -> None:
    assert turns() == {
        name: place * BAND_WIDTH for place, name in ((0, "free"), (1, "locked"), (3, "blocked"), (4, "stated"))
    }


def test_the_sentinel_sorts_after_all_bands_and_is_not_a_message_name() -> None:
    sentinel = evaluated(fragment("sentinel") + "return SENTINEL")
    name, score = str(sentinel.name).encode(), int(sentinel.score)
    assert (name, score) == (SENTINEL, SENTINEL_SCORE)
    assert max(bands.stop for bands in BANDS.values()) * BAND_WIDTH <= score < 2**53
    assert len(name) > 64  # 64 is zset-max-listpack-value and hash-max-listpack-value of every server
    with pytest.raises(ValueError, match="not the name of a message"):
        split_member(name.decode())


def test_no_script_has_a_constant_as_a_literal_number() -> None:
    every = "\n".join(load(name).source for name in OF_A_PARTITION)
    assert {int(number) for number in re.findall(r"\b9{10,}\b", every)} == {NEVER, 999_999_999_999_999}
    written = {
        (name, number)
        for name, text in SOURCES.items()
        for number in (NEVER, NEVER - 1, BAND_WIDTH, EPOCH_LEAP)
        if str(number) in without_comments(text).replace("999999999999999", "")
    }
    assert written == {("index_name", EPOCH_LEAP), ("index_text", EPOCH_LEAP)}, "half of twelve digits of sixteen"
    assert f"total > {MAXIMUM_CALL_BYTES} or changes > {MAXIMUM_CALL_BYTES})" in fragment("check_messages")
    assert f"left = {MAXIMUM_REPLY_BYTES}" in fragment("open_credit")
    assert f"count > {MAXIMUM_CALL_MESSAGES}" in fragment("check_messages")
    assert f"total <= {MAXIMUM_CALL_MESSAGES}" in fragment("lock_groups")
    assert f"#list <= {MAXIMUM_CALL_MESSAGES}" in fragment("message_names")


def test_the_letters_of_reasons_match_the_life_cycle() -> None:
    every = "\n".join(load(name).source for name in OF_A_PARTITION)
    given = set(re.findall(r"bury\(p, \w+(?:\[\w\])?, e, '(.)'\)", every))
    given |= set(re.findall(r"note_dead\(\w, \w, '(.)'\)", every))
    given |= {letter for pair in re.findall(r"copy\.dead and '(.)' or '(.)'", every) for letter in pair}
    given |= set(re.findall(r"reason = '(.)'", every))
    counted = re.findall(r"note_dead\(\w, \w, string\.char\((\d+) \+ lapses\)\)", every)
    given |= {chr(int(first) + 1) for first in counted}
    assert given == {reason.value for reason in Reason}


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_every_refusal_code_has_an_error_class() -> None:
    codes = set(COMMON_REFUSALS).union(*(contract_of(name).refusals for name in OF_A_PARTITION)) - {"call"}
    assert codes == set(REFUSALS)


def test_all_operations_but_configure_and_destroy_open_a_call_as_their_headers_state_it() -> None:
    assert set(OF_A_PARTITION) - set(OF_EVERY_CALL) == {"configure", "destroy"}
    opening = "local p, refusal = begin(KEYS, ARGV, {})\nif not p then\n  return refusal\nend\n"
    assert opening.format("'grant', 6, true, false, true") in load("grant").source
    assert opening.format("'purge', 11, false, false, false") in load("purge").source
    assert opening.format("'count', 6, false, true, true") in load("count").source


# -- flags -------------------------------------------------------------------------------------------------------------

READS = {
    *("exists", "hexists", "hget", "hgetall", "hlen", "hmget", "hrandfield", "hscan", "hstrlen", "time", "xrange"),
    *("zcard", "zcount", "zlexcount", "zmscore", "zrange", "zrangebylex", "zrangebyscore", "zscore"),
}


@for_each("name", operations())
def test_a_script_is_marked_read_only_if_and_only_if_it_contains_no_writing_command(name: str) -> None:
    assert (set(commands_of([name])) <= READS) is ("no-writes" in contract_of(name).flags)


# -- fields ------------------------------------------------------------------------------------------------------------

_LIST = r"((?:'\w+'(?:,\s*)?)+)"
_READ_OF_STATE = re.compile(rf"redis\.call\('H(?:MGET|GET)', (?:keys\[1\]|KEYS\[(?:1|at)\]|state|p\.state), {_LIST}")
_READ_OF_STORE = re.compile(rf"redis\.call\('H(?:MGET|GET)', (?:p\.)?store, {_LIST}")
_WRITTEN_TO_STATE = re.compile(r"changed\.(\w+) = |redis\.call\('HSET', (?:p\.state|KEYS\[1\]), '(\w+)'")
_WRITTEN_TO_STORE = re.compile(r"redis\.call\('HINCRBY', (?:p\.)?store, '(\w+)'")


def quoted(lists: Sequence[str]) -> set[str]:
    return {name for text in lists for name in re.findall(r"'(\w+)'", text)}


@for_each("name", operations())
def test_no_script_passes_a_negated_number_to_a_command(name: str) -> None:
    """In Lua, the negation of 0 is minus zero. Redis 7.0 passes "-0" to the command, which refuses it."""
    assert not re.findall(r"redis\.call\([^\n]*[,(]\s*-\s*[A-Za-z(#][^\n]*", load(name).source)


_TEXTS = r"(?:\w+(?:\[[^]\n]*\])?\.)*(?:text|name|member|session|token|lane|id|entity)\b"
_IN_ORDER = re.compile(rf"(?<![#\w.]){_TEXTS} (?:<|>)=? |(?:<|>)=? {_TEXTS}(?! [-+*/])[^\n]*")


@for_each("name", operations())
def test_no_script_compares_texts_by_order(name: str) -> None:
    """Lua compares texts by the locale of the server process. In an English locale, "a" comes before "B"."""
    assert not _IN_ORDER.findall(load(name).source)


@pytest.mark.parametrize("target", ["memory"])
async def test_a_new_partition_has_every_field_that_scripts_read_or_write(bench: Bench) -> None:
    """A script that reads a setting always finds it."""
    whole = await bench.whole()
    state, store = (whole[bench.partition.keys[place].decode()][1] for place in (0, 8))
    every = "\n".join(load(name).source for name in OF_A_PARTITION)
    read = quoted(_READ_OF_STATE.findall(every))
    assert read == {field.decode() for field in state}
    assert quoted(_READ_OF_STORE.findall(every)) | {"layout"} == {field.decode() for field in store}
    written = {name for names in _WRITTEN_TO_STATE.findall(every) for name in names if name}
    assert {"marks", "granted", "run_id", "settings"} <= written <= read
    assert set(_WRITTEN_TO_STORE.findall(every)) == {"seq", "bytes"}


@pytest.mark.parametrize("target", ["memory"])
async def test_a_partition_stores_each_setting_under_the_name_that_its_declaration_gives(bench: Bench) -> None:
    whole = await bench.whole()
    state, store = (whole[bench.partition.keys[place].decode()][1] for place in (0, 8))
    settings = bench.partition.settings
    words = {name.encode(): word for name, word in settings_of(state[b"settings"]).items()}
    for setting, value in zip(SETTINGS.values(), settings.arguments(), strict=True):
        kept, other = (store, words) if setting.with_records else (words, store)
        assert kept[setting.stored.encode()] == str(value).encode()
        assert setting.stored.encode() not in other
        assert setting.stored.encode() not in state
    assert set(SETTINGS) == {field.name for field in fields(settings)}
    assert set(FIELD_LISTS["TARGET"]) <= set(FIELD_LISTS["STATE"]) <= {field.decode() for field in state}
    assert set(FIELD_LISTS["STORE"]) <= {field.decode() for field in store}


def test_the_scripts_check_each_setting_as_declared() -> None:
    table = evaluated(GENERATED["includes/settings"] + "\nreturn SETTINGS")
    assert len(table) == len(SETTINGS)
    for entry, setting in zip(table.values(), SETTINGS.values(), strict=True):
        assert (entry["name"], bool(entry.optional)) == (setting.stored, setting.optional)
        assert (bool(entry.fixed), bool(entry.with_records)) == (setting.fixed is not None, setting.with_records)
        assert (entry.least, entry.most) == (setting.least, setting.most)
        if setting.least is None:
            assert set(entry.words.keys()) == set(setting.words or ("0", "1"))
        if not setting.with_records:
            assert FIELD_LISTS["WORDS"][entry.position - 1] == setting.stored
