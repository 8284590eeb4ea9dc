"""All decoders of what others have stored, published or sent: their valid inputs, and the errors that they document."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf
from typing import Any, Literal, cast
from uuid import UUID

import click
import msgspec
from click.exceptions import Exit

from sbredis._unreadable import unreadable
from sbredis.bulk._chunks import Mark, forgettable, read_mark
from sbredis.codec import decode_body, encode_body
from sbredis.engine import (
    Changes,
    Content,
    Delivery,
    LockToken,
    Recipient,
    Request,
    Rows,
    columns_of,
    encode_changes,
    name_key,
    read_announcement,
    read_call,
    read_lock_token,
    read_push,
    recipient_of,
)
from sbredis.exceptions import (
    DataLayoutError,
    InvalidConnectionStringError,
    MessageBodyError,
    MessageSizeExceededError,
    RuleSyntaxError,
    SparkSetupError,
)
from sbredis.maintenance._visiting import is_move_announcement
from sbredis.model import (
    AmqpAnnotatedMessage,
    Purpose,
    Reception,
    ServiceBusReceiveMode,
    TooManyHopsError,
    current_content,
    delivered,
    key_of_content,
    moved,
    parse_duration,
    read_purpose,
)
from sbredis.operating import duration_of, read_line
from sbredis.registry import reservation_of
from sbredis.registry._entity import decode
from sbredis.registry._registry import Registry, read_namespace
from sbredis.registry._rules import decode_rule
from sbredis.rules import SqlAction, SqlFilter, check_action, check_filter
from sbredis.servers._ask import _Exchange
from sbredis.spark._offsets import EntityOffsets, Offsets, PartitionOffset
from sbredis.spark._values import offsets
from sbredis.transport import Endpoint, as_mapping, parse_target, redacted
from sbredis.transport._resp import ProtocolError, PythonParser, ReplyLimits, reply_parser
from sbredis.transport._server_facts import problems, server_facts
from sbredis.transport._slots import is_steady, parse_cluster_slots, parse_redirection, replica_counts
from sbredis.workers.declaring._cron import parse_cron
from sbredis.workers.observing._counts import EntityCounts, merged
from sbredis.workers.observing._reports import Report, ReportReader
from sbredis.workers.running._frames import Answer, Asked, SentFrame, read_answer, read_asked, write_answer, write_asked
from tests.engine.test_contracts import PARTITION, REQUESTS
from tests.hostile.command_lines import COMMAND_LINES, parse
from tests.hostile.replies import ENTITIES, REPLIES, RULES, record_of
from tests.hostile.trials import Decoder

__all__ = ["DECODERS"]

_UNREADABLE = (DataLayoutError,)
_UUID = UUID(int=1 << 90)
_VALUES: dict[str, Any] = {
    "text": "tëxt",
    "none": None,
    "yes": True,
    "number": -5,
    "float": 2.5,
    "bytes": b"\x00\xff",
    "time": datetime(2024, 1, 2, 3, tzinfo=UTC),
    "uuid": _UUID,
    "decimal": Decimal("1.50"),
    "list": [1, "a", [b"x", None]],
    "map": {"a": {"b": [1.5]}},
    "keyed": {1: "one", b"x": 2, None: 3, Decimal(7): [4], _UUID: 5},
}
_AMQP_BODIES: tuple[dict[str, Any], ...] = (
    {"data_body": b"x"},
    {"value_body": {"v": [1]}},
    {"sequence_body": [1, [2]]},
)
_CONTENTS = [
    Content(),
    Content(b"body", message_id="id", session_id="s", partition_key="s", correlation_id="c", subject="subject"),
    Content(b"x" * 200, message_id=_UUID, correlation_id=7, content_type="application/json", to="a", reply_to="b"),
    Content(b"x" * 20, raw_amqp=b"\x00Su\xa0\x14" + b"x" * 20, modified=1),
    Content(b"x", time_to_live=60_000, scheduled=1_700_000_000_000, properties=_VALUES, reply_to_session_id="r"),
    Content(
        b"x",
        raw_amqp=b"\x00Sp" * 50,
        hops=2,
        enqueued_number=99,
        dead_letter_source="q",
        dead_letter_number=7,
        message_id=b"id",
    ),
    *(
        AmqpAnnotatedMessage(
            **body,
            header={"priority": 3, "delivery_count": 1, "durable": True},
            properties={"user_id": b"u", "creation_time": 5, "group_sequence": 1, "content_encoding": "gzip"},
            footer={"f": 1},
            annotations={"x-opt": [1]},
            delivery_annotations={"d": _UUID},
            application_properties={"a": "b"},
        )._content
        for body in _AMQP_BODIES
    ),
]
_CHANGES = [
    Changes(properties={"a": 1, "b": _UUID}),
    Changes(reason="why", description="because", system={"subject": "s", "time_to_live": 5, "hops": 0}),
    Changes(destination=" ".join(map(str, Recipient("7", "incarnation", 3, "queue/path")))),
    Changes(system={"message_id": 5, "scheduled": 1_700_000_000_000, "session_id": None, "to": "x"}),
]
_RECORDS = [
    record_of(content, 1_800_000_000_000 if number in {1, 5} else None, level=number % 8, scheduled=number == 3)
    for number, content in enumerate(_CONTENTS)
]
_MESSAGES: list[list[Any]] = [[record, b"", b"-", b"1"] for record in _RECORDS] + [
    [_RECORDS[number], encode_changes(changes), b"-ATMS"[number : number + 1], b"d7"]
    for number, changes in enumerate(_CHANGES)
]


# -- messages ----------------------------------------------------------------------------------------------------------


def _delivery(given: Any) -> Delivery | None:
    """Return the message of an input, if it has the types that the reader of a reply has checked."""
    match given:
        case [bytes(record), bytes(changes), bytes(reason), *_]:
            return Delivery("7", record, 1, reason.decode("latin-1")[:1] or "-", changes, "x")
    return None


def _read_message(given: Any) -> object:
    """Read all that a message shows to an application."""
    delivery = _delivery(given)
    if delivery is None:
        return None
    reception = Reception(0, ServiceBusReceiveMode.PEEK_LOCK, None, peeked=True)
    message = delivered(delivery, reception, None)
    shown = repr(message)
    seen: list[Any] = [getattr(message, name) for name in _SHOWN]
    raw = message.raw_amqp_message
    seen += [getattr(raw, name) for name in ("header", "properties", "footer", "annotations", "delivery_annotations")]
    return shown, str(message), repr(seen), str(raw), dict(raw.header or {}), dict(raw.properties or {})


_SHOWN = [
    name
    for name in dir(type(delivered(Delivery("1", b""), Reception(0, ServiceBusReceiveMode.PEEK_LOCK, None), None)))
    if not name.startswith("_")
]


def _move(given: Any) -> object:
    delivery = _delivery(given)
    if delivery is None:
        return None
    made: list[object] = []
    for purpose in (Purpose(), Purpose(True, {"added": 1}, "q")):
        with suppress(TooManyHopsError, MessageSizeExceededError):
            made.append(moved(delivery, purpose, number=5, now=1_700_000_000_000, died_in="q", detects_duplicates=True))
    return made, key_of_content(current_content(delivery), detects_duplicates=True), recipient_of(delivery)


def _columns(given: Any) -> object:
    match given:
        case [[*names], [*records], [*extras], bytes(states)]:
            return columns_of([Rows(names, records, extras, states.decode("latin-1"))])
    return None


_ROWS: list[Any] = [
    [[b"%d" % number for number in range(len(_RECORDS))], _RECORDS, [], b""],
    [[b"d1", b"d2"], _RECORDS[:2], [1, b"-A0000218000000000007", encode_changes(_CHANGES[1])], b"ax"],
    [[b"3"], _RECORDS[3:4], [1, b"i-000020000000000009", encode_changes(_CHANGES[3])], b"a"],
    *([[b"1", b"2"], [record, record], [], b""] for record in _RECORDS),
]


# -- replies of servers ------------------------------------------------------------------------------------------------

_RESP = [
    b"+OK\r\n:5\r\n$3\r\nabc\r\n",
    b"*3\r\n:1\r\n$-1\r\n*2\r\n+a\r\n-ERR b c\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n,1.5\r\n",
    b">2\r\n+message\r\n+x\r\n#t\r\n(12345678901234567890\r\n=7\r\ntxt:abc\r\n_\r\n",
    b"*2\r\n$13\r\n\r\n*12345678\r\n\r\n*0\r\n",
]
_LIMITS = ReplyLimits(bytes=1 << 20, items=100_000, small=1 << 18)


def _in_pieces(make: Callable[[], Callable[[bytes], list[Any]]]) -> Callable[[Any], object]:
    def read(given: Any) -> object:
        parse, size = make(), 1 + len(given) // 3
        return [as_mapping(reply) for at in range(0, len(given), size) for reply in parse(given[at : at + size])]

    return read


_HERE = Endpoint("h", 1)
_INFO = (
    "# Server\r\nredis_version:7.4.1\r\nredis_mode:cluster\r\nrun_id:aa\r\nrole:slave\r\nmaster_host:h\r\n"
    "master_port:1\r\nconnected_slaves:2\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"
)
_NODES = (
    "07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected\n"
    "e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-16383\n"
)
_SLOTS = [[0, 8191, [b"127.0.0.1", 7000, b"id"]], [8192, 16383, [b"", 7001], [b"h", 7002]]]


def _facts(given: Any) -> object:
    facts = server_facts(_HERE, given, given, "allowed")
    return problems(facts, "cluster", "fsync"), replica_counts(given, _HERE), is_steady(given)


# -- bodies ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    number: int
    price: Decimal
    at: datetime
    days: list[date]
    kinds: frozenset[int]
    by_id: dict[UUID, Literal["a", "b"] | None]
    numbers: dict[int, float]
    raw: bytes
    took: timedelta
    inner: tuple[_Row, ...] = ()


class _Paid(msgspec.Struct, tag=True):
    amount: Decimal
    by: Literal["card", "cash", True, 5] = True


class _Sent(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    parts: set[tuple[int, UUID]] = set()


_TYPES: tuple[Any, ...] = (
    Any,
    _Paid | _Sent | None,
    _Row,
    list[_Row],
    dict[int, Any],
    set[Decimal],
    _Row | str | None,
    bytes | int,
    timedelta,
)
_NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
_EMPTY_ROW = _Row(2, Decimal(1), _NOON, [], frozenset(), {}, {}, b"", timedelta(0))
_PLAIN_ROW = _Row(
    1, Decimal("1.5"), _NOON, [date(2024, 1, 2)], frozenset({1, 2}), {_UUID: "a"}, {5: 1.5},
    b"x", timedelta(days=1, seconds=2),
)  # fmt: skip
_BODIES = [
    *(encode_body(value).body for value in (_PLAIN_ROW, {"a": [1, 2.5, None, True, {"b": "c"}]}, [1, 2], {"1": 2})),
    encode_body([_EMPTY_ROW, replace(_EMPTY_ROW, inner=(_PLAIN_ROW,))]).body,
    b'"2024-01-02T03:04:05Z"',
    b'"P1DT2H"',
    encode_body(_Paid(Decimal("2.5"), "card")).body,
    encode_body(_Sent({(1, _UUID), (2, _UUID)})).body,
    b"123",
]


def _bodies(given: Any) -> object:
    refused = 0
    for as_type in _TYPES:
        for content_type in ("application/json", "text/plain", None):
            try:
                decode_body(given, content_type, as_type)
            except MessageBodyError:
                refused += 1
    return refused


# -- frames and reports ------------------------------------------------------------------------------------------------

_ASKED = Asked(b"body", "text/plain", {"a": 1, "b": {"c": _UUID}}, {"attempt": 2, "tick": _NOON})
_ANSWERS = [
    Answer(("Complete", {})),
    Answer(None, ("ValueError", "ValueError", "text", True), [SentFrame("q", b"x", {"session_id": "s"})]),
    Answer(
        ("Retry", {"delay": timedelta(seconds=5)}), None, [SentFrame("q", b"", {})], SentFrame("", b"y", {"raw": b"z"})
    ),
]
_COUNTS = EntityCounts(received=3)
_COUNTS.lag.observe(0.5)
_COUNTS.of("handler").handling.observe(1.5)
_REPORT = Report(
    {"q": _COUNTS}, {"p": "why"}, [("q", "h", 3)], {"q": 5}, [("q", "n", "* * * * *", "t")], "t", "n", running=True
)


def _reports(given: Any) -> object:
    reader = ReportReader()
    reports = [report for part in (given[:50], given[50:]) for report in reader.read(part)]
    told = merged([report.counts for report in reports]), [report.to_line() for report in reports]
    if reader.unreadable:
        raise unreadable("A report", "it is malformed")
    return told


def _entity(given: Any) -> object:
    record = decode(given)
    return reservation_of(record), name_key(record.path)


class _Fed:
    """A connection from which bytes come in pieces, and then its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv(self, _size: int) -> bytes:
        piece, self._data = self._data[:50], self._data[50:]
        return piece

    def settimeout(self, _seconds: float) -> None:
        """Take the time that is left."""


