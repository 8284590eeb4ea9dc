"""Bugs of operations that find messages by name."""

from __future__ import annotations

from tests.engine.proof.bugs import bugs_in

__all__ = ["BY_NAME"]

BY_NAME = (
    *bugs_in(
        "receive_deferred",
        ("a delay outlives a receive by number", "if «letters[i] == 'd'→false» then"),
        ("a receive by number leaves an expiry", "«letters[i] == 'a'→false» and"),
    ),
    *bugs_in(
        "redrive",
        ("a redriven message keeps its place in the dead-letter queue", "«  discard(p, name, e)\n→»"),
        ("a redrive takes locked messages", "band« == side.deferred→») then"),
        ("a redriven message loses its level", "«string.sub(record, 2, 2)→'0'»\n"),
        ("the delay of a redriven message stays", "if «letters[name]→false» then"),
        ("the time to live of a redriven message goes on", "«index_expiry(p, number, expires)→»"),
        ("a redriven message lives longer than the entity allows", "«math.min(ttl, p.ttl)→ttl»"),
    ),
)
