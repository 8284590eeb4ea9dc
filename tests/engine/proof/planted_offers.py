"""Bugs of offers: messages that a partition locks for a receiver that waits."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["OF_OFFERS"]

_AIMS = ("take_an_offer", "stand_in_line")

OF_OFFERS = (
    Bug(
        "an offer that nobody hears locks messages",
        file="includes/offer_messages",
        right="if listening[2] == 0 then",
        wrong="if false then",
        aims=_AIMS,
    ),
    Bug(
        "a receiver with an offer is woken again",
        file="includes/offer_messages",
        right="  redis.call('ZREM', p.waiters, member)\n  redis.call('HDEL', p.states, 'a' .. member)\n",
        wrong="",
        aims=_AIMS,
    ),
    Bug(
        "an offer has more messages than its receiver asked for",
        file="includes/offer_messages",
        right="math.min(wanted, most, 16)",
        wrong="16",
        aims=_AIMS,
    ),
    Bug(
        "an offer has a message that is too large",
        file="includes/offer_messages",
        right="16384, 0)",
        wrong="16384, 1)",
        aims=_AIMS,
    ),
    Bug(
        "a lapsed offer counts as a failed delivery",
        file="includes/plan_due",
        right="lapse(m, at, not offer)",
        wrong="lapse(m, at, true)",
        aims=_AIMS,
    ),
    Bug(
        "no call notices that an offer has lapsed",
        file="includes/has_overdue",
        right="or p.offered <= p.logical ",
        wrong="",
        aims=_AIMS,
    ),
    Bug(
        "the bound of offers is not brought up to date",
        file="includes/apply_due",
        right="p.offered = tonumber(offer[2] or 2 * NEVER) - NEVER\n",
        wrong="p.offered = NEVER\n",
        aims=_AIMS,
    ),
    Bug(
        "a taken offer still lapses after a second",
        file="includes/take_offer",
        right="write_lease(p, token, p.logical + p.lock, left, runs)",
        wrong="write_lease(p, token, p.logical + p.lock, left, plus .. runs)",
        aims=_AIMS,
    ),
    Bug(
        "a declined offer stays locked",
        file="includes/take_offer",
        right="if plus ~= '' then",
        wrong="if false then",
        aims=_AIMS,
    ),
    Bug(
        "a declined offer counts as a failed delivery",
        file="includes/take_offer",
        right="entry(entries[i]), false, 0)",
        wrong="entry(entries[i]), true, 0)",
        aims=_AIMS,
    ),
    Bug(
        "a lock that was taken is released as an offer",
        file="includes/take_offer",
        right="if plus ~= '' then",
        wrong="if true then",
        aims=_AIMS,
    ),
    Bug(
        "a renewal does not take an offer",
        file="renew",
        right="string.match(lease.runs, '^%+?(.*)$')",
        wrong="lease.runs",
        aims=_AIMS,
    ),
    Bug(
        "a receiver with an offer does not pass on the due time",
        file="receive",
        right="p.left, taken = true, take_offer",
        wrong="p.left, taken = p.left, take_offer",
        aims=_AIMS,
    ),
    Bug(
        "a repetition reports a lost offer as taken",
        file="receive",
        right="again[9], again[10] = till and math.max(0, till - p.logical) or 0",
        wrong="again[9], again[10] = takes and p.lock or 0",
        aims=_AIMS,
    ),
)
