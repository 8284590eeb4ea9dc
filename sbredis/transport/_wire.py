"""One multiplexed connection: concurrent calls are written together and answered in order.

A call is in one of two queues. ``waiting`` holds the calls that are not written yet: if the connection is lost, they
were never sent. ``in_flight`` holds the calls that are written and not answered yet: if the connection is lost, their
outcome is unknown. Replies come in the order of writing, so they need no identifiers. When a caller goes away, its call
stays in its queue, and the reply is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sbredis._tasks import TaskScope
from sbredis.exceptions import Outcome
from sbredis.transport._forms import CallForm, FormState, load_is_done, refuses_functions
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from sbredis.transport._resp import ReplyError
from sbredis.transport._script import Call, Command, pack
from sbredis.transport._server_facts import ServerFacts
from sbredis.transport._stream import Stream

__all__ = ["Wire", "WireLimits"]

_log = logging.getLogger("sbredis.transport")
_log_of_forms = logging.getLogger("sbredis.transport.forms")
_ASKING = pack((b"ASKING",))
_HEALS = 2
_CHECK_EVERY = 0.25


@dataclass(frozen=True, slots=True)
class WireLimits:
    """The calls and bytes that one connection may hold, and the times for which it may be silent."""

    calls: int = 4096
    bytes: int = 64 * 1024 * 1024
    suspect_after: float = 0.5
    """After this many seconds without an answer, the client asks other servers whether this server was replaced. If so,
    the client gives this server up.
    """
    give_up_after: float = 5.0
    """After this many seconds without an answer, the server is given up."""
    quiet_after: float = 0.001
    """A call is written at once if the server owes no answer and its last answer came at least this many seconds ago.
    """
    without_library: float = 60.0
    """A server that has refused the library of functions gets single scripts for this many seconds."""
    idle: float = 20.0
    """The seconds between uses of an idle connection. So no device on the way forgets the connection, and a dead
    connection is found before a call needs it.
    """
    subscribe_again: float = 0.1
    """The seconds after which the client asks again for a channel that a server has refused or given up."""


class _WaitingCaller:
    """The place of a caller in the line of callers that wait for room."""

    __slots__ = ("woken",)

    woken: asyncio.Future[None]

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Wire:
    """An open connection to one server process. A node makes it; after :meth:`fail` it cannot be used."""

    def __init__(
        self,
        stream: Stream,
        facts: ServerFacts,
        limits: WireLimits,
        *,
        on_suspect: Callable[[], None],
        form: CallForm | None = None,
    ) -> None:
        self.facts = facts
        self._form = form or CallForm()
        self.failure: Failure | None = None
        self.deposed = False
        """Whether the slot map says that another server has taken over. Then a shorter silence ends the connection."""
        self.silent = False
        """Whether the server is so late with an answer that the client asks other servers whether it was replaced."""
        self._stream = stream
        self._limits = limits
        self._on_suspect = on_suspect
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Call] = []
        self._in_flight: deque[Call | None] = deque()
        self._flush_is_due = False
        self._announced = 0
        """The number of pieces of work to be done in the next turn that may put calls on the wire."""
        self._beginning = 0
        """The number of them that are left in this turn. After the last one, all calls are written together."""
        # One number limits both calls and bytes: each call takes its own size, plus a fixed share of the limit of
        # bytes.
        self._room = limits.bytes
        self._share = limits.bytes // limits.calls
        self._line: deque[_WaitingCaller] = deque()
        self._heard_at = self._owing_since = self._loop.time()
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._ended = asyncio.Event()
        self._loads = 0
        self._load_of: dict[str, int] = {}
        self._load_errors: dict[str, Failure] = {}
        stream.listen(self._answer, self.fail, self._flush)

    # -- submitting calls ----------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether one more call may be submitted now."""
        return self._room > 0 and not self._line

    @property
    def owes(self) -> bool:
        """Whether calls are under way."""
        return bool(self._in_flight or self._waiting)

    @property
    def quiet(self) -> bool:
        """Whether a call that is submitted now is written at once: no other call is under way, nor was one just now.

        While there are other calls, a call waits for those that come in the same turn of the event loop. Otherwise a
        wait would not gather more calls.
        """
        if self._in_flight or self._waiting or self.failure is not None or self._room <= 0 or self._line:
            return False
        if self._stream.paused:
            return False
        return self._loop.time() - self._heard_at >= self._limits.quiet_after

    def submit(self, call: Call, deadline: float, *, asking: bool = False) -> asyncio.Future[Any]:
        """Put a call on the wire. The future gets the reply or a :class:`Failure`, and raises only a cancellation."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.failure is not None:
            future.set_result(self._lost(self.failure.detail, sent=False))
            return future
        call.future = future
        self.put(call, deadline, _resolve, _resolve, asking=asking)
        return future

    def put(
        self,
        call: Call,
        deadline: float,
        answered: Callable[[Call, Any], None],
        failed: Callable[[Call, Failure], None],
        *,
        asking: bool = False,
    ) -> None:
        """Put a call on the wire, which :attr:`has_room`. ``answered`` gets its reply, or ``failed`` a failure."""
        call.answered, call.failed = answered, failed
        call.deadline = deadline
        call.asking = asking
        call.heals = call.missing = 0
        self._room -= call.size + self._share
        is_due = self._flush_is_due or self._beginning > 0
        at_once = not is_due and self.quiet
        self._waiting.append(call)
        if at_once:
            self._flush()
        elif not is_due:
            self._flush_soon()
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(min(deadline, self._loop.time() + _CHECK_EVERY))

    def soon(self, work: Callable[[], None]) -> None:
        """Do some work in the next turn of the event loop, which puts calls on the wire. They are written in that turn,
        together with those of other such work.
        """
        self._announced += 1
        self._loop.call_soon(self._begin, work)

    def _begin(self, work: Callable[[], None]) -> None:
        if not self._beginning:
            self._beginning, self._announced = self._announced, 0
        try:
            work()
        finally:
            self._beginning -= 1
            if not self._beginning and not self._flush_is_due:
                self._flush()

    async def room(self, deadline: float) -> bool:
        """Wait in line until one more call may be submitted; ``False`` if the deadline or the end of the wire comes
        first.

        The caller must submit before it awaits anything else, because the room is not reserved for it.
        """
        if self.has_room:
            return True
        place = _WaitingCaller()
        self._line.append(place)
        passes = False
        try:
            async with asyncio.timeout_at(deadline):
                # A caller was woken too early if callers before it needed more room than expected. Then the caller
                # keeps its place.
                while self.failure is None:
                    passes = self._room > 0 and self._line[0] is place
                    if passes:
                        break
                    place.woken = self._loop.create_future()
                    await place.woken
        except TimeoutError:
            return False
        finally:
            self._line.remove(place)
            if not passes:
                self._admit()  # the room that was offered here goes to the next caller
        return passes

    # -- running and ending --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until the connection is lost or this task is cancelled. The socket is closed at the end."""
        try:
            async with TaskScope() as tasks:
                tasks.start(self._stream.run())
                tasks.start(self._stay_alive())
                await self._ended.wait()
                tasks.cancel()
        except Exception:  # noqa: BLE001  # a defect here must end as a lost connection, or callers would wait for ever
            _log.exception("the connection to %s failed because of a defect", self.facts.endpoint)
        finally:
            self.fail("the connection was closed")

    def depose(self) -> None:
        """Record that another server has taken over, and check at once how long this one has been silent."""
        self.deposed = True
        if self._in_flight:
            self._set_timer(self._loop.time())

    def fail(self, reason: str) -> None:
        """End the connection. Calls that are not written were never sent; the outcome of the other calls is unknown."""
        if self.failure is not None:
            return
        self.failure = Failure(FailureKind.LOST, reason, endpoint=self.facts.endpoint)
        self._room = 0
        if self._timer is not None:
            self._timer.cancel()
        for queue, sent in ((self._in_flight, True), (self._waiting, False)):
            for call in queue:
                if call is not None:
                    _end(call, self._lost(reason, sent=sent))
            queue.clear()
        for place in self._line:
            place.wake()
        self._ended.set()

    async def _stay_alive(self) -> None:
        idle = self._limits.idle
        while True:
            await asyncio.sleep(idle)
            if not self.owes and self._loop.time() - self._heard_at >= idle / 2:
                await self.submit(Command("PING"), self._loop.time() + idle)

    def _lost(self, reason: str, *, sent: bool) -> Failure:
        outcome = Outcome.UNKNOWN if sent else Outcome.NEVER_SENT
        return Failure(FailureKind.LOST, reason, outcome=outcome, endpoint=self.facts.endpoint)

    def _too_late(self, *, sent: bool) -> Failure:
        outcome = Outcome.UNKNOWN if sent else Outcome.NEVER_SENT
        what = "no answer came" if sent else "it could not be written"
        return Failure(FailureKind.TIMED_OUT, what, outcome=outcome, endpoint=self.facts.endpoint)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        self._flush_is_due = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:  # noqa: C901 -- the steps of a call, without further functions
        """Write all waiting calls together."""
        self._flush_is_due = False
        if self._stream.paused or self.failure is not None or not self._waiting:
            return
        in_flight = self._in_flight
        now = self._loop.time()
        if not in_flight:
            self._owing_since = now
        run_id, form = self.facts.run_id, self._form
        library = form.current if now < form.lasts_until else form.library(now)
        pieces: list[bytes] = []
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if call.answered is None or (call.future is not None and call.future.done()):
                self._release(call)  # the call has ended, or its caller was cancelled, so it is never sent
                continue
            if call.deadline <= now:
                _end(call, self._too_late(sent=False))
                self._release(call)
                continue
            script, head, through = call.script, None, None
            if library is not None and script is not None:
                head = library.heads.get(script.function) or library.head(script)
                through = None if head is None else library
            if call.library is not through:
                call.library = through
                call.missing = 0
            try:
                load = self._load(call) if call.missing and self._needs_load(call) else None
                loading = b"" if load is None else load.payload(run_id)
                payload = call.payload(run_id, head)
            except Exception as error:  # noqa: BLE001  # the text of a script cannot be read; the other calls go on
                unwritable = FailureKind.UNWRITABLE
                _end(call, Failure(unwritable, str(error), outcome=Outcome.NEVER_SENT, endpoint=self.facts.endpoint))
                self._release(call)
                continue
            if load is not None:
                pieces.append(loading)
                in_flight.append(load)
            if call.asking:
                # ASKING applies to the next command of this connection, so no other command may come between ASKING and
                # the call.
                pieces.append(_ASKING)
                in_flight.append(None)
            if call.written is not None:
                call.written()
            pieces.append(payload)
            call.loads_before = self._loads
            in_flight.append(call)
        if pieces:
            self._unsent = self._stream.write(b"".join(pieces))

    def _needs_load(self, call: Call) -> bool:
        """Whether the script or library must be loaded: no load followed the attempt that found it missing."""
        if self._load_of.get(call.needs, 0) > call.loads_before:
            return False
        self._loads += 1
        self._load_of[call.needs] = self._loads
        return True

    def _load(self, call: Call) -> Command:
        """Return a command that loads what a call needs. If that is faulty, the failure is kept for the call."""
        needs, library = call.needs, call.library

        def loaded(reply: asyncio.Future[Any]) -> None:
            said = Failure(FailureKind.LOST) if reply.cancelled() else reply.result()
            if library is not None and load_is_done(said):
                self._form.loaded()
                self._load_errors.pop(needs, None)
            elif isinstance(said, Failure) and said.kind not in (FailureKind.LOST, FailureKind.TIMED_OUT):
                if library is not None and not self._refuse_library(said):
                    self._load_errors[needs] = said._replace(outcome=Outcome.NEVER_SENT)
                elif library is None and said.kind in (FailureKind.REFUSED, FailureKind.BROKE):
                    self._load_errors[needs] = said._replace(kind=FailureKind.REFUSED, outcome=Outcome.REFUSED)
                elif library is None and said.kind is FailureKind.NO_ENGINE:
                    self._load_errors[needs] = said

        load = call.loading()
        load.future = self._loop.create_future()
        load.future.add_done_callback(loaded)
        load.answered = load.failed = _resolve
        load.deadline = call.deadline
        load.asking = False
        load.heals = load.missing = 0
        self._room -= load.size + self._share
        return load

    # -- reading -------------------------------------------------------------------------------------------------------

    def _answer(self, replies: list[Any]) -> None:
        """Give replies to their calls, the oldest call first."""
        self._heard_at = self._loop.time()
        self.silent = False
        in_flight = self._in_flight
        for reply in replies:
            if not in_flight:
                if self.failure is None:
                    self.fail(f"the server sent something that no call asked for: {reply!r:.80}")
                return
            call = in_flight.popleft()
            if call is None:
                continue
            if type(reply) is ReplyError:
                failure = failure_of_reply(reply.code, reply.detail, self.facts.endpoint)
                missing = failure.kind in (FailureKind.NO_SCRIPT, FailureKind.NO_FUNCTION)
                if (missing or call.library is not None) and self._heal(call, failure, missing=missing):
                    continue
                self._room += call.size + self._share
                _end(call, (self._load_errors.get(call.needs) if missing else None) or failure)
                continue
            self._room += call.size + self._share
            answered = call.answered
            if answered is not None:
                call.answered = None
                answered(call, reply)
        if self._line:
            self._admit()

    def _heal(self, call: Call, failure: Failure, *, missing: bool) -> bool:
        """Send a call again if the server lacked what it needs. A command before it loads the script or the library.

        If the server does not take the library, the call is sent again as a single script.
        """
        if call.script is None:
            return False
        if missing and call.missing < _HEALS:
            call.missing += 1
        else:
            unfit = call.library is not None and (missing or refuses_functions(failure.code, failure.detail))
            if not unfit or not self._refuse_library(failure):
                return False
        call.heals += 1
        self._waiting.append(call)
        if not self._flush_is_due:
            self._flush_soon()
        return True

    def _refuse_library(self, failure: Failure) -> bool:
        """Note that the server does not take the library. Return whether it gets scripts from now on.

        The reason is logged once, although the library is tried again and again.
        """
        before = self._form.refusal
        if not self._form.refused(failure, self._loop.time()):
            return self._form.state is FormState.SCRIPTS
        if before is None or before.code != failure.code:
            said, where = f"{failure.code} {failure.detail}".strip(), self.facts.endpoint
            _log_of_forms.info("%s gets single scripts instead of a library of functions: %s", where, said)
        return True

    def _release(self, call: Call) -> None:
        self._room += call.size + self._share
        if self._line:
            self._admit()

    def _admit(self) -> None:
        """Wake as many waiting callers as there is room for, as if their calls were empty."""
        room = self._room
        for place in self._line:
            if room <= 0:
                return
            place.wake()
            room -= self._share

    # -- deadlines and silence -----------------------------------------------------------------------------------------

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        """End calls whose deadline has passed, and check on a server that owes an answer. Runs only during calls."""
        self._timer = None
        if self.failure is not None:
            return
        now = self._loop.time()
        earliest = now + _CHECK_EVERY
        for queue, sent in ((self._in_flight, True), (self._waiting, False)):
            for call in queue:
                if call is None or call.answered is None:
                    continue
                if call.deadline <= now:
                    _end(call, self._too_late(sent=sent))
                elif call.deadline < earliest:
                    earliest = call.deadline
        if self._in_flight:
            unsent, before = self._stream.unsent, self._unsent
            if unsent < before:
                self._heard_at = now  # the server still takes our bytes: it is slow, not silent
            self._unsent = unsent
            quiet = now - max(self._heard_at, self._owing_since)
            limit = self._limits.suspect_after if self.deposed else self._limits.give_up_after
            if quiet >= limit:
                self.fail(f"no answer for {quiet:.1f} s")
                return
            if quiet >= self._limits.suspect_after:
                # Report the silence at each check, because a failover may still be under way when the first question is
                # answered.
                self.silent = True
                self._on_suspect()
        if self.owes:
            self._set_timer(earliest)


def _end(call: Call, failure: Failure) -> None:
    """End a call with a failure, unless it has ended."""
    if call.answered is not None:
        call.answered = None
        call.failed(call, failure)


def _resolve(call: Call, reply: Any) -> None:
    """Give the reply to the caller who waits for the call's future."""
    future = call.future
    if future is not None and not future.done():
        future.set_result(reply)
