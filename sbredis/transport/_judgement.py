"""The judgement of a target's servers, made when they are reached. A server is refused, or described in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sbredis.exceptions import ServerUnsuitableError
from sbredis.transport._address import Target
from sbredis.transport._server_facts import (
    ReplicaCount,
    ServerFacts,
    can_lose_acknowledged,
    durability_note,
    unconfirmable,
    unknown_note,
)

__all__ = ["judge"]

_log = logging.getLogger("sbredis.transport")


def judge(
    target: Target, reached: Sequence[ServerFacts], replica_count_of: Callable[[ServerFacts], ReplicaCount]
) -> None:
    """Refuse servers that cannot keep the durability. Log unknown facts, and what an acknowledgement guarantees."""
    if target.kind == "memory":
        return
    durability = target.durability
    refused: list[str] = []
    worth: dict[tuple[int, str], list[ServerFacts]] = {}
    for facts in reached:
        if unread := unknown_note(facts, durability):
            _log.warning("%s", unread)
        copies = replica_count_of(facts)
        problem = unconfirmable(facts, copies, target.kind) if durability == "replicated" else None
        if problem is not None and problem[1]:
            _log.warning("%s Calls to it wait.", problem[0])
        elif problem is not None:
            refused.append(problem[0])
        level = logging.WARNING if can_lose_acknowledged(facts, replicated=bool(copies.known)) else logging.INFO
        note = durability_note(facts, durability, replicated=bool(copies.known))
        worth.setdefault((level, note), []).append(facts)
    if refused:
        raise ServerUnsuitableError(" ".join(refused))
    for (level, note), servers in worth.items():
        _log.log(level, "durability=%s on %s: %s", durability, ", ".join(map(str, servers)), note)
