"""The form in which the calls of one node are sent: as functions of a library, or as single scripts. Pure.

A library makes calls cheaper, but a server may refuse to load it where it would still take a script: ``FUNCTION LOAD``
is a write, so a full server and one without enough replicas refuse it, a user may lack the right, and some services
have no functions. Such a node gets single scripts, and the library is tried again later. No call fails because of this.

======== ================================================ =========== =========================
state    event                                            next state  the calls from then on
======== ================================================ =========== =========================
LIBRARY  the server refuses the library or its functions  SCRIPTS     are sent as single scripts
SCRIPTS  a pause has passed                               LIBRARY     try the library again
======== ================================================ =========== =========================

With ``scripts=library`` the state never changes, and the refusal is the failure of the call. With ``scripts=needed``
and ``scripts=all`` there is no library.
"""

from __future__ import annotations

import enum
import math

from sbredis.transport._replies import Failure, FailureKind, is_inside
from sbredis.transport._script import Library

__all__ = ["CallForm", "FormState", "has_library_already", "load_is_done", "refuses_functions"]

_LONGER = 60
"""How many times longer the pause is after a refusal that does not pass by itself: the user lacks a right, or the
server has no functions. So such clients do not send the whole library every minute in vain.
"""


class FormState(enum.Enum):
    """The form of the calls of a node."""

    LIBRARY = enum.auto()
    SCRIPTS = enum.auto()


class CallForm:
    """The choice of the form for one node. The connections of the node share it."""

    __slots__ = ("_library", "_pause", "_strict", "current", "lasts_until", "refusal", "state")

    def __init__(self, library: Library | None = None, *, strict: bool = False, pause: float = 60.0) -> None:
        """``pause`` is the number of seconds after which the library is tried again."""
        self._library = library
        self._strict = strict
        self._pause = pause
        self.current = library
        """The library for a call that is written before ``lasts_until``; ``None`` for single scripts."""
        self.lasts_until = math.inf
        self.state = FormState.SCRIPTS if library is None else FormState.LIBRARY
        self.refusal: Failure | None = None
        """Why the node does not get the library, if it has refused the library."""

    def library(self, now: float) -> Library | None:
        """Return the library for a call that is written now; ``None`` for single scripts."""
        if now >= self.lasts_until:
            self.state, self.current, self.lasts_until = FormState.LIBRARY, self._library, math.inf
        return self.current

    @property
    def has_library(self) -> bool:
        """Whether the last calls were sent as functions of the library."""
        return self.state is FormState.LIBRARY

    def refused(self, failure: Failure, now: float) -> bool:
        """Note that the node has refused the library. Return whether this has changed the form of its calls."""
        if self._library is None or self._strict or self.state is FormState.SCRIPTS:
            return False
        self.state, self.current = FormState.SCRIPTS, None
        self.lasts_until = now + self._pause * (_LONGER if failure.kind is FailureKind.DENIED else 1)
        self.refusal = failure
        return True

    def loaded(self) -> None:
        """Note that the node has the library."""
        self.refusal = None


def refuses_functions(code: str, detail: str) -> bool:
    """Whether a reply to a call of a function says that the server has no functions, or that the user may call none.

    An error inside a function is not such a reply. Nor is it if the user lacks a right to a key.
    """
    if is_inside(detail):
        return False
    if code == "ERR":
        return detail.startswith("unknown command")
    return code == "NOPERM" and "'fcall" in detail.lower()


def load_is_done(reply: object) -> bool:
    """Whether the server has the library after this reply to its loading."""
    if not isinstance(reply, Failure):
        return True
    return reply.kind is FailureKind.REFUSED and has_library_already(reply.detail)


def has_library_already(refusal: str) -> bool:
    """Whether a server refuses to load a library because it has one of this name, as the text of the refusal says."""
    return refusal.startswith("Library ") and refusal.endswith("already exists")
