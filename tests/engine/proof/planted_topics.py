"""Bugs of topics and their subscriptions."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["OF_TOPICS"]

OF_TOPICS = (
    *bugs_in(
        "includes/apply_publish",
        ("a record counts one copy too few", "users = #copies[i] «→- 1 »+ (last and 0 or 1)"),
        ("copies of a message have the same number", "«nth == 0 and own_number or number + nth→own_number»"),
        ("a copy loses its record", "«nth > 0 and string.format('%.0f', own_number) or →»''"),
        ("a failed rule makes no dead letter", "if «copy.dead or →»target.index"),
        ("a message without a session is let in", "copy.dead« or target.index and not session→»"),
        ("a new copy lives as long as its record", "if «till < expires or →»changes"),
        ("a scheduled message is published twice", "«redis.call('HDEL', key, origin)→local _ = key»"),
        ("a judged message waits after its time has passed", "elseif due «and (due > p.now or not copies[i]) →»or"),
        (
            "a later message overtakes one that is being spread",
            "« or behind and origin == ''→»",
            "spread",
            "send_to_spread",
        ),
        (
            "a record goes while other copies are still to be made",
            "users = #copies[i]« + (last and 0 or 1)→»",
            "spread",
            "send_to_spread",
        ),
        (
            "a call of a spread makes copies again",
            "waited = waited and «reached == plan.reached→true»",
            "spread",
            "send_to_spread",
        ),
        ("a spread begins anew with each call", "begun = «waited and reached ~= ''→false»", "spread", "send_to_spread"),
        (
            "a message that is being spread is behind those that wait",
            "add_pair(p.awaited, «0→1»,",
            "spread",
            "send_to_spread",
        ),
        (
            "a late copy comes before messages that were there",
            "if base + own < last_place(places, target, base) «→and false »then",
            "spread",
            "send_to_spread",
        ),
        ("a dead letter gets a number lost in a failover", "«target.leaps and 16777217 or →»1"),
    ),
    *bugs_in("includes/make_ready", ("a returned copy lives as long as its record", "« and not p.shared→»")),
    *bugs_in(
        "cancel",
        (
            "a message that is being spread is cancelled",
            "or «p.topic→false» and redis.call('HEXISTS'",
            "spread",
            "send_to_spread",
            "cancel",
        ),
    ),
    *bugs_in(
        "includes/check_messages", ("the bytes of rules' changes do not count", "total «+ changes →»or 0)", "send")
    ),
    *bugs_in("includes/check_publish", ("a client that lost the role publishes", ") > fence «→+ 9 »then")),
    *bugs_in("includes/apply_due", ("a topic activates its scheduled messages", "if «p.topic→false» then")),
    *bugs_in("includes/delete_records", ("a record with one copy left stays counted", "elseif others == '«2→0»' then")),
    *bugs_in(
        "includes/next_due_after", ("a count of a topic hides messages that are due", "«p.topic and '-inf' or →»")
    ),
    *bugs_in(
        "includes/mark_dead", ("a further copy loses the number that it had when it dies", "e.before = «member→''»")
    ),
    *bugs_in(
        "includes/announce_due",
        ("a topic forgets that a message waits to be published", "if «first == NEVER and p.topic→false» and"),
    ),
)
