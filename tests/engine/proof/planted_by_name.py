"""Bugs to plant in the scripts that find messages by name: a name, a file, a text and its replacement."""

from __future__ import annotations

BUGS_BY_NAME = (
    ("a delay outlives a receive by number", "receive_deferred", "if letters[i] == 'd' then", "if false then"),
    ("a receive by number leaves an expiry", "receive_deferred", "letters[i] == 'a' and", "false and"),
    ("a redriven message keeps its place in the dead-letter queue", "redrive", "  discard(p, name, e)\n", ""),
    ("a redrive takes locked messages", "redrive", "band == side.deferred) then", "band) then"),
    ("a redriven message loses its level", "redrive", "string.sub(record, 2, 2)\n", "'0'\n"),
    ("the delay of a redriven message stays", "redrive", "if letters[name] then", "if false then"),
    ("the time to live of a redriven message goes on", "redrive", "index_expiry(p, number, expires)", ""),
)