def _answer(given: Any) -> object:
    return _Exchange(cast("Any", _Fed(given)), inf).reply()


_OFFSETS = json.dumps(
    Offsets(
        (
            EntityOffsets("q", "i", {0: PartitionOffset("birth", 1, 17), 1: PartitionOffset("", 0, 5)}, {0: 1}),
            EntityOffsets("r", "j", {}),
        ),
        mode="consume",
    ).to_json()
)


def _offsets_of_spark(given: Any) -> object:
    try:
        stored = json.loads(given)  # PySpark does this
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(stored, dict):
        raise ValueError("Spark stores objects")  # noqa: TRY004 -- not what is searched
    return Offsets.from_json(cast("dict[str, Any]", stored))


_REGISTRY = Registry("ns", 4)
_TOPIC = replace(decode(ENTITIES[0]), kind="topic")
_KEPT = (b"q", ENTITIES[0])
_IN_REGISTRY: list[tuple[str, Request[Any], list[Any]]] = [
    ("read_namespace", read_namespace("ns"), [[4, 1700, b"", b""], [4, 1700, b"5", b"6"]]),
    ("read_entity", _REGISTRY.look("Orders"), [[ENTITIES[0], 0, 1, 2, 3]]),
    ("list_entities", _REGISTRY.listed(0, b"", 2), [[*_KEPT, *_KEPT], [], None]),
    ("read_bucket", _REGISTRY.counts(0), [[1, 2, 3], None]),
    (
        "read_changes",
        _REGISTRY.changes(0, 0, 2),
        [[b"5 f", 1, 3, 3, 0, *_KEPT, b"gone", None], [b"5 f", 0, 0, 0, 0], None],
    ),
    ("find_entity", _REGISTRY.find(0, "001"), [[b"orders", ENTITIES[0]], None]),
    ("list_subscriptions", _REGISTRY.subscriptions("t", ""), [[b"a 5", 1, *_KEPT, b"m 1"], [b"", 0]]),
    ("revise_subscription", _REGISTRY.revise_subscription(_TOPIC, "stamp-stamp-"), [[ENTITIES[0], b""]]),
    ("unregister_entity", _REGISTRY.unregister(_TOPIC), [[1, 0]]),
]


