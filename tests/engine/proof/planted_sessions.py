"""Bugs of sessions."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["OF_SESSIONS"]

OF_SESSIONS = (
    Bug(
        "a session has two holders",
        file="accept_session",
        right="if other then\n",
        wrong="if false then\n",
        of="sessions",
    ),
    Bug(
        "the wrong session is accepted next",
        file="includes/choose_gift",
        right="'BYSCORE', 'LIMIT', 0, 1)[1]",
        wrong="'BYSCORE', 'LIMIT', 0, 2)[2]",
        of="sessions",
    ),
    Bug(
        "giving a session back counts a delivery",
        file="includes/release_held",
        right="e, false, 0)",
        wrong="e, true, 0)",
        of="sessions",
    ),
    Bug(
        "a delayed message of a session is overtaken",
        file="includes/release",
        right="block_session(p, e.session,",
        wrong="tostring(p, e.session,",
        of="sessions",
    ),
    Bug(
        "a session is blocked after its message expired",
        file="includes/release",
        right="block_session(p, e.session, math.min(p.now + delay, expires))",
        wrong="block_session(p, e.session, p.now + delay)",
        of="sessions",
    ),
    Bug(
        "a blocked session gives out messages",
        file="includes/ready_count",
        right="or 0) > p.now then",
        wrong="or 0) > p.now + 9e14 then",
        of="sessions",
    ),
    Bug(
        "a blocked session is free",
        file="includes/let_go_of_session",
        right="if blocked > p.now then",
        wrong="if false then",
        of="sessions",
    ),
    Bug(
        "a purge does not change the turn of a session",
        file="purge",
        right="p.touched[of] = true",
        wrong="local _ = of",
        of="sessions",
    ),
    Bug(
        "a dead letter stays in its session",
        file="includes/apply_dead_letter",
        right="index_remove(p, mine.session, 'h', tonumber(member))",
        wrong="",
        of="sessions",
    ),
    Bug(
        "one message too many of a session is held",
        file="includes/ready_count",
        right="MOST_HELD - count_held",
        wrong="MOST_HELD + 1 - count_held",
        of="sessions",
    ),
    Bug(
        "the bytes of a session state do not count",
        file="includes/apply_state",
        right="p.bytes = p.bytes + plan.growth",
        wrong="p.bytes = p.bytes",
        of="sessions",
    ),
    Bug(
        "a cleared session state stays in the index",
        file="includes/apply_state",
        right="redis.call('ZREM', p.index, stated)",
        wrong="local _ = stated",
        of="sessions",
    ),
    Bug(
        "locks without messages use no share",
        file="includes/lapse_session",
        right="math.max(1, #members)",
        wrong="#members",
        of="sessions",
    ),
    Bug(
        "a session gives out another's deferred message",
        file="receive_deferred",
        right=" and (not session or indexed[i])",
        wrong="",
        of="sessions",
    ),
    Bug(
        "a purge of one session purges all",
        file="purge",
        right="  if not session then\n",
        wrong="  if true then\n",
        of="sessions",
    ),
    Bug(
        "a session purge leaves the deferred messages",
        file="purge",
        right="BAND - 1, '', 'p' }",
        wrong="BAND - 1, '' }",
        of="sessions",
    ),
    Bug(
        "the lock of another session is accepted",
        file="includes/session_lock_end",
        right="(held == session or not session) and",
        wrong="",
        of="sessions",
    ),
    Bug(
        "a session with only a state is not listed",
        file="list_sessions",
        right="<= 107 then",
        wrong="< 107 then",
        of="sessions",
    ),
    Bug(
        "the lease of a session stays when its lock ends",
        file="includes/unlock_session",
        right="  redis.call('HDEL', p.leases, token)\n",
        wrong="",
        of="sessions",
    ),
)
