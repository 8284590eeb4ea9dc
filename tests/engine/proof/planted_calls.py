"""Bugs of calls: clocks, lanes, message ids, and receivers that wait."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["OF_CALLS"]

OF_CALLS = (
    # -- clocks, lanes, ids
    Bug(
        "numbers are given twice after a failover",
        file="includes/apply_due",
        right="'seq', EPOCH_LEAP)",
        wrong="'seq', 0)",
    ),
    Bug(
        "a failover does not lengthen locks",
        file="includes/begin",
        right="math.max(clk, logical - lock)",
        wrong="math.max(clk, logical)",
    ),
    Bug(
        "the lock clock goes back with the server clock",
        file="includes/begin",
        right="elseif logical < clk then",
        wrong="elseif false then",
    ),
    Bug(
        "a repeated send sends again",
        file="send",
        right="if p.repeated then",
        wrong="if false then",
    ),
    Bug(
        "a lane is forgotten too soon",
        file="includes/finish",
        right="p.now - 900000",
        wrong="p.now - 90000",
    ),
    Bug(
        "the window of duplicates is too long",
        file="includes/known_message_ids",
        right="p.now - p.window",
        wrong="p.now - p.window - 1",
    ),
    # -- waiting
    Bug(
        "a woken receiver wakes no others",
        file="includes/wake_waiters",
        right="local left = wakes or 16",
        wrong="local left = p.name == 'receive' and 0 or wakes or 16",
    ),
    Bug(
        "a call wakes all receivers at once",
        file="includes/wake_waiters",
        right="work, left = work - wanted, left - 1",
        wrong="work = work - wanted",
    ),
    Bug(
        "too many waiters are woken",
        file="includes/wake_waiters",
        right="work, left = work - wanted, left - 1",
        wrong="left = left - 1",
    ),
    Bug(
        "no waiter is woken for an earlier due time",
        file="includes/wake_waiters",
        right="if p.sooner < math.huge then",
        wrong="if false then",
    ),
    Bug(
        "a leaving waiter does not pass on the due time",
        file="includes/wake_waiters",
        right="if p.left and not p.told then",
        wrong="if false then",
    ),
    Bug(
        "newer settings leave the waiters waiting",
        file="configure",
        right="if newer and ",
        wrong="if false and ",
    ),
    Bug(
        "the same settings wake the waiters",
        file="configure",
        right="if newer and ",
        wrong="if ",
    ),
    Bug(
        "messages that are forwarded are received",
        file="receive",
        right="if p.forwards and side",
        wrong="if false and side",
    ),
    Bug(
        "forwarding keeps dead letters back",
        file="receive",
        right="if p.forwards and side.prefix == '' then",
        wrong="if p.forwards then",
    ),
    Bug(
        "a look finds no message",
        file="receive",
        right="side.from, side.to) > 0\n",
        wrong="side.from, side.to) < 0\n",
    ),
    Bug(
        "a look is at the wrong side",
        file="receive",
        right="p.order, side.from, side.to) > 0",
        wrong="p.order, 0, side_named('').to) > 0",
    ),
    Bug(
        "a look that finds no message does not wait",
        file="receive",
        right="elseif n == 0 then",
        wrong="elseif n == 0 and wanted > 0 then",
    ),
    Bug(
        "a look that finds a message still waits",
        file="receive",
        right="redis.call('ZREM', p.waiters, waiter .. ' ' .. waits_at.prefix)",
        wrong="redis.call('ZREM', p.waiters, wanted > 0 and waiter .. ' ' .. waits_at.prefix or '')",
    ),
    Bug(
        "a leaving receiver still waits",
        file="receive",
        right="waiter ~= '' and waiting_for > 0 then",
        wrong="waiter ~= '' then",
    ),
    Bug(
        "the reported due time is too late",
        file="includes/next_due",
        right="first - p.now",
        wrong="first - p.now + 1",
    ),
    Bug(
        "a woken waiter is never given up",
        file="includes/wake_waiters",
        right="math.floor(score / 128)) > 100",
        wrong="0) > 100",
    ),
)
