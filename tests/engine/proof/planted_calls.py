"""Bugs of calls: clocks, lanes, message ids, and who may receive."""

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
        right="    return nil\n  end\n  local old",
        wrong="    return nil\n  end\n  p = setmetatable({ window = p.window + 1 }, { __index = p })\n  local old",
    ),
    # -- credit
    Bug(
        "messages that are forwarded are received",
        file="includes/take_grant",
        right="or p.forwards and 'FORWARDS receive'",
        wrong="",
    ),
    Bug(
        "forwarding keeps dead letters back",
        file="includes/take_grant",
        right="elseif g.source == '' or g.source == 'next' or g.session then",
        wrong="else",
    ),
    Bug(
        "the reported due time is too late",
        file="includes/next_due",
        right="first - p.now",
        wrong="first - p.now + 1",
    ),
)
