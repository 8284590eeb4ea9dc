"""Bugs of sessions."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["OF_SESSIONS"]

OF_SESSIONS = (
    *bugs_in("accept_session", ("a session has two holders", "if «other→false» then\n")),
    *bugs_in("includes/choose_gift", ("the wrong session is accepted next", "'BYSCORE', 'LIMIT', 0, «1)[1→2)[2»]")),
    *bugs_in("includes/release_held", ("giving a session back counts a delivery", "e, «false→true», 0)")),
    *bugs_in(
        "includes/release",
        ("a delayed message of a session is overtaken", "«block_session→tostring»(p, e.session,"),
        (
            "a session is blocked after its message expired",
            "block_session(p, e.session, «math.min(p.now + delay, expires)→p.now + delay»)",
        ),
    ),
    *bugs_in(
        "includes/ready_count",
        ("a blocked session gives out messages", "or 0) > p.now «→+ 9e14 »then"),
        ("one message too many of a session is held", "MOST_HELD «→+ 1 »- count_held"),
    ),
    *bugs_in("includes/let_go_of_session", ("a blocked session is free", "if «blocked > p.now→false» then")),
    *bugs_in(
        "purge",
        ("a purge does not change the turn of a session", "«p.touched[of] = true→local _ = of»"),
        ("a purge of one session purges all", "  if «not session→true» then\n"),
        ("a session purge leaves the deferred messages", "BAND - 1, ''«, 'p'→» }"),
    ),
    *bugs_in(
        "includes/apply_dead_letter",
        ("a dead letter stays in its session", "«index_remove(p, mine.session, 'h', tonumber(member))→»"),
    ),
    *bugs_in(
        "includes/apply_state",
        ("the bytes of a session state do not count", "p.bytes = p.bytes« + plan.growth→»"),
        ("a cleared session state stays in the index", "«redis.call('ZREM', p.index, stated)→local _ = stated»"),
    ),
    *bugs_in("includes/lapse_session", ("locks without messages use no share", "«math.max(1, #members)→#members»")),
    *bugs_in(
        "receive_deferred", ("a session gives out another's deferred message", "« and (not session or indexed[i])→»")
    ),
    *bugs_in(
        "includes/session_lock_end",
        ("the lock of another session is accepted", "«(held == session or not session) and→»"),
    ),
    *bugs_in("list_sessions", ("a session with only a state is not listed", "«<=→<» 107 then")),
    *bugs_in(
        "includes/unlock_session",
        ("the lease of a session stays when its lock ends", "«  redis.call('HDEL', p.leases, token)\n→»"),
    ),
)
