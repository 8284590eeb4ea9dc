"""Bugs of transactions."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["IN_TRANSACTIONS"]

IN_TRANSACTIONS = (
    Bug(
        "two operations settle one message",
        file="transact",
        right="of.seen or {}",
        wrong="{}",
        of="transactions",
    ),
    Bug(
        "two states of one session count in full",
        file="transact",
        right="of.stated or {}",
        wrong="{}",
        of="transactions",
    ),
    Bug(
        "the operations of a transaction overfill a queue",
        file="transact",
        right="pending[of.store]\n",
        wrong="0\n",
        of="transactions",
    ),
    Bug(
        "a transaction takes a lost lock",
        file="includes/check_operation",
        right="#lost > 0",
        wrong="#lost > 1000",
        of="transactions",
    ),
    Bug(
        "a transaction takes a dead letter of a dead letter",
        file="includes/check_operation",
        right="if not tonumber(groups[g].members[i]) then",
        wrong="if false then",
        of="transactions",
    ),
    Bug(
        "only the first participant does its due work",
        file="transact",
        right="for place = 1, count do\n  participants[place].upkeep",
        wrong="for place = 1, 1 do\n  participants[place].upkeep",
        of="transactions",
    ),
    Bug(
        "each participant does a whole share",
        file="transact",
        right="math.ceil(100 / count)",
        wrong="100",
        of="transactions",
    ),
    Bug(
        "each participant reads as much as all may",
        file="transact",
        right="math.floor(2097152 / count)",
        wrong="2097152",
        of="transactions",
    ),
    Bug(
        "only the first participant is written",
        file="transact",
        right="for place = count, 1, -1 do",
        wrong="for place = 1, 1 do",
        of="transactions",
    ),
    Bug(
        "a key is known after its window",
        file="includes/check_once",
        right="tonumber(known[i]) > p.now then",
        wrong="known[i] then",
        of="transactions",
    ),
    Bug(
        "a forgotten key leaves its bytes",
        file="includes/apply_once",
        right="size, count = size - #list[i],",
        wrong="size, count = size,",
        of="transactions",
    ),
    Bug(
        "a subscription that takes part is opened twice",
        file="includes/open_targets",
        right="open and open[keys[at]] or {",
        wrong="{",
        of="transactions",
    ),
    Bug(
        "a failover goes unnoticed by other participants",
        file="includes/open_participants",
        right="{ ARGV[1], words",
        wrong="{ '?', words",
        of="transactions",
    ),
    Bug(
        "two operations on one lease count it twice",
        file="includes/release_from_lease",
        right="= mine.lease",
        wrong="= mine",
        of="transactions",
    ),
    Bug(
        "abandoned in a transaction, a delivery always counts",
        file="includes/apply_operation",
        right="argv[1] == '1'",
        wrong="true",
        of="transactions",
    ),
    Bug(
        "a repeated transaction has no results",
        file="transact",
        right="place == 1 and",
        wrong="place == 9 and",
        of="transactions",
    ),
    Bug(
        "a refusal names the operation before",
        file="transact",
        right="#operations + 1, last",
        wrong="#operations, last",
        of="transactions",
    ),
    Bug(
        "subscriptions are written only if they take part",
        file="transact",
        right="finish_targets(others)",
        wrong="finish_targets({})",
        of="transactions",
    ),
    Bug(
        "the state of a session ignores the messages before it",
        file="includes/check_state",
        right="(p.pending or 0) + growth",
        wrong="growth",
        of="transactions",
    ),
)
