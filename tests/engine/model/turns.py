"""The turns of sessions in a partition of the model: which sessions are free, and since when."""

from __future__ import annotations

from tests.engine.model.lives import Lives
from tests.engine.model.values import Session
from tests.engine.terms import Side


class Turns(Lives):
    """A partition that knows the turns of its sessions."""

    def _take_turns(self, now: int) -> None:
        """Update the sessions that can be accepted, and forget those without a trace."""
        self._see_free(now)
        self.sessions = {name: session for name, session in self.sessions.items() if session.trace}
        self.touched.clear()

    def _see_free(self, now: int) -> None:
        """Update which sessions are free, and since when."""
        ready = {one.session for one in self._ready(Side.MAIN) if one.session is not None}
        for name in ready:
            self.sessions.setdefault(name, Session())
        for name, session in self.sessions.items():
            if not session.token and not session.barred:
                session.free = None if name not in ready else now if session.free is None else session.free

    def _gives(self, name: str, now: int) -> bool:
        """Return whether a locked session gives out a message, if it has one."""
        session = self.sessions[name]
        full = len(self._held(session.token)) >= self.bounds.held
        return not full and (session.blocked is None or session.blocked <= now)
