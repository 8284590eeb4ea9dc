"""The waiters of a partition of the model, and the sessions that become free or get a message."""

from __future__ import annotations

from sbredis.engine import NEVER
from sbredis.engine._lifecycle import Side
from tests.engine.model.lives import Lives
from tests.engine.model.values import Session

WOKEN = 100  # the time in which a woken waiter must make a call, in hundredths of a second
SESSIONS, HOLDERS = "s", "h"  # the side of a waiter for a session, and the side of a holder that waits in its session


class Waiting(Lives):
    """A partition that wakes receivers."""

    def _wake(self, time: int, *, wakes: int) -> None:
        """Wake waiters for the available messages or sessions, the longest waiting first, at most ``wakes`` on a side.

        Also wake one waiter if something will be due before its waiting time ends. The times of waiters are in
        hundredths of a second.
        """
        now = time // 10
        sides = (SESSIONS if self.settings.sessions else Side.MAIN, Side.DEAD)
        for side in sides:
            there = self._work(side)
            for name, waiter in list(self.waiters.items()) if there else ():
                if waiter.side == side and waiter.woken:
                    if abs(waiter.until - now) > WOKEN:
                        del self.waiters[name]
                    else:
                        there -= waiter.wanted
            left = wakes
            while there > 0 and left and (wanted := self._wake_first(side, now, 0)) is not None:
                there, left = there - wanted, left - 1
        if self.left and not self.told:
            self._hand_on(time)
        if self.sooner is not None:
            for side in (SESSIONS, HOLDERS, Side.DEAD) if self.settings.sessions else sides:
                if self._wake_first(side, now, self.sooner):
                    break

    def _wait_no_longer(self, side: str, waiter: str) -> None:
        self.left = self.waiters.pop(f"{waiter} {side}", None) is not None or self.left

    def _hand_on(self, now: int) -> None:
        """Let another waiter learn the next due time, because the waiter that left may have been the only one that knew
        it.
        """
        if not self.own:
            self._put_forward(min(self.head, self.next_due, self.next_lock - self.offset))
            return
        leases = [lease.until - self.offset for lease in self.leases.values()]
        first = min([self.head, *self._due().values(), *leases])
        if first < NEVER:
            self._put_forward(max(now + 1, first))

    def _work(self, side: str) -> int:
        """Return the number of messages or sessions that are available to the waiters of a side."""
        if side == SESSIONS:
            return sum(session.free is not None for session in self.sessions.values())
        return len(self._ready(Side(side)))

    def _asleep(self, side: str) -> list[str]:
        """Return the waiters that have not been woken, the longest waiting first."""
        asleep = [(waiter, name) for name, waiter in self.waiters.items() if waiter.side == side and not waiter.woken]
        return [name for _, name in sorted(asleep)]

    def _wake_first(self, side: str, now: int, till: int) -> int | None:
        """Wake the first waiter that is not gone, if it waits longer than ``till``; return the number that it wants."""
        for name in self._asleep(side):
            waiter = self.waiters[name]
            if waiter.until >= now:
                if waiter.until * 10 <= till:
                    return None
                self.waiters[name] = waiter._replace(until=now, woken=True)
                self.woken.append((side, name))
                return waiter.wanted
        return None

    def _dismiss(self) -> None:
        """Wake all waiters, and forget those that do not wait in a session that they hold."""
        self.woken += [(waiter.side, name) for name, waiter in self.waiters.items()]
        self.waiters = {name: waiter for name, waiter in self.waiters.items() if waiter.side == HOLDERS}

    def _take_turns(self, now: int) -> None:
        """Update the sessions that can be accepted. Wake each holder that waits in its session if there is a message
        for it.
        """
        ready = self._see_free(now)
        for name, session in self.sessions.items():
            waits = session.token and session.waiter
            if waits and name in self.touched and name in ready and self._gives(name, now):
                self._wait_no_longer(HOLDERS, session.waiter)
                self.woken.append((HOLDERS, session.waiter))
                session.waiter = ""
        self.sessions = {name: session for name, session in self.sessions.items() if session.trace}
        self.touched.clear()

    def _see_free(self, now: int) -> set[str]:
        """Update which sessions are free, and since when. Return all sessions with a ready message."""
        ready = {one.session for one in self._ready(Side.MAIN) if one.session is not None}
        for name in ready:
            self.sessions.setdefault(name, Session())
        for name, session in self.sessions.items():
            if not session.token and not session.barred:
                session.free = None if name not in ready else now if session.free is None else session.free
        return ready

    def _gives(self, name: str, now: int) -> bool:
        """Return whether a locked session gives out a message, if it has one."""
        session = self.sessions[name]
        full = len(self._held(session.token)) >= self.bounds.held
        return not full and (session.blocked is None or session.blocked <= now)
