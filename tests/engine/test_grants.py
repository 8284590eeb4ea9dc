"""The form of grants, of their answers and of pushes: what is sent, what is refused, and what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.engine import (
    MAXIMUM_CREDIT,
    MAXIMUM_GRANTS,
    NEXT_SESSION,
    NO_CALL_ID,
    Carried,
    CreditAnswer,
    CreditGift,
    CreditGrant,
    CreditPush,
    CreditReply,
    Delivery,
    GiftPlace,
    Lock,
    Partition,
    PartitionSettings,
    SentGrant,
    SessionGift,
    Settled,
    carrying,
    read_push,
)
from sbredis.engine._grants import PushHeard, granted, packed_grants
from sbredis.exceptions import DataLayoutError

TOKEN = "AAAAAAA-abc"
RECORD = b"a01700000000000" + b"payload"
GRANT = CreditGrant(
    number=3,
    run="0123abcd",
    prefix="AAAAAAA-",
    begins=True,
    seen=GiftPlace(2, 5, 700),
    begun=1,
    hands=4,
    callers=6,
    limit=9,
    size_limit=1_000_700,
    retired=(("BBBBBBB_", 7, 6), ("CCCCCCCC", 1, 0)),
    again=True,
    once=False,
    now=False,
    announced=False,
    suspects=True,
)
SENT = SentGrant("r-1", b"sb:n:{s}:e:wake:c", "", GRANT)


def test_a_grant_is_one_argument() -> None:
    both = [
        SENT,
        SentGrant(
            TOKEN, b"", "=a b\n", GRANT._replace(retired=(), begins=False, now=True, announced=True), delete=True
        ),
    ]
    assert packed_grants(both) == [
        "r-1 sb:n:{s}:e:wake:c 3 0123abcd AAAAAAA- 2 5 700 1 4 6 9 1000700 bas BBBBBBB_:7:6,CCCCCCCC:1:0  ",
        f"{TOKEN}  3 0123abcd AAAAAAA- 2 5 700 1 4 6 9 1000700 ainsd   =a b\n",
    ]
    assert packed_grants([]) == []


def test_a_grant_of_sessions_says_what_comes_with_each() -> None:
    sessions = SENT._replace(source=NEXT_SESSION, grant=GRANT._replace(retired=(), first=5, first_size=4096))
    held = SENT._replace(receiver=TOKEN, source="=", grant=GRANT._replace(retired=(), leaves=True, yields=True))
    assert packed_grants([sessions, held]) == [
        "r-1 sb:n:{s}:e:wake:c 3 0123abcd AAAAAAA- 2 5 700 1 4 6 9 1000700 bas  5:4096 next",
        f"{TOKEN} sb:n:{{s}}:e:wake:c 3 0123abcd AAAAAAA- 2 5 700 1 4 6 9 1000700 basly   =",
    ]


def test_only_the_latest_retired_prefixes_are_named() -> None:
    retired = tuple((f"{number:08}", 1, 1) for number in range(40))
    [packed] = packed_grants([SENT._replace(grant=GRANT._replace(retired=retired))])
    assert str(packed).count(":1:1") == 32
    assert "00000039:1:1" in str(packed)


WRONG_GRANTS: dict[str, dict[str, Any]] = {
    "number": {"number": 0},
    "run": {"run": ""},
    "long run": {"run": "123456789"},
    "prefix": {"prefix": "AAAAAAA"},
    "blank in the prefix": {"prefix": "AAAAAA A"},
    "serial": {"seen": GiftPlace(-1, 5, 700)},
    "begun": {"begun": -1},
    "hands": {"hands": 0},
    "a limit below what was counted": {"callers": 4, "limit": 4},
    "a limit above the largest credit": {"limit": 6 + MAXIMUM_CREDIT},
    "callers below what was counted": {"callers": 4},
    "callers above the limit": {"callers": 10},
    "bytes below what was counted": {"size_limit": 699},
    "too many bytes": {"size_limit": 701 + (1 << 30)},
    "not whole": {"limit": 9.0},
    "retired prefix": {"retired": (("short", 1, 1),)},
    "retired serial": {"retired": (("BBBBBBB_", -1, 1),)},
    "first messages without sessions": {"first": 1},
    "their bytes without sessions": {"first_size": 1},
    "nothing to leave": {"leaves": True},
    "nothing to yield": {"yields": True},
}
WRONG_SENT = {
    "receiver": SENT._replace(receiver="a b"),
    "empty receiver": SENT._replace(receiver=""),
    "channel": SENT._replace(channel=b"a b"),
    "open without a channel": SENT._replace(channel=b""),
    "source": SENT._replace(source="x"),
    "first": SENT._replace(source=NEXT_SESSION, grant=GRANT._replace(first=1001)),
    "first bytes": SENT._replace(source=NEXT_SESSION, grant=GRANT._replace(first=1, first_size=-1)),
    "leaving what is not held": SENT._replace(source=NEXT_SESSION, grant=GRANT._replace(leaves=True)),
    "token": SENT._replace(source="=a"),
    "session": SENT._replace(receiver=TOKEN, source="=" + "x" * 513),
    **{name: SENT._replace(grant=GRANT._replace(**fields)) for name, fields in WRONG_GRANTS.items()},
}


@pytest.mark.parametrize("sent", WRONG_SENT.values(), ids=WRONG_SENT.keys())
def test_a_wrong_grant_is_refused(sent: SentGrant) -> None:
    with pytest.raises(ValueError, match=r"grant|channel|must be a whole number|token|session id"):
        packed_grants([sent])


def test_a_pause_is_legal() -> None:
    assert packed_grants([SENT._replace(grant=GRANT._replace(callers=5, limit=5))])


def test_a_call_carries_up_to_16_grants_of_different_receivers() -> None:
    many = [SENT._replace(receiver=str(number)) for number in range(MAXIMUM_GRANTS + 1)]
    assert len(packed_grants(many[1:])) == MAXIMUM_GRANTS
    with pytest.raises(ValueError, match="up to 32 grants, not 33"):
        packed_grants(many)
    with pytest.raises(ValueError, match="grants credit twice"):
        packed_grants([SENT, SENT._replace(channel=b"other")])
    assert packed_grants([SENT, SENT._replace(source="d")])


GIFT = [b"AAAAAAA- 3 6 722 29999 12", [b"7"], [RECORD], [1, b"a-000019999999999999", b"changed"]]
READ_GIFT = CreditGift("AAAAAAA-", GiftPlace(3, 6, 722), 1_029_999, (Delivery("7", RECORD, 1, changes=b"changed"),), 12)
FIRST_GIFT = [b"AAAAAAA- 1 1 22 29999 0", [b"7"], [RECORD], []]
SESSION_GIFT = [b"AAAAAAA- 3 6 0 29999 12", b"a b", FIRST_GIFT]
READ_FIRST = CreditGift("AAAAAAA-", GiftPlace(1, 1, 22), 1_029_999, (Delivery("7", RECORD),))
READ_SESSION: CreditGift[Delivery] = CreditGift(
    "AAAAAAA-", GiftPlace(3, 6, 0), 1_029_999, (), 12, SessionGift("a b", [READ_FIRST])
)
ANSWER = [b"t AAAAAAA- 3 6 722 9 am 1500 ", GIFT]
READ_ANSWER: CreditReply[Delivery] = CreditReply(
    run="0123abcd",
    clock=1_000_000,
    answer=CreditAnswer.TAKEN,
    prefix="AAAAAAA-",
    last=GiftPlace(3, 6, 722),
    limit=9,
    gifts=[READ_GIFT],
    there=True,
    suspects=False,
    again=True,
    due=1.5,
)
TIME = b"0123abcd 1000000"


def test_an_answer_is_read() -> None:
    refusal = b"r AAAAAAA- 3 6 722 6 a  DISABLED ReceiveDisabled"
    reply = granted([1, [TIME, ANSWER, [b"f  0 0 0 0   "], [refusal]]])
    assert reply.more
    first, forgotten, refused = reply.credits
    assert first == READ_ANSWER
    assert (forgotten.answer, forgotten.prefix, forgotten.due) == (CreditAnswer.FORGOTTEN, "", None)
    assert (refused.answer, refused.refusal) == (CreditAnswer.REFUSED, "DISABLED ReceiveDisabled")


def test_a_session_is_read_with_its_first_messages() -> None:
    empty = [b"AAAAAAA- 3 6 0 29999 12", b""]
    answers = [[b"t AAAAAAA- 3 6 0 9 a  ", SESSION_GIFT, empty], [b"t AAAAAAA- 0 0 0 1 w  "]]
    sessions, held = granted([0, [TIME, *answers]]).credits
    assert sessions.gifts == [READ_SESSION, READ_SESSION._replace(session=SessionGift("", []))]
    assert (sessions.others_wait, held.others_wait) == (False, True)


def test_a_settlement_has_answers_too() -> None:
    partition = Partition("ns", "salt", "e", "incarnation", 1, PartitionSettings())
    request = partition.dead_letter(NO_CALL_ID, [Lock("x" * 11, "9")])
    carried = carrying(request, [SENT])
    assert carried.arguments[:-1] == request.arguments
    read = carried.result([0, [b"9"], [b"d8"], [TIME, ANSWER]])
    assert read == Carried(Settled(False, ("9",), ("d8",)), (READ_ANSWER,))


WRONG_ANSWERS: dict[str, Any] = {
    "time": [b"0123abcd -1", ANSWER],
    "letter": [TIME, [b"x AAAAAAA- 3 6 722 9 am 1500 "]],
    "serial": [TIME, [b"t AAAAAAA- x 6 722 9 am 1500 "]],
    "gift": [TIME, [ANSWER[0], [b"AAAAAAA- 3 6 722", [b"7"], [RECORD], []]]],
    "name": [TIME, [ANSWER[0], [GIFT[0], [b"x"], [RECORD], []]]],
    "records": [TIME, [ANSWER[0], [GIFT[0], [b"7"], [], []]]],
}


@pytest.mark.parametrize("reply", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
def test_a_wrong_answer_cannot_be_read(reply: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        granted([0, reply])


def push(*parts: bytes, line: bytes = b"r-1 0123abcd 1000000 AAAAAAA- ") -> bytes:
    return line + b",".join(str(len(part)).encode() for part in parts) + b"\n" + b"".join(parts)


PUSHED = push(b"", b"AAAAAAA- 3 6 722 29999 12", b"7", RECORD, b"1", b"a-000019999999999999", b"changed")


def test_a_push_is_read() -> None:
    expected = CreditPush("0123abcd", 1_000_000, "AAAAAAA-", READ_GIFT)
    assert read_push(PUSHED) == PushHeard("r-1", "", expected)
    interest = CreditPush[Delivery]("0123abcd", 1_000_000, "AAAAAAA-", None)
    assert read_push(push(b"=a\n,")) == PushHeard("r-1", "=a\n,", interest)
    assert read_push(push(b"=", b"w")) == PushHeard("r-1", "=", interest._replace(others_wait=True))


def test_a_push_may_bring_a_session() -> None:
    bare = push(b"next", b"AAAAAAA- 3 6 0 29999 12", b"a b")
    heard = read_push(bare)
    assert (heard.receiver, heard.source) == ("r-1", NEXT_SESSION)
    assert heard.push.gift == READ_SESSION._replace(session=SessionGift("a b", []))
    full = push(b"next", b"AAAAAAA- 3 6 0 29999 12", b"a b", b"AAAAAAA- 1 1 22 29999 0", b"7", RECORD)
    assert read_push(full).push.gift == READ_SESSION


WRONG_PUSHES = {
    "nothing": b"",
    "no parts": b"r-1 0123abcd 1000000 AAAAAAA- \n",
    "source": push(b"x"),
    "too short": PUSHED[:-1],
    "too long": PUSHED + b"x",
    "another prefix": push(b"", b"BBBBBBBB 3 6 722 29999 12", b"7", RECORD),
    "no record": push(b"", b"AAAAAAA- 3 6 722 29999 12", b"7"),
    "half of the facts": push(b"", b"AAAAAAA- 3 6 722 29999 12", b"7", RECORD, b"1"),
    "a session without a name": push(b"next", b"AAAAAAA- 3 6 0 29999 12"),
    "half of a first gift": push(b"next", b"AAAAAAA- 3 6 0 29999 12", b"s", b"AAAAAAA- 1 1 22 29999 0"),
    "another prefix of first messages": push(
        *(b"next", b"AAAAAAA- 3 6 0 29999 12", b"s", b"BBBBBBBB 1 1 22 29999 0", b"7", RECORD)
    ),
    "no clock": push(b"", line=b"r-1 0123abcd AAAAAAA- "),
}


@pytest.mark.parametrize("text", WRONG_PUSHES.values(), ids=WRONG_PUSHES.keys())
def test_a_wrong_push_cannot_be_read(text: bytes) -> None:
    with pytest.raises(DataLayoutError):
        read_push(text)
