"""Bugs that are planted in the scripts, one at a time, to test that the machine finds each of them.

python -m tests.engine.proof.planted [NAME...]

A bug is a text in a Lua file and its replacement. The text is replaced when the file is read, never on disk.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from hypothesis import Phase

from sbredis.servers import LocalServer
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import BOUNDS, MACHINES, drive
from tests.engine.proof.hosts import host, with_bounds, with_texts_replaced
from tests.engine.proof.planted_by_name import BUGS_BY_NAME
from tests.engine.proof.planted_transactions import IN_TRANSACTIONS


class Bug(NamedTuple):
    """A plausible programming mistake."""

    name: str
    file: str
    right: str
    wrong: str
    of: str = "queue"
    """The machine that must find it."""


class Finding(NamedTuple):
    """The way in which a bug was found."""

    steps: int
    how: str


BUGS = (
    # -- the life of a message
    Bug(
        "a message gets one delivery too many",
        "includes/state_after_lock",
        "e.failures >= p.deliveries",
        "e.failures > p.deliveries",
    ),
    Bug("lapses do not count", "includes/state_after_lock", "e.failures = e.failures + 1", "e.failures = e.failures"),
    Bug(
        "the expiry event of a locked message stays",
        "receive",
        "      if expires ~= NEVER_TEXT then\n        p.unawaited",
        "      if false then\n        p.unawaited",
    ),
    Bug("a receive does not see that the queue is empty", "receive", "emptied = late == 0", "emptied = false"),
    Bug("a receiver waits for messages that it has", "receive", "waiting_for - n)", "waiting_for)"),
    Bug("a deferred message returns as an active one", "includes/apply_defer", "e.home = 'f'", "e.home = 'a'"),
    Bug("deferred messages never expire", "receive_deferred", "21, 33)) <= p.now then", "21, 33)) < 0 then"),
    Bug("messages without room are not left out", "receive_deferred", "local left = #members - fit", "local left = 0"),
    Bug("a peek hides that a locked message was deferred", "peek", "if states[n] == 'l' and", "if false and"),
    Bug(
        "deferred messages are deleted in part",
        "receive_deferred",
        "if left > 0 and mode == 'delete' then",
        "if left > #members and mode == 'delete' then",
    ),
    Bug(
        "deferring does not count as a failed delivery",
        "includes/apply_defer",
        "release(p, mine.names[i], e, true, 0)",
        "release(p, mine.names[i], e, false, 0)",
    ),
    Bug(
        "the delivery count of a dead letter rises",
        "includes/state_after_lock",
        "if counted and side.prefix == '' then",
        "if counted then",
    ),
    Bug(
        "a delay ends after the message has expired",
        "includes/release",
        "p.awaited + 1] = math.min(p.now + delay, expires)",
        "p.awaited + 1] = p.now + delay",
    ),
    Bug("a returned message gets another level", "includes/make_ready", "tonumber(e.level) * BAND", "0"),
    Bug("a dead letter loses its record", "includes/mark_dead", "e.record = member", "e.record = ''"),
    Bug("scheduled messages are cancelled in part", "cancel", "if #missing == 0 then", "if #missing < #members then"),
    Bug("a purge deletes a message that is not old enough", "purge", "3, 15)) < before", "3, 15)) <= before"),
    *(Bug(*one) for one in BUGS_BY_NAME),
    # -- leases
    Bug(
        "the message count of a lease does not fall", "includes/release_from_lease", "lease.left - count", "lease.left"
    ),
    Bug(
        "a renewed part of a lease keeps the old token",
        "renew",
        "= token .. string.sub(mine",
        "= mine.token .. string.sub(mine",
    ),
    Bug(
        "the end of a lease is not checked",
        "includes/still_held",
        "tonumber(lease.till) <= p.logical",
        "lease.till == '0'",
    ),
    Bug("a wrong token is accepted", "includes/still_held", "text and string.sub(text, 1, 12) == token", "text"),
    # -- bounds
    Bug(
        "the end of a renewed lock goes unnoticed",
        "renew",
        "write_lease(p, mine.token, p.logical + p.lock, mine.lease.left, mine.lease.runs)",
        "local bound = p.next_lock; write_lease(p, mine.token, p.logical + p.lock, mine.lease.left, mine.lease.runs); "
        "p.next_lock, p.changed.next_lock = bound, bound",
    ),
    Bug(
        "the end of the first lock goes unnoticed",
        "includes/write_lease",
        "if till < p.next_lock then",
        "if false then",
    ),
    Bug("the first due event goes unnoticed", "includes/flush", "if p.awaited[i] < p.next_due then", "if false then"),
    Bug("the first expiry goes unnoticed", "includes/index_expiry", "if expires < p.head then", "if false then"),
    Bug("a used-up share reports no more due work", "includes/plan_due", "o.more = 1", "o.more = 0"),
    # -- time
    Bug(
        "a message is enqueued when the next call comes",
        "includes/plan_due",
        "activate(member, time)",
        "activate(member, now)",
    ),
    Bug(
        "a lock lapses when the next call comes", "includes/plan_due", "(locks[at_lock], time)", "(locks[at_lock], now)"
    ),
    Bug(
        "a delay ends when the next call comes",
        "includes/plan_due",
        "come_back(m, time)",
        "come_back(m, now)",
    ),
    Bug(
        "a message that becomes active too late stays",
        "includes/plan_due",
        "if expires <= now then\n      await",
        "if false then\n      await",
    ),
    Bug(
        "a lapse comes after another event of its time",
        "includes/plan_due",
        "if not kind or when < time then",
        "if not kind or when <= time then",
    ),
    Bug(
        "a session becomes free when the next call comes",
        "includes/plan_due",
        "turn.does, turn.since, turn.changed = 'free', at, true",
        "turn.does, turn.since, turn.changed = 'free', now, true",
        "sessions",
    ),
    Bug("a cancellation is refused before due work ends", "cancel", "if p.more == 1 then", "if false then"),
    Bug(
        "a send is refused as full before due work ends",
        "includes/check_messages",
        "has_overdue(p) and refuse_while_due(p, full) or",
        "",
    ),
    Bug("settings change before due work is done", "configure", "p and has_overdue(p) and", "false and"),
    Bug(
        "a count shows states before due work",
        "count",
        "bands[before] = bands[before] - 1",
        "bands[before] = bands[before]",
    ),
    Bug("a peek shows states before due work", "peek", "if not o.by[name] then", "if true then"),
    # -- stored data of a message
    Bug(
        "the bytes of changed properties do not count",
        "includes/set_changes",
        "p.bytes + #changes - #e.changes",
        "p.bytes",
    ),
    Bug(
        "the event of an expired message stays",
        "includes/apply_due",
        "if m.index then",
        "if m.index and not p.dead then",
    ),
    # -- clocks, lanes, ids
    Bug("numbers are given twice after a failover", "includes/apply_due", "'seq', EPOCH_LEAP)", "'seq', 0)"),
    Bug(
        "a failover does not lengthen locks",
        "includes/begin",
        "math.max(clk, logical - lock)",
        "math.max(clk, logical)",
    ),
    Bug(
        "the lock clock goes back with the server clock",
        "includes/begin",
        "elseif logical < clk then",
        "elseif false then",
    ),
    Bug("a repeated send sends again", "send", "if p.repeated then", "if false then"),
    Bug("a lane is forgotten too soon", "includes/finish", "p.now - 900000", "p.now - 90000"),
    Bug(
        "the window of duplicates is too long", "includes/known_message_ids", "p.now - p.window", "p.now - p.window - 1"
    ),
    # -- waiting
    Bug("too many waiters are woken", "includes/wake_waiters", "work = work - wanted", "work = work"),
    Bug(
        "no waiter is woken for an earlier due time",
        "includes/wake_waiters",
        "if p.sooner < math.huge then",
        "if false then",
    ),
    Bug(
        "a leaving waiter does not pass on the due time",
        "includes/wake_waiters",
        "if p.left and not p.told then",
        "if false then",
    ),
    Bug("messages that are forwarded are received", "receive", "if p.forwards and side", "if false and side"),
    Bug(
        "forwarding keeps dead letters back",
        "receive",
        "if p.forwards and side.prefix == '' then",
        "if p.forwards then",
    ),
    Bug("a look finds no message", "receive", "side.from, side.to) > 0\n", "side.from, side.to) < 0\n"),
    Bug(
        "a look is at the wrong side",
        "receive",
        "p.order, side.from, side.to) > 0",
        "p.order, 0, side_named('').to) > 0",
    ),
    Bug(
        "a look that finds no message does not wait",
        "receive",
        "elseif n == 0 then",
        "elseif n == 0 and wanted > 0 then",
    ),
    Bug(
        "a look that finds a message still waits",
        "receive",
        "redis.call('ZREM', p.waiters, waiter .. ' ' .. waits_at.prefix)",
        "redis.call('ZREM', p.waiters, wanted > 0 and waiter .. ' ' .. waits_at.prefix or '')",
    ),
    Bug("a leaving receiver still waits", "receive", "waiter ~= '' and waiting_for > 0 then", "waiter ~= '' then"),
    Bug("the reported due time is too late", "includes/next_due", "first - p.now", "first - p.now + 1"),
    # -- sessions
    Bug("a session has two holders", "accept_session", "  if not other then\n", "  if true then\n", "sessions"),
    Bug(
        "the wrong session is accepted next",
        "accept_session",
        "'BYSCORE', 'LIMIT', 0, 1)[1]",
        "'BYSCORE', 'LIMIT', 0, 2)[2]",
        "sessions",
    ),
    Bug(
        "giving a session back counts a delivery",
        "includes/release_held",
        "e, false, 0)",
        "e, true, 0)",
        "sessions",
    ),
    Bug(
        "a delayed message of a session is overtaken",
        "includes/release",
        "block_session(p, e.session,",
        "tostring(p, e.session,",
        "sessions",
    ),
    Bug(
        "a session is blocked after its message expired",
        "includes/release",
        "block_session(p, e.session, math.min(p.now + delay, expires))",
        "block_session(p, e.session, p.now + delay)",
        "sessions",
    ),
    Bug(
        "a blocked session gives out messages",
        "includes/receive_in_session",
        "or 0) > p.now then",
        "or 0) > p.now + 9e14 then",
        "sessions",
    ),
    Bug(
        "a blocked session is free",
        "release_session",
        "if blocked > p.now then",
        "if false then",
        "sessions",
    ),
    Bug(
        "an expiry does not change the turn of a session",
        "includes/index_expire",
        "p.touched[session] = true",
        "p.touched[session] = p.touched[session] or true",
        "sessions",
    ),
    Bug(
        "a dead letter stays in its session",
        "includes/apply_dead_letter",
        "index_remove(p, mine.session, 'h', tonumber(member))",
        "",
        "sessions",
    ),
    Bug(
        "one message too many of a session is held",
        "includes/receive_in_session",
        "math.min(wanted, left)",
        "math.min(wanted, left + 1)",
        "sessions",
    ),
    Bug(
        "a holder is not woken",
        "includes/update_session_turns",
        "if ready and tonumber(",
        "if false and tonumber(",
        "sessions",
    ),
    Bug(
        "a holder is woken that may hold no more messages",
        "includes/update_session_turns",
        " and count_held(p, session) < MOST_HELD",
        "",
        "sessions",
    ),
    Bug(
        "a former holder still waits in its session",
        "includes/unlock_session",
        "  if waiter then\n",
        "  if false then\n",
        "sessions",
    ),
    Bug(
        "the bytes of a session state do not count",
        "includes/apply_state",
        "p.bytes = p.bytes + plan.growth",
        "p.bytes = p.bytes",
        "sessions",
    ),
    Bug(
        "a cleared session state stays in the index",
        "includes/apply_state",
        "redis.call('ZREM', p.index, stated)",
        "local _ = stated",
        "sessions",
    ),
    Bug(
        "locks without messages use no share",
        "includes/plan_due",
        "math.max(1, #members)",
        "#members",
        "sessions",
    ),
    Bug(
        "a session gives out another's deferred message",
        "receive_deferred",
        " and (not session or indexed[i])",
        "",
        "sessions",
    ),
    Bug("a purge of one session purges all", "purge", "  if not session then\n", "  if true then\n", "sessions"),
    Bug("a session purge leaves the deferred messages", "purge", "BAND - 1, '', 'p' },", "BAND - 1, '' },", "sessions"),
    Bug(
        "the lock of another session is accepted",
        "includes/session_lock_end",
        "held == session and",
        "held and",
        "sessions",
    ),
    Bug("a session with only a state is not listed", "list_sessions", "<= 107 then", "< 107 then", "sessions"),
    # -- topics
    Bug(
        "a record counts one copy too few",
        "includes/apply_publish",
        "refs[#refs + 1] = #copies[i]",
        "refs[#refs + 1] = #copies[i] - 1",
        "topic",
    ),
    Bug(
        "copies of a message have the same number",
        "includes/apply_publish",
        "local own = number + nth",
        "local own = number",
        "topic",
    ),
    Bug(
        "a copy loses its record",
        "includes/apply_publish",
        "nth > 0 and string.format('%.0f', number) or ''",
        "''",
        "topic",
    ),
    Bug(
        "a failed rule makes no dead letter",
        "includes/apply_publish",
        "if copy.dead or target.index",
        "if target.index",
        "topic",
    ),
    Bug(
        "a message without a session is let in",
        "includes/apply_publish",
        "copy.dead or target.index and not session",
        "copy.dead",
        "topic",
    ),
    Bug(
        "a new copy lives as long as its record",
        "includes/apply_publish",
        "if till < expires or changes",
        "if changes",
        "topic",
    ),
    Bug("a returned copy lives as long as its record", "includes/make_ready", " and not p.shared", "", "topic"),
    Bug(
        "a scheduled message is published twice",
        "includes/apply_publish",
        "redis.call('HDEL', key, origin)",
        "local _ = key",
        "topic",
    ),
    Bug(
        "a judged message waits after its time has passed",
        "includes/apply_publish",
        "elseif due and (due > p.now or not copies[i]) then",
        "elseif due then",
        "topic",
    ),
    Bug(
        "the bytes of rules' changes do not count",
        "includes/check_messages",
        " + total + changes >",
        " + total >",
        "topic",
    ),
    Bug(
        "a client that lost the role publishes",
        "includes/check_publish",
        ") > fence then",
        ") > fence + 9 then",
        "topic",
    ),
    Bug("a topic activates its scheduled messages", "includes/apply_due", "if p.topic then", "if false then", "topic"),
    Bug(
        "a dead letter gets a number lost in a failover",
        "includes/apply_publish",
        "target.leaps and 16777217 or 1",
        "1",
        "topic",
    ),
    Bug(
        "a record with one copy left stays counted",
        "includes/delete_records",
        "elseif others == '2' then",
        "elseif others == '0' then",
        "topic",
    ),
    Bug("a woken waiter is never given up", "includes/wake_waiters", "math.floor(score / 128)) > 100", "0) > 100"),
    *(Bug(*each, of="transactions") for each in IN_TRANSACTIONS),
)

EXAMPLES = 1_500
"""The number of partitions that the machine may run through until it has found a bug."""


def find(bug: Bug | None, server: LocalServer, *, examples: int = EXAMPLES) -> Finding | None:
    """Return how the machine finds a bug, or None if it finds none. Without a bug, None is the right result."""
    tally = Tally()
    changes = {bug.file: [(bug.right, bug.wrong)]} if bug else {}
    for name in ("narrow", "real"):
        read = with_bounds(BOUNDS[name], with_texts_replaced(changes))
        with host("server", read, server=server) as on:
            try:
                for what in [bug.of] if bug else MACHINES:
                    drive(on, tally, bounds=BOUNDS[name], examples=examples // 2, phases=(Phase.generate,), what=what)
            except AssertionError as error:
                text = str(error).partition("\n")[0]
                if "compiling" in text:
                    raise
                return Finding(tally.steps, text)
    return None


def _say(*lines: str) -> None:
    """Print output for the person at the terminal at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    bugs = [bug for bug in BUGS if not sys.argv[1:] or bug.name in sys.argv[1:]]
    wrong: list[str] = []
    with LocalServer() as server:
        for bug in (None, *bugs):
            started = time.monotonic()
            finding = find(bug, server, examples=EXAMPLES if bug else EXAMPLES // 5)
            name = bug.name if bug else "(no bug)"
            if (finding is None) is not (bug is None):
                wrong.append(name)
            found = f"found after {finding.steps:,} steps: {finding.how[:100]}" if finding else "not found"
            _say(f"{name:<46} {time.monotonic() - started:5.1f} s  {found}")
    _say(
        f"{len(bugs)} bugs, {len(wrong)} not as it should be: {wrong}" if wrong else f"all {len(bugs)} bugs were found"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
