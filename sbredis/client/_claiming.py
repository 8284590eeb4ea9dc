"""Decide when a client asks for the shards of a role. Pure: nothing here waits or reads a clock.

Theory
------

A role is held by *shards*, and each shard has one holder. The script ``hold_role`` decides who gets which shards; a
role of an application has one shard. A client asks for all shards of a role in one call. It is in one of three places:

- A *holder* has shards until the end of its claim. It asks again after a third of the claim.
- A *candidate* waits for shards. If it is not ready for them yet, the script gives it some only if no other client has
  any. It asks again when the time of another holder may have ended, so a holder that was
  killed is replaced at once, and at least after two thirds of its claim, or the script would forget it.
- Any *other* client is listed, unless 64 have asked later. It asks again after a time that grows with the number of
  listed clients, and after up to ten minutes if the list is full. So all of them together ask about once in one and a
  half seconds, however many they are.

Holders and candidates are the members, of whom there are at most eight. When a member lets go of shards, when one has
too many while another waits, or when half of the members have left, the script names those who should ask: a *call*,
which the client that asked publishes to all. A client that is called asks at once. Another candidate only looks again
after a while, in case the called one is dead. If no members are left, all others look again too, but one after the
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["NOBODY", "Claim", "Standing", "read_standing"]

_PAUSE = 1.0
_DENIED = 3600.0
"""The seconds after which a client asks again whether its user has the rights for a role by now."""
_AFTER_CALL = 2.0
"""The seconds for which shards are kept for the members that were called."""
_LONGEST_CANDIDACY = 60.0
_BETWEEN_OTHERS = 1.5
_SOONEST, _LATEST = 30.0, 600.0
"""The shortest and the longest time after which a client that is no member asks again, in seconds."""
_MOST_LISTED = 64
"""The number of clients in a full list. Clients that asked earlier are not counted."""


class Standing(NamedTuple):
    """A client's part in a role, as the script said last."""

    shards: Mapping[int, int]
    """The shards that this client has, each with its fence: a number that is higher than that of every earlier holder
    of this shard.
    """
    seconds: float
    """The seconds until shards of other clients may be free, counted from the call that asked."""
    member: bool = False
    """Whether this client has shards or waits for some."""
    members: int = 0
    """The number of clients that do."""
    listed: int = 0
    """The number of clients that wait to become members, as far as they are listed."""
    call: bytes = b""
    """The call that this client must publish; empty if nobody is called."""

    @property
    def held(self) -> bool:
        """Whether this client has shards."""
        return bool(self.shards)

    @property
    def fence(self) -> int:
        """The highest fence of this client's shards; 0 if it has none. A role of an application has one shard."""
        return max(self.shards.values(), default=0)


NOBODY = Standing(MappingProxyType({}), 0.0)


def read_standing(reply: list[Any]) -> Standing:
    """Read the reply of ``hold_role``."""
    milliseconds, member, members, listed, call, *pairs = reply
    shards = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return Standing(MappingProxyType(shards), milliseconds / 1000, bool(member), members, listed, call)


@dataclass(slots=True)
class Claim:
    """One client's claim to a role. All times are in seconds; ``chance`` is a random number from 0 to 1."""

    asker: str
    """The name under which this client asks."""
    seconds: float
    """The time for which the client claims shards at a time."""
    standing: Standing = field(default=NOBODY)
    """The answer to the last question."""
    until: float = 0.0
    """The time until which this client certainly has its shards."""
    ask_at: float = 0.0
    """The time of the next question."""
    unanswered: bool = False
    """Whether the last question got no answer, so that it may have given shards to this client."""
    called_meanwhile: bool = False
    """Whether this client was called since its last question. The answer may be older than the call."""

    def asked(self, now: float) -> None:
        """Begin a question. If it fails, the next one comes as soon as a renewal would."""
        self.ask_at = now + self.seconds / 3
        self.unanswered, self.called_meanwhile = True, False

    def answered(self, standing: Standing, asked: float, chance: float) -> None:
        """End a question that began at ``asked``. Count from then, because its answer may have taken long."""
        self.standing, self.unanswered = standing, False
        self.until = asked + self.seconds
        others = standing.seconds + 0.05 + 0.1 * chance
        if standing.held:
            self.ask_at = asked + min(self.seconds / 3, others)
        elif standing.member:
            self.ask_at = asked + min(min(self.seconds, _LONGEST_CANDIDACY) * 2 / 3, others)
        else:
            wait = max(_BETWEEN_OTHERS * standing.listed, _SOONEST) if standing.listed < _MOST_LISTED else _LATEST
            self.ask_at = asked + wait * (1 + chance) / 2
        if self.called_meanwhile and not standing.held:
            self.ask_at = asked

    def failed(self, now: float, chance: float) -> None:
        """End a question that failed."""
        self.ask_at = now + min(_PAUSE, self.seconds / 6) * (1 + chance) / 2

    def denied(self, now: float) -> None:
        """End a question for which the user lacks a right."""
        self.unanswered, self.ask_at = False, now + _DENIED

    def heard(self, call: bytes, now: float, chance: float) -> None:
        """Record a call. It has the number of members, and the names of the clients that are called."""
        members, *names = call.split() or (b"",)
        if self.asker.encode() in names:
            self.ask_at, self.called_meanwhile = now, True
        elif self.standing.member:
            if not self.standing.held:
                self.ask_at = now + _AFTER_CALL + chance / 2
        elif members == b"0":
            self.ask_at = min(self.ask_at, now + _AFTER_CALL + _SOONEST * chance)

    def missed(self, now: float, chance: float) -> None:
        """Record that a call may have been lost. Members look again, one after the other."""
        if self.standing.member:
            self.ask_at = min(self.ask_at, now + chance)

    def doubt(self) -> None:
        """Ask now, because the answer may be another one than was said."""
        self.ask_at = 0.0

    def over(self, now: float) -> bool:
        """Return whether this client does not certainly have any shard at this time."""
        return not self.standing.held or now >= self.until

    def lost(self) -> None:
        """Record that this client has no shards any more, and ask again."""
        self.standing, self.ask_at = self.standing._replace(shards=NOBODY.shards), 0.0

    def ends(self) -> bool:
        """End the claim. Return whether it must be given up."""
        was, self.standing = self.standing, NOBODY
        return was.member or self.unanswered