def _mark(given: Any) -> object:
    return read_mark(given), forgettable(given, 1_700_000_000_000)


def _reply(name: str, request: Request[Any], inputs: Sequence[Any]) -> Decoder:
    return Decoder(f"reply of {name}", inputs, request.result, _UNREADABLE)


_STATE = b"sb:ns:{abc}:7:state"
_LOCK_TOKENS = [str(LockToken("tokentoken1", 3, name).uuid()) for name in ("7", "d7", "")]
_URLS = [
    "redis://user:pass@host:6379/0?durability=replicated&replicas=2&namespace=shop",
    "rediss+cluster://[::1]:7000,h2:7001?tls_ca=/x&tls_verify=full",
    "redis+sentinel://s1:26379,s2/mymaster?sentinel_password=x",
    "unix:///run/redis.sock",
    "embedded:///data/x",
    "memory://name",
]
_SHOWN_URLS = [
    *_URLS,
    "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=key;SharedAccessKey=secret;EntityPath=q",
]
_FILTER = "a = 1 AND (sys.Label LIKE 'x%' OR b IN (1, 2.5, NULL)) AND NOT EXISTS(c) AND property(d) + 3 * -4 <> 5"
_LINE = json.dumps({"body": "x", "message_id": "i", "application_properties": {"a": 1}, "time_to_live": "5s"})

