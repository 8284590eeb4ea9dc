"""Bugs of calls: clocks, lanes, message ids, and who may receive."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["OF_CALLS"]

OF_CALLS = (
    # -- clocks, lanes, ids
    *bugs_in("includes/apply_due", ("numbers are given twice after a failover", "'seq', «EPOCH_LEAP→0»)")),
    *bugs_in(
        "includes/begin",
        ("a failover does not lengthen locks", "math.max(clk, logical« - lock→»)"),
        ("the lock clock goes back with the server clock", "elseif «logical < clk→false» then"),
    ),
    *bugs_in("send", ("a repeated send sends again", "if «p.repeated→false» then")),
    *bugs_in("includes/finish", ("a lane is forgotten too soon", "p.now - «900000→90000»")),
    *bugs_in(
        "includes/known_message_ids",
        (
            "the window of duplicates is too long",
            "    return nil\n  end\n  «→p = setmetatable({ window = p.window + 1 }, { __index = p })\n  »local old",
        ),
    ),
    # -- credit
    *bugs_in(
        "includes/take_grant",
        ("messages that are forwarded are received", "«or p.forwards and 'FORWARDS receive'→»"),
        ("forwarding keeps dead letters back", "«elseif g.source == '' or g.source == 'next' or g.session then→else»"),
    ),
    *bugs_in("includes/next_due", ("the reported due time is too late", "first - p.now«→ + 1»")),
)
