"""Bugs of topics and their subscriptions."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["OF_TOPICS"]

OF_TOPICS = (
    Bug(
        "a record counts one copy too few",
        file="includes/apply_publish",
        right="refs[#refs + 1] = #copies[i]",
        wrong="refs[#refs + 1] = #copies[i] - 1",
        of="topic",
    ),
    Bug(
        "copies of a message have the same number",
        file="includes/apply_publish",
        right="local own = number + nth",
        wrong="local own = number",
        of="topic",
    ),
    Bug(
        "a copy loses its record",
        file="includes/apply_publish",
        right="nth > 0 and string.format('%.0f', number) or ''",
        wrong="''",
        of="topic",
    ),
    Bug(
        "a failed rule makes no dead letter",
        file="includes/apply_publish",
        right="if copy.dead or target.index",
        wrong="if target.index",
        of="topic",
    ),
    Bug(
        "a message without a session is let in",
        file="includes/apply_publish",
        right="copy.dead or target.index and not session",
        wrong="copy.dead",
        of="topic",
    ),
    Bug(
        "a new copy lives as long as its record",
        file="includes/apply_publish",
        right="if till < expires or changes",
        wrong="if changes",
        of="topic",
    ),
    Bug(
        "a returned copy lives as long as its record",
        file="includes/make_ready",
        right=" and not p.shared",
        wrong="",
        of="topic",
    ),
    Bug(
        "a scheduled message is published twice",
        file="includes/apply_publish",
        right="redis.call('HDEL', key, origin)",
        wrong="local _ = key",
        of="topic",
    ),
    Bug(
        "a judged message waits after its time has passed",
        file="includes/apply_publish",
        right="elseif due and (due > p.now or not copies[i]) then",
        wrong="elseif due then",
        of="topic",
    ),
    Bug(
        "the bytes of rules' changes do not count",
        file="includes/check_messages",
        right=" + total + changes >",
        wrong=" + total >",
        of="topic",
    ),
    Bug(
        "a client that lost the role publishes",
        file="includes/check_publish",
        right=") > fence then",
        wrong=") > fence + 9 then",
        of="topic",
    ),
    Bug(
        "a topic activates its scheduled messages",
        file="includes/apply_due",
        right="if p.topic then",
        wrong="if false then",
        of="topic",
    ),
    Bug(
        "a dead letter gets a number lost in a failover",
        file="includes/apply_publish",
        right="target.leaps and 16777217 or 1",
        wrong="1",
        of="topic",
    ),
    Bug(
        "a record with one copy left stays counted",
        file="includes/delete_records",
        right="elseif others == '2' then",
        wrong="elseif others == '0' then",
        of="topic",
    ),
    Bug(
        "a count of a topic hides messages that are due",
        file="includes/next_due_after",
        right="p.topic and '-inf' or ",
        wrong="",
        of="topic",
    ),
    Bug(
        "a further copy loses the number that it had when it dies",
        file="includes/mark_dead",
        right="e.before = member",
        wrong="e.before = ''",
        of="topic",
    ),
    Bug(
        "a topic forgets that a message waits to be published",
        file="includes/announce_due",
        right="if first == NEVER and p.topic and",
        wrong="if false and",
        of="topic",
    ),
)
