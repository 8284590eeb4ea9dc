"""Bugs of transactions: the name of each, its file, the right text, and the wrong text in its place."""

from __future__ import annotations

__all__ = ["IN_TRANSACTIONS"]

IN_TRANSACTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("two operations settle one message", "transact", "of.seen or {}", "{}"),
    ("two states of one session count in full", "transact", "of.stated or {}", "{}"),
    ("the operations of a transaction overfill a queue", "transact", "pending[of.store]\n", "0\n"),
    ("a transaction takes a lost lock", "includes/check_operation", "#lost > 0", "#lost > 1000"),
    (
        "a transaction takes a dead letter of a dead letter",
        "includes/check_operation",
        "if not tonumber(groups[g].members[i]) then",
        "if false then",
    ),
    (
        "only the first participant does its due work",
        "transact",
        "for place = 1, count do\n  participants[place].upkeep",
        "for place = 1, 1 do\n  participants[place].upkeep",
    ),
    ("each participant does a whole share", "transact", "math.ceil(100 / count)", "100"),
    ("each participant reads as much as all may", "transact", "math.floor(2097152 / count)", "2097152"),
    ("only the first participant is written", "transact", "for place = count, 1, -1 do", "for place = 1, 1 do"),
    ("a key is known after its window", "includes/check_once", "tonumber(known[i]) > p.now then", "known[i] then"),
    (
        "a forgotten key leaves its bytes",
        "includes/apply_once",
        "size, count = size - #list[i],",
        "size, count = size,",
    ),
    (
        "a subscription that takes part is opened twice",
        "includes/open_targets",
        "open and open[keys[at]] or {",
        "{",
    ),
    (
        "a failover goes unnoticed by other participants",
        "includes/open_participants",
        "{ ARGV[1], words",
        "{ '?', words",
    ),
    ("two operations on one lease count it twice", "includes/release_from_lease", "= mine.lease", "= mine"),
    (
        "abandoned in a transaction, a delivery always counts",
        "includes/apply_operation",
        "argv[1] == '1'",
        "true",
    ),
    ("a repeated transaction has no results", "transact", "place == 1 and", "place == 9 and"),
    ("a refusal names the operation before", "transact", "#operations + 1, last", "#operations, last"),
    (
        "subscriptions are written only if they take part",
        "transact",
        "finish_targets(others)",
        "finish_targets({})",
    ),
    (
        "the state of a session ignores the messages before it",
        "includes/check_state",
        "(p.pending or 0) + growth",
        "growth",
    ),
)
