"""Bugs of messages: their lives, their locks, their data, and what time does to them."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["OF_MESSAGES"]

OF_MESSAGES = (
    # -- the life of a message
    Bug(
        "a message gets one delivery too many",
        file="includes/state_after_lock",
        right="e.failures >= p.deliveries",
        wrong="e.failures > p.deliveries",
    ),
    Bug(
        "lapses do not count",
        file="includes/state_after_lock",
        right="e.failures = e.failures + 1",
        wrong="e.failures = e.failures",
    ),
    Bug(
        "the expiry event of a locked message stays",
        file="includes/choose_messages",
        right="        if expires then\n          p.unawaited",
        wrong="        if false then\n          p.unawaited",
    ),
    Bug(
        "a deferred message returns as an active one",
        file="includes/apply_release",
        right="e.home = 'f'",
        wrong="e.home = 'a'",
    ),
    Bug(
        "deferred messages never expire",
        file="receive_deferred",
        right="21, 33)) <= p.now then",
        wrong="21, 33)) < 0 then",
    ),
    Bug(
        "messages without room are not left out",
        file="receive_deferred",
        right="local left = #members - fit",
        wrong="local left = 0",
    ),
    Bug(
        "a peek hides that a locked message was deferred",
        file="peek",
        right="if states[n] == 'l' and",
        wrong="if false and",
    ),
    Bug(
        "deferred messages are deleted in part",
        file="receive_deferred",
        right="if left > 0 and mode == 'delete' then",
        wrong="if left > #members and mode == 'delete' then",
    ),
    Bug(
        "deferring does not count as a failed delivery",
        file="includes/apply_release",
        right="deferred or how == '1'",
        wrong="how == '1'",
    ),
    Bug(
        "the delivery count of a dead letter rises",
        file="includes/state_after_lock",
        right="if counted and side.prefix == '' then",
        wrong="if counted then",
    ),
    Bug(
        "a delay ends after the message has expired",
        file="includes/release",
        right="add_pair(p.awaited, math.min(p.now + delay, expires),",
        wrong="add_pair(p.awaited, p.now + delay,",
    ),
    Bug(
        "a returned message gets another level",
        file="includes/make_ready",
        right="tonumber(e.level) * BAND",
        wrong="0",
    ),
    Bug(
        "a dead letter loses its record",
        file="includes/mark_dead",
        right="e.record = member",
        wrong="e.record = ''",
    ),
    Bug(
        "scheduled messages are cancelled in part",
        file="cancel",
        right="if #missing == 0 then",
        wrong="if #missing < #members then",
    ),
    Bug(
        "a purge deletes a message that is not old enough",
        file="purge",
        right="3, 15)) < before",
        wrong="3, 15)) <= before",
    ),
    # -- leases
    Bug(
        "the message count of a lease does not fall",
        file="includes/release_from_lease",
        right="lease.left - count",
        wrong="lease.left",
    ),
    Bug(
        "a message that is renewed alone does not say so in its entry",
        file="includes/apply_renew",
        right="string.char(string.byte(text, 12) + 64)",
        wrong="string.sub(text, 12, 12)",
    ),
    Bug(
        "the lease of a single message is not extended with that of its token",
        file="includes/apply_renew",
        right="(not whole or alone) and",
        wrong="not whole and",
    ),
    Bug(
        "a part of a lease extends the whole",
        file="includes/apply_renew",
        right="#names == lease.left and",
        wrong="",
    ),
    Bug(
        "a message that was renewed alone lapses with the lease of its token",
        file="includes/lapse_lease",
        right="if later < 0 or",
        wrong="if not alone or later < 0 or",
    ),
    Bug(
        "a message that was renewed alone lapses with its own lease, although that of its token holds",
        file="includes/lapse_lease",
        right="if later < 0 or alone and later == 0 then",
        wrong="if later < 0 or alone then",
    ),
    Bug(
        "a message whose two leases end at the same time never lapses",
        file="includes/lapse_lease",
        right=" or alone and later == 0 then",
        wrong=" then",
    ),
    Bug(
        "the lease of a single message outlives it",
        file="includes/release_from_lease",
        right="pairs(mine.alone or {})",
        wrong="pairs({})",
    ),
    Bug(
        "the end of a single message's lease is not checked",
        file="includes/still_held",
        right="own and lease_end(p, token .. member) > p.logical",
        wrong="own",
    ),
    Bug(
        "an interruption is forgotten",
        file="includes/make_ready",
        right=" and e.home == 'a'",
        wrong="",
    ),
    Bug(
        "an interruption is reported for ever",
        file="includes/state_after_lock",
        right="interrupted or not counted and (e.home",
        wrong="interrupted or (e.home",
    ),
    Bug(
        "a settlement leaves the mark of a suspect",
        file="includes/release",
        right="    e.mark = ' '\n",
        wrong="",
    ),
    Bug(
        "a dead letter says one end of its holders too few",
        file="includes/lapse_message",
        right="note_dead(o, m, string.char(48 + lapses))",
        wrong="note_dead(o, m, string.char(47 + lapses))",
    ),
    Bug(
        "lapses are not counted beyond two",
        file="includes/lapse_message",
        right="- 48, 13))",
        wrong="- 48, 1))",
    ),
    Bug(
        "an uncounted release clears the mark of a suspect",
        file="includes/release",
        right="  if counted then\n    e.mark",
        wrong="  if true then\n    e.mark",
    ),
    Bug(
        "an interruption is forgotten when a message is released unread",
        file="includes/state_after_lock",
        right="interrupted or not counted and (e.home == 'i' or e.home == 'g')",
        wrong="interrupted",
    ),
    Bug(
        "a lease that has ended is extended as a whole",
        file="renew",
        right="tonumber(lease.till) > p.logical and",
        wrong="",
    ),
    Bug(
        "a whole lease is not extended",
        file="renew",
        right="renew_lease(p, mine.token, lease)",
        wrong="",
    ),
    Bug(
        "the end of a lease is not checked",
        file="includes/still_held",
        right="p.settled, tonumber(lease.till) > p.logical",
        wrong="p.settled, lease.till ~= '0'",
    ),
    Bug(
        "a wrong token is accepted",
        file="includes/still_held",
        right="text and string.sub(text, 1, 11) == token",
        wrong="text",
    ),
    # -- bounds
    Bug(
        "the end of a renewed lock goes unnoticed",
        file="includes/renew_lease",
        right="write_lease(p, token, p.logical + p.lock, lease.left, lease.runs)",
        wrong="local bound = p.next_lock; write_lease(p, token, p.logical + p.lock, lease.left, lease.runs); "
        "p.next_lock = bound",
    ),
    Bug(
        "the end of the first lock goes unnoticed",
        file="includes/note_lease_end",
        right="if till < p.next_lock then",
        wrong="if false then",
    ),
    Bug(
        "the first due event goes unnoticed",
        file="includes/flush",
        right="if p.awaited[i] < p.next_due then",
        wrong="if false then",
    ),
    Bug(
        "the first expiry goes unnoticed",
        file="includes/index_expiry",
        right="if expires < p.head then",
        wrong="if false then",
    ),
    Bug(
        "a used-up share reports no more due work",
        file="includes/compute_due",
        right="      o.more = 1\n      break",
        wrong="      o.more = 0\n      break",
    ),
    # -- time
    Bug(
        "a message is enqueued when the next call comes",
        file="includes/happen",
        right="activate(p, o, member, time)",
        wrong="activate(p, o, member, p.now)",
    ),
    Bug(
        "a lock lapses when the next call comes",
        file="includes/compute_due",
        right="o.locks[o.at_lock], time)",
        wrong="o.locks[o.at_lock], p.now)",
    ),
    Bug(
        "a delay ends when the next call comes",
        file="includes/happen",
        right="note_ready(p, o, m, time)",
        wrong="note_ready(p, o, m, p.now)",
    ),
    Bug(
        "a message that becomes active too late stays",
        file="includes/activate",
        right="if expires <= p.now then\n    await",
        wrong="if false then\n    await",
    ),
    Bug(
        "a lapse comes after another event of its time",
        file="includes/next_event",
        right="if not kind or when < time then",
        wrong="if not kind or when <= time then",
    ),
    Bug(
        "a session becomes free when the next call comes",
        file="includes/supply_turn",
        right="settle_turn(turn, at)",
        wrong="settle_turn(turn, p.now)",
        of="sessions",
    ),
    Bug(
        "a cancellation is refused before due work ends",
        file="cancel",
        right="if p.more == 1 then",
        wrong="if false then",
    ),
    Bug(
        "a send is refused as full before due work ends",
        file="includes/refuse_full",
        right="has_overdue(p) and refuse_while_due(p, full) or",
        wrong="",
    ),
    Bug(
        "settings change before due work is done",
        file="configure",
        right="p and has_overdue(p) and",
        wrong="false and",
    ),
    Bug(
        "a count shows states before due work",
        file="count",
        right="bands[before] = bands[before] - 1",
        wrong="bands[before] = bands[before]",
    ),
    Bug(
        "a peek shows states before due work",
        file="peek",
        right="(list.moved or not o.by[name])",
        wrong="true",
    ),
    Bug(
        "a peek looks for the record of a dead letter under its own number",
        file="peek",
        right="other ~= '' and other or part[i]",
        wrong="part[i]",
    ),
    Bug(
        "a peek shows a message with a higher number first",
        file="peek",
        right="list.number <= second and",
        wrong="",
    ),
    # -- stored data of a message
    Bug(
        "the bytes of changed properties do not count",
        file="includes/set_changes",
        right="p.bytes + #changes - #e.changes",
        wrong="p.bytes",
    ),
    Bug(
        "the largest message is measured without its changed properties",
        file="includes/set_changes",
        right="note_size(p, e.size + #changes)",
        wrong="note_size(p, e.size)",
    ),
    Bug(
        "duplicate detection remembers more ids than it may",
        file="includes/too_many_ids",
        right="known + new > most",
        wrong="known > most",
    ),
    Bug(
        "ids that the call repeats count as new ones",
        file="includes/too_many_ids",
        right="if not seen[i] or",
        wrong="if true or",
    ),
    Bug(
        "the event of an expired message stays",
        file="includes/apply_due",
        right="if m.index then",
        wrong="if m.index and not p.dead then",
    ),
    Bug(
        "the event of a cancelled message stays",
        file="cancel",
        right="    p.unawaited[#p.unawaited + 1] = due_name('a', member)\n",
        wrong="",
    ),
    Bug(
        "message ids beyond the window stay",
        file="includes/known_message_ids",
        right="    write_many('ZREM', p.dedup, old)\n",
        wrong="",
    ),
    Bug(
        "a purge leaves the events of its messages",
        file="purge",
        right="if kind == 'd' or kind == 'e' and",
        wrong="if kind == 'd' and",
    ),
    Bug(
        "the bytes of changed properties stay when their message is deleted",
        file="includes/drop_record",
        right="  p.bytes = p.bytes - changes\n",
        wrong="",
    ),
    Bug(
        "a call settles a message twice",
        file="includes/still_held",
        right="          all[names[j]] = true",
        wrong="          all[names[j]] = nil",
    ),
    Bug(
        "a partition of another incarnation is destroyed",
        file="destroy",
        right="if w[1] ~= ARGV[2] then",
        wrong="if false then",
    ),
)
