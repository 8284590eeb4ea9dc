"""Valid replies of the scripts, from which the search for hostile replies begins."""

from __future__ import annotations

from typing import Any

from sbredis.engine import Changes, Content, encode, encode_changes
from sbredis.registry._entity import EntityDescription
from sbredis.registry._entity import encode as description_of
from sbredis.registry._rules import encode_rule
from sbredis.rules import CorrelationFilter, Rule, SqlAction, SqlFilter, TrueFilter

__all__ = ["ENTITIES", "REPLIES", "RULES", "ends", "record_of"]


def record_of(content: Content, expires: int | None = None, *, level: int = 0, scheduled: bool = False) -> bytes:
    """Return a stored message."""
    form = b"s" if scheduled else b"a" if expires is None else b"x"
    return (
        b"%b%d%013d" % (form, level, 1_700_000_000_000)
        + (b"" if expires is None else b"%013d" % expires)
        + encode(content)
    )


def ends(entry: str, changes: Changes | None = None) -> list[Any]:
    """Return a part of an entry and the changes, as they are in a reply."""
    return [entry.encode(), b"" if changes is None else encode_changes(changes)]


PLAIN, SECOND = record_of(Content(b"one", message_id="id1")), record_of(Content(b"two", message_id="id2"))
EXPIRING = record_of(Content(b"three", properties={"a": 1}), 1_800_000_000_000)
DEAD = ends("-A0000318000000000007", Changes(reason="why", description="because"))
"""What a reply says about a dead letter."""
_GIVEN: list[Any] = [[b"1", b"2", b"7"], [PLAIN, SECOND, EXPIRING], [2, *ends("i-000020000000000009")]]
_DEAD: list[Any] = [[b"d1", b"t2"], [PLAIN, EXPIRING], [1, *DEAD]]
_TRANSACTED = [b"5;0 2;7-9|=8|2|~30000 5 d6||", b"5;;|"]

REPLIES: dict[str, list[Any]] = {
    "send": [[0, 5, 0], [1, 12, 3]],
    "publish": [[0, 5, 0, b""], [1, 5, 0, b"7-9,12"]],
    "ripe": [[0, [b"4"], [record_of(Content(b"x", scheduled=5), scheduled=True)], [b"Ab_-1"]], [0, [], [], []]],
    "settlements": [[9, 1, [[b"5", b"1700", b"c1-3,7", b"0"], [b"9", b"1800", b"g8-9=5,4 xd1-2", b"1"]]], [0, 0, []]],
    "watermarks": [[b"0", [b"w", b"v"], [b"5 text of it", b"0 x"]], [b"17", [], []]],
    "grant": [
        [
            1,
            [
                b"0123abcd 1700",
                [
                    b"t AAAAAAA- 3 6 722 9 am 1500 ",
                    [b"AAAAAAA- 3 6 722 9 1", [b"7"], [record_of(Content(b"x"))], [1, b"a-000019999999999999", b"c"]],
                ],
                [b"r AAAAAAA- 3 6 722 9 a  DISABLED Disabled"],
            ],
        ]
    ],
    "accept_session": [[0, 60_000, b"taken", 4], [0, 0, b"locked", 0]],
    "renew_session": [[0, 60_000]],
    "release_session": [[1, 3]],
    "set_state": [[0]],
    "get_state": [[0, b"state"], [0]],
    "list_sessions": [[0, [b"a", b"b"], [b"1700", b"1800"], b"+b"], [0, [], []]],
    "bury_session": [[0, 5, 1], [0, 0, 0]],
    "cancel": [[0, [b"1"]], [0, []]],
    "receive_deferred": [[0, 60_000, *_GIVEN, [b"3"], 0, 5], [0, 0, [], [], [], [], 1, 0]],
    "peek": [[0, _GIVEN[0], b"alf", *_GIVEN[1:]], [1, _DEAD[0], b"ax", *_DEAD[1:]]],
    "complete": [[0, [b"1", b"d2"]], [1, []]],
    "renew": [[0, 60_000, [b"1"], [b"2"], [b"token"]], [0, 60_000, [], []]],
    "abandon": [[0, [b"1"]]],
    "defer": [[0, []]],
    "dead_letter": [[0, [b"1"], [b"d2"]]],
    "redrive": [[0, 5, [b"d1"], [b"d2"], 3, 9]],
    "purge": [[0, 5, b"70368744177664"], [1, 5, 0], [0, 0, b""]],
    "count": [list(range(25))],
    "inspect": [[1, 2, 3, b"1700"], [1, 2, 3, 0]],
    "due": [[0, 5]],
    "plan": [[0, b"birth", 4, 5, 9, 4, 400, 1, 1700]],
    "read_pin": [[b"birth", 4, 5, 9, 4, 400, 1]],
    "read_range": [[0, [b"1", b"2"], [PLAIN, EXPIRING], [1, *ends("--000000000000000009")]], [1, [], [], []]],
    "unpin": [[0, 4, 5, 9]],
    "touch": [[1]],
    "close": [[1, 1700]],
    "configure": [[7], [b"7"]],
    "destroy": [[0]],
    "outgoing": [
        [
            0,
            1700,
            b"birth",
            [b"3:5", b"7", b"inc", b"1-3,d7", b""],
            [b"1", b"d2"],
            b"xa",
            [PLAIN, EXPIRING],
            [2, *DEAD],
            9,
        ],
        [1, b"1700", b"birth", [], [], b"", [], [], b"0"],
    ],
    "freeze": [[0, b"7", b"holder", b"1,d4-6", b"purpose"], [0, 0, b"", b"", b""]],
    "settle_batch": [[0, 1]],
    "sweep": [
        [0, b"1700", [b"f", b"birth", b"7", b"1,d2", b"xa", [PLAIN, EXPIRING], [2, *DEAD]]],
        [1, b"1700", [b"n"]],
    ],
    "take": [[0, b"taken", b"", b"", []], [0, b"door", b"text", b"1-5,d7", [b"q:birth", b"r:other"]]],
    "forget_source": [[0, 2]],
    "transact": [[0, *_TRANSACTED], [1, _TRANSACTED[0]], [0, b"!QUOTA 1 7 4096"]],
}
"""By the name of the script."""

_SETTINGS = EntityDescription(name="Orders", partitions=(3,), properties={"user_metadata": "x", "forward_to": "b"})
_TOPIC = EntityDescription(name="Topic", kind="topic", partitioned=True, partitions=tuple(range(16)))
ENTITIES = [
    b"2 %d a7 incarnation- stamp-stamp- 1700 1800 " % version + description_of(description).encode()
    for version, description in enumerate((_SETTINGS, _TOPIC), 1)
]
"""Records of entities in the registry."""
RULES = [
    b"2 s stamp-stamp- 1700 " + encode_rule(rule).encode()
    for rule in (
        Rule("a", SqlFilter("a = 1 AND sys.Label LIKE 'x%'"), SqlAction("SET a = 2.5; REMOVE b")),
        Rule("b", CorrelationFilter(correlation_id="x", properties={"n": 5, "d": True, "t": "x"})),
        Rule("$Default", TrueFilter()),
    )
]
"""Records of rules in the registry."""
