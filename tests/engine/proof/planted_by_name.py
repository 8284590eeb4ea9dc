"""Bugs of operations that find messages by name."""

from __future__ import annotations

from tests.engine.proof.bugs import Bug

__all__ = ["BY_NAME"]

BY_NAME = (
    Bug(
        "a delay outlives a receive by number",
        file="receive_deferred",
        right="if letters[i] == 'd' then",
        wrong="if false then",
    ),
    Bug(
        "a receive by number leaves an expiry",
        file="receive_deferred",
        right="letters[i] == 'a' and",
        wrong="false and",
    ),
    Bug(
        "a redriven message keeps its place in the dead-letter queue",
        file="redrive",
        right="  discard(p, name, e)\n",
        wrong="",
    ),
    Bug(
        "a redrive takes locked messages",
        file="redrive",
        right="band == side.deferred) then",
        wrong="band) then",
    ),
    Bug(
        "a redriven message loses its level",
        file="redrive",
        right="string.sub(record, 2, 2)\n",
        wrong="'0'\n",
    ),
    Bug(
        "the delay of a redriven message stays",
        file="redrive",
        right="if letters[name] then",
        wrong="if false then",
    ),
    Bug(
        "the time to live of a redriven message goes on",
        file="redrive",
        right="index_expiry(p, number, expires)",
        wrong="",
    ),
    Bug(
        "a redriven message lives longer than the entity allows",
        file="redrive",
        right="math.min(ttl, p.ttl)",
        wrong="ttl",
    ),
)
