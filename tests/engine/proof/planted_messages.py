"""Bugs of messages: their lives, their locks, their data, and what time does to them."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in, found_by

__all__ = ["OF_MESSAGES"]

OF_MESSAGES = (
    # -- the life of a message
    *bugs_in(
        "includes/state_after_lock",
        ("a message gets one delivery too many", "e.failures «>=→>» p.deliveries"),
        ("lapses do not count", "e.failures = e.failures« + 1→»"),
        ("the delivery count of a dead letter rises", "if counted «and side.prefix == '' →»then"),
    ),
    *bugs_in(
        "includes/choose_messages",
        ("the expiry event of a locked message stays", "        if «expires→false» then\n          p.unawaited"),
    ),
    *bugs_in(
        "includes/apply_release",
        ("a deferred message returns as an active one", "e.home = '«f→a»'"),
        ("deferring does not count as a failed delivery", "«deferred or →»how == '1'"),
    ),
    *bugs_in(
        "receive_deferred",
        ("deferred messages never expire", "21, 33)) «<= p.now→< 0» then"),
        ("messages without room are not left out", "local left = «#members - fit→0»"),
        ("deferred messages are deleted in part", "if left > «0→#members» and mode == 'delete' then"),
    ),
    *bugs_in("peek", ("a peek hides that a locked message was deferred", "if «states[n] == 'l'→false» and")),
    *bugs_in(
        "includes/release",
        (
            "a delay ends after the message has expired",
            "add_pair(p.awaited, «math.min(p.now + delay, expires)→p.now + delay»,",
        ),
    ),
    *bugs_in("includes/make_ready", ("a returned message gets another level", "«tonumber(e.level) * BAND→0»")),
    *bugs_in("includes/mark_dead", ("a dead letter loses its record", "e.record = «member→''»")),
    *bugs_in("cancel", ("scheduled messages are cancelled in part", "if #missing «== 0→< #members» then")),
    *bugs_in("purge", ("a purge deletes a message that is not old enough", "3, 15)) «<→<=» before")),
    # -- leases
    *bugs_in(
        "includes/release_from_lease",
        ("the message count of a lease does not fall", "lease.left« - count→»"),
        ("the lease of a single message outlives it", "pairs(«mine.alone or →»{})"),
    ),
    *bugs_in(
        "includes/apply_renew",
        (
            "a message that is renewed alone does not say so in its entry",
            "string.«char(string.byte(text, 12) + 64)→sub(text, 12, 12)»",
        ),
        (
            "the lease of a single message is not extended with that of its token",
            "«(not whole or alone)→not whole» and",
        ),
        ("a part of a lease extends the whole", "«#names == lease.left and→»"),
    ),
    *bugs_in(
        "includes/lapse_lease",
        ("a message that was renewed alone lapses with the lease of its token", "if «→not alone or »later < 0 or"),
        (
            "a message that was renewed alone lapses with its own lease, although that of its token holds",
            "if later < 0 or alone «and later == 0 →»then",
        ),
        ("a message whose two leases end at the same time never lapses", " «or alone and later == 0 →»then"),
    ),
    *bugs_in(
        "includes/still_held",
        ("the end of a single message's lease is not checked", "own« and lease_end(p, token .. member) > p.logical→»"),
        ("the end of a lease is not checked", "p.settled, «tonumber(lease.till) > p.logical→lease.till ~= '0'»"),
        ("a wrong token is accepted", "text« and string.sub(text, 1, 11) == token→»"),
    ),
    *bugs_in("includes/make_ready", ("an interruption is forgotten", "« and e.home == 'a'→»")),
    *bugs_in(
        "includes/state_after_lock",
        ("an interruption is reported for ever", "interrupted or «not counted and →»(e.home"),
        (
            "an interruption is forgotten when a message is released unread",
            "interrupted« or not counted and (e.home == 'i' or e.home == 'g')→»",
        ),
    ),
    *bugs_in(
        "includes/release",
        ("a settlement leaves the mark of a suspect", "«    e.mark = ' '\n→»"),
        ("an uncounted release clears the mark of a suspect", "  if «counted→true» then\n    e.mark"),
    ),
    *bugs_in(
        "includes/lapse_message",
        ("a dead letter says one end of its holders too few", "note_dead(o, m, string.char(«48→47» + lapses))"),
        ("lapses are not counted beyond two", "- 48, «13→1»))"),
    ),
    *bugs_in(
        "renew",
        ("a lease that has ended is extended as a whole", "«tonumber(lease.till) > p.logical and→»"),
        ("a whole lease is not extended", "«renew_lease(p, mine.token, lease)→»"),
    ),
    # -- bounds
    *bugs_in(
        "includes/renew_lease",
        (
            "the end of a renewed lock goes unnoticed",
            (
                "«write_lease(p, token, p.logical + p.lock, lease.left, lease.runs)→local bound = p.next_lock; "
                "write_lease(p, token, p.logical + p.lock, lease.left, lease.runs); p.next_lock = bound»"
            ),
        ),
    ),
    *bugs_in(
        "includes/note_lease_end", ("the end of the first lock goes unnoticed", "if «till < p.next_lock→false» then")
    ),
    *bugs_in("includes/flush", ("the first due event goes unnoticed", "if «p.awaited[i] < p.next_due→false» then")),
    *bugs_in("includes/index_expiry", ("the first expiry goes unnoticed", "if «expires < p.head→false» then")),
    *bugs_in("includes/compute_due", ("a used-up share reports no more due work", "      o.more = «1→0»\n      break")),
    # -- time
    *bugs_in(
        "includes/happen",
        ("a message is enqueued when the next call comes", "activate(p, o, member, «time→p.now»)"),
        ("a delay ends when the next call comes", "note_ready(p, o, m, «time→p.now»)"),
    ),
    *bugs_in("includes/compute_due", ("a lock lapses when the next call comes", "o.locks[o.at_lock], «time→p.now»)")),
    *bugs_in(
        "includes/activate",
        ("a message that becomes active too late stays", "if «expires <= p.now→false» then\n    await"),
    ),
    *bugs_in(
        "includes/next_event", ("a lapse comes after another event of its time", "if not kind or when «<→<=» time then")
    ),
    *found_by(
        "sessions",
        bugs_in(
            "includes/supply_turn", ("a session becomes free when the next call comes", "settle_turn(turn, «at→p.now»)")
        ),
    ),
    *bugs_in("cancel", ("a cancellation is refused before due work ends", "if «p.more == 1→false» then")),
    *bugs_in(
        "includes/refuse_full",
        ("a send is refused as full before due work ends", "«has_overdue(p) and refuse_while_due(p, full) or→»"),
    ),
    *bugs_in("configure", ("settings change before due work is done", "«p and has_overdue(p)→false» and")),
    *bugs_in("count", ("a count shows states before due work", "bands[before] = bands[before]« - 1→»")),
    *bugs_in(
        "peek",
        ("a peek shows states before due work", "«(list.moved or not o.by[name])→true»"),
        ("a peek looks for the record of a dead letter under its own number", "«other ~= '' and other or →»part[i]"),
        ("a peek shows a message with a higher number first", "«list.number <= second and→»"),
    ),
    # -- stored data of a message
    *bugs_in(
        "includes/set_changes",
        ("the bytes of changed properties do not count", "p.bytes« + #changes - #e.changes→»"),
        ("the largest message is measured without its changed properties", "note_size(p, e.size« + #changes→»)"),
    ),
    *bugs_in(
        "includes/too_many_ids",
        ("duplicate detection remembers more ids than it may", "known «+ new →»> most"),
        ("ids that the call repeats count as new ones", "if «not seen[i]→true» or"),
    ),
    *bugs_in("includes/apply_due", ("the event of an expired message stays", "if m.index «→and not p.dead »then")),
    *bugs_in(
        "cancel",
        ("the event of a cancelled message stays", "«    p.unawaited[#p.unawaited + 1] = due_name('a', member)\n→»"),
    ),
    *bugs_in(
        "includes/known_message_ids",
        ("message ids beyond the window stay", "«    write_many('ZREM', p.dedup, old)\n→»"),
    ),
    *bugs_in("purge", ("a purge leaves the events of its messages", "if kind == 'd' «or kind == 'e' →»and")),
    *bugs_in(
        "includes/drop_record",
        ("the bytes of changed properties stay when their message is deleted", "«  p.bytes = p.bytes - changes\n→»"),
    ),
    *bugs_in("includes/still_held", ("a call settles a message twice", "          all[names[j]] = «true→nil»")),
    *bugs_in("destroy", ("a partition of another incarnation is destroyed", "if «w[1] ~= ARGV[2]→false» then")),
)