DECODERS: dict[str, Decoder] = {
    decoder.name: decoder
    for decoder in (
        Decoder("message", _MESSAGES, _read_message, _UNREADABLE),
        Decoder("moved message", _MESSAGES, _move, _UNREADABLE),
        Decoder("columns", _ROWS, _columns, _UNREADABLE),
        Decoder("purpose", [Purpose(True, {"a": 1}, "q").stored(), b""], read_purpose, _UNREADABLE),
        *(_reply(name, REQUESTS[name](PARTITION), inputs) for name, inputs in sorted(REPLIES.items())),
        *(_reply(name, request, inputs) for name, request, inputs in _IN_REGISTRY),
        Decoder("announcement", [_STATE + b" 1700 1800"], read_announcement, _UNREADABLE),
        Decoder(
            "call for a mover",
            [_STATE + b" move"],
            lambda given: read_call(given) if is_move_announcement(given) else None,
            _UNREADABLE,
        ),
        Decoder(
            "push",
            [
                b"r 0123abcd 1700 AAAAAAA- 2\n=a",
                (
                    b"r 0123abcd 1700 AAAAAAA- 0,20,1,20,1,20,2\nAAAAAAA- 3 6 722 9 17"
                    b"a01700000000000hello1a-000019999999999999xy"
                ),
            ],
            read_push,
            _UNREADABLE,
        ),
        Decoder("mark", [Mark("batch", 5, 6, 7, "0f" * 16, 1700).text()], _mark, _UNREADABLE),
        Decoder("entity", ENTITIES, _entity, _UNREADABLE),
        Decoder("rule", RULES, decode_rule, _UNREADABLE),
        Decoder("filter", [_FILTER], lambda given: check_filter(SqlFilter(given)), (RuleSyntaxError, ValueError)),
        Decoder(
            "action",
            ["SET a = b + 1; SET sys.Label = 'x'; REMOVE c"],
            lambda given: check_action(SqlAction(given)),
            (RuleSyntaxError, ValueError),
        ),
        Decoder("lock token", _LOCK_TOKENS, read_lock_token, (ValueError,)),
        Decoder("connection string", _URLS, parse_target, (InvalidConnectionStringError,)),
        Decoder("connection string for logs", _SHOWN_URLS, redacted, ()),
        Decoder("duration", ["P1DT2H3M4.5S", "P2W", "PT0.000001S"], parse_duration, (ValueError,)),
        Decoder("duration of the command", ["1h30m", "90s", "5", "PT5M"], duration_of, (ValueError,)),
        Decoder("cron", ["*/5 0-4,7 1 jan-mar mon", "0 0 29 2 *"], parse_cron, (ValueError,)),
        Decoder("line of messages", [_LINE.encode()], lambda given: read_line(given, 1, "file"), (ValueError,)),
        Decoder("body", _BODIES, _bodies, ()),
        Decoder("frame of a message", [write_asked(_ASKED)], read_asked, _UNREADABLE),
        Decoder("frame of an answer", [write_answer(answer) for answer in _ANSWERS], read_answer, _UNREADABLE),
        Decoder("reports", [_REPORT.to_line() * 2], _reports, _UNREADABLE),
        Decoder(
            "RESP in Python",
            [*_RESP, b"!5\r\nERR x\r\n"],
            _in_pieces(lambda: PythonParser(_LIMITS).feed),
            (ProtocolError,),
        ),
        Decoder("RESP", _RESP, _in_pieces(lambda: reply_parser(_LIMITS)), (ProtocolError,)),
        Decoder("answer of a server", [each for each in _RESP if each[:1] in b"+-:$*"], _answer, (OSError,)),
        Decoder("command line", COMMAND_LINES, parse, (click.ClickException, Exit, ValueError)),
        Decoder("offsets that a user gives", ["earliest", '{"0": 17, "1": 0}'], offsets, (ValueError,)),
        Decoder("offsets that Spark has stored", [_OFFSETS], _offsets_of_spark, (ValueError, SparkSetupError)),
        Decoder("facts of a server", [_INFO, _NODES], _facts, (ValueError,)),
        Decoder("slots", [_SLOTS], lambda given: parse_cluster_slots(given, _HERE), (ValueError,)),
        Decoder(
            "redirection", ["3999 127.0.0.1:6381", "5 :1"], lambda given: parse_redirection(given, _HERE), (ValueError,)
        ),
    )
}
"""By name."""
