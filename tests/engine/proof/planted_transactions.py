"""Bugs of transactions."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["IN_TRANSACTIONS"]

IN_TRANSACTIONS = (
    *bugs_in(
        "includes/check_operation",
        ("two operations settle one message", "«p.seen or →»{}"),
        ("two states of one session count in full", "«p.stated or →»{}"),
        ("a transaction takes a lost lock", "#lost > «0→1000»"),
        ("a transaction takes a dead letter of a dead letter", "if «not tonumber(groups[g].members[i])→false» then"),
    ),
    *bugs_in(
        "includes/check_transaction",
        ("the operations of a transaction overfill a queue", "«pending[p.store]→0», nil"),
        (
            "a watermark takes the message of a transaction before",
            "p.watermarks«, p.last_sent = nil,→ =» nil, nil, nil, nil, nil",
            "fill_up_in_one_call",
        ),
        ("a refusal names the operation before", "refuse_part(i«→ - 1», last)"),
        ("a refused transaction has settled its messages", "p.seen, p.stated«→ = p.seen, p.stated --»"),
        (
            "a refused transaction of a call still stores its messages",
            (
                "«local from, pending = transaction.from, {}"
                "→participants.q = participants.q or {}\n  local from, pending = transaction.from, participants.q»"
            ),
            "fill_up_in_one_call",
        ),
        (
            "the quota does not know of the transactions before",
            "p.unwritten = «(p.unwritten or 0) + other.bytes→nil»",
            "fill_up_in_one_call",
        ),
        (
            "the quota knows only of its own partition",
            "other«.store == p.store→ == p» and other.bytes ~= 0",
            "fill_up_in_one_call",
        ),
        (
            "a scheduled message is published before it is written",
            "      «flush(p) →»-- these",
            "publish_what_the_call_schedules",
        ),
        (
            "wrong knowledge of a participant refuses other transactions",
            "«→p = participants[2] and participants[2].refused and participants[2] or p\n    »if p.refused then",
        ),
    ),
    *bugs_in(
        "includes/advance_participants",
        ("only the first participant does its due work", "for place = 1, «count→1» do"),
        ("each participant does a whole share", "«math.ceil(100 / count)→100»"),
        ("each participant reads as much as all may", "«math.floor(2097152 / count)→2097152»"),
        ("each transaction does due work", "if «participants[1].advanced→false» then"),
    ),
    *bugs_in(
        "transact",
        ("only the first participant is written", "for place = «count, 1, -→1, »1 do"),
        ("a repeated transaction has no results", "place == «1→9» and"),
        ("subscriptions are written only if they take part", "finish_targets(«targets→{}»)"),
        ("a refusal ends the call", "    results[i + 1] = '!' .. refused.err\n«→    transactions = {}\n»"),
    ),
    *bugs_in("includes/check_once", ("a key is known after its window", "«tonumber(known[i]) > p.now→known[i]» then")),
    *bugs_in("includes/apply_once", ("a forgotten key leaves its bytes", "size, count = size« - #list[i]→»,")),
    *bugs_in(
        "includes/check_advance",
        ("a watermark advances from any value", "«(stored or '') ~= expected→false»"),
        ("a removed watermark still counts", "«value == '' and -1 or→»"),
    ),
    *bugs_in(
        "includes/apply_advance",
        ("a watermark forgets the message that was sent with it", "p.last_sent or «plan.number→0»"),
    ),
    *bugs_in(
        "includes/open_targets", ("a subscription that takes part is opened twice", "«open and open[keys[at]] or →»{")
    ),
    *bugs_in(
        "includes/open_participants", ("a failover goes unnoticed by other participants", "{ «argv[1]→'?'», words")
    ),
    *bugs_in("includes/release_from_lease", ("two operations on one lease count it twice", "= mine«.lease→»")),
    *bugs_in(
        "includes/apply_operation",
        ("abandoned in a transaction, a delivery always counts", "plan, argv, «argv[1]→'1'»)"),
    ),
    *bugs_in(
        "includes/refuse_full",
        ("the state of a session ignores the messages before it", "«(p.pending or 0) + →»growth"),
        ("messages of a transaction before are not due yet", "«flush(p.beside[i])→»", "need_room_in_one_call"),
    ),
    *bugs_in(
        "includes/apply_transaction",
        ("a message is settled by two transactions of a call", "«p.settled[names[j]] = true→»"),
        (
            "a subscription of an earlier transaction is forgotten",
            "targets[target], targets[«#targets + →»1] = true, target",
        ),
    ),
    *bugs_in(
        "includes/still_held",
        ("a lease counts as it was before the call", "«lease = lease or p.released and p.released[token]→»"),
    ),
    *bugs_in(
        "includes/check_publish",
        ("the fence of a transaction before is not seen", "«p.changed.route_fence or →»", "lose_the_role_in_a_call"),
    ),
    *bugs_in(
        "includes/refuse_while_due",
        ("a call that puts one transaction off ends as a whole", "if «p.advanced→false» then", "need_room_in_one_call"),
        ("a call forgets its lane with a refused transaction", "p.lane = «lane→''»", "need_room_in_one_call"),
    ),
    *bugs_in(
        "includes/delete_later",
        ("a deleted message takes another's record along", "gone.stored[n + i] = «stored→names»[i]"),
    ),
)
