"""The judgement of a target's servers, made when they are reached. A server is refused, or described in the log.

Many clients of a process may open connections to the same servers. So a process remembers the last text that it has
logged about a server, and logs a text only if it differs from that one.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Final

from sbredis.transport._address import Target
from sbredis.transport._server_facts import (
    UNKNOWN_RUN_ID,
    ReplicaCount,
    ServerFacts,
    can_lose_acknowledged,
    durability_note,
    unconfirmable,
    unknown_note,
)

__all__ = ["forget_notes", "judge"]

_log = logging.getLogger("sbredis.transport")


class _Notes:
    """The last texts that this process has logged about servers, by server and subject."""

    MOST: Final = 1000

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[object, ...], str] = OrderedDict()
        self._lock = threading.Lock()

    def is_news(self, key: tuple[object, ...], text: str | None) -> bool:
        """Remember the text; return whether it differs from the last one. ``None`` means that there is none now."""
        with self._lock:
            before = self._texts.pop(key, None)
            if text is not None:
                self._texts[key] = text
                while len(self._texts) > self.MOST:
                    self._texts.popitem(last=False)
            return text is not None and text != before

    def forget(self) -> None:
        """Forget all texts."""
        with self._lock:
            self._texts.clear()


_notes = _Notes()


def forget_notes() -> None:
    """Forget what was logged about servers, so that it is logged again for the next connection to them."""
    _notes.forget()


def judge(target: Target, facts: ServerFacts, copies: ReplicaCount) -> str | None:
    """Return why a server cannot keep the durability. Log unknown facts, and what an acknowledgement guarantees."""
    if target.kind == "memory":
        return None
    durability = target.durability
    # A server process has one run id, whatever the name under which a client reaches it. What a user may read of the
    # server depends on the user.
    server: object = facts.endpoint if facts.run_id == UNKNOWN_RUN_ID else facts.run_id
    asked = server, target.username, durability, target.replicas
    _tell(logging.WARNING, (*asked, "unread"), unknown_note(facts, durability))
    _tell(logging.WARNING, (*asked, "unverified"), _unverified_note(target, facts))
    problem = unconfirmable(facts, copies, target.kind) if durability == "replicated" else None
    passing = f"{problem[0]} Calls to it wait." if problem is not None and problem[1] else None
    _tell(logging.WARNING, (*asked, "waiting"), passing)
    if problem is not None and passing is None:
        return problem[0]
    level = logging.WARNING if can_lose_acknowledged(facts, replicated=bool(copies.known)) else logging.INFO
    note = durability_note(facts, durability, replicated=bool(copies.known))
    _tell(level, (*asked, "durability"), f"durability={durability} on {facts}: {note}")
    return None


def _unverified_note(target: Target, facts: ServerFacts) -> str | None:
    """Return what a connection risks that checks no certificate."""
    if target.tls is None or target.tls.verify != "none":
        return None
    return (
        f"tls_verify=none: nothing shows that the server at {facts.endpoint} is yours, so everybody on the way can "
        "read and change the password and all messages. Give the certificate authority with tls_ca."
    )


def _tell(level: int, key: tuple[object, ...], text: str | None) -> None:
    """Log a text about a server, unless it was the last one that this process has logged about it."""
    if _log.isEnabledFor(level) and _notes.is_news(key, text):
        _log.log(level, "%s", text)
