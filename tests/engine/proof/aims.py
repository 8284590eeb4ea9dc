"""The machine with more rules; each rule brings about a situation that is rare by chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sbredis.engine import NEVER, Lock, Outgoing, Redrive
from sbredis.engine._settings import Status
from tests.engine import model as m
from tests.engine.proof import draws
from tests.engine.proof.both import PLAIN
from tests.engine.proof.comparison import How, moment
from tests.engine.proof.draws import hows, rarely, some
from tests.engine.proof.machine import AGAIN, Machine, every
from tests.engine.proof.town import Town
from tests.engine.terms import Side, State, band, score

_STRANGE = [Lock("x" * 11, "1", b"", 0)]

ANY: dict[str, Callable[[Town, How], Any]] = {
    "abandon": lambda both, how: both.abandon(how, _STRANGE),
    "cancel": lambda both, how: both.cancel(how, ["77777"]),
    "complete": lambda both, how: both.complete(how, _STRANGE),
    "configure": lambda both, how: both.configure(how, both.settings),
    "count": lambda both, how: both.count(how),
    "dead_letter": lambda both, how: both.dead_letter(how, _STRANGE),
    "defer": lambda both, how: both.defer(how, _STRANGE),
    "destroy": lambda both, how: both.destroy(how),
    "due": lambda both, how: both.due(how),
    "peek": lambda both, how: both.peek(how),
    "purge": lambda both, how: both.purge(how, 0),
    "receive": lambda both, how: both.receive(how, both.token(), 1),
    "receive_deferred": lambda both, how: both.receive_deferred(how, both.token(), ["77777"]),
    "redrive": lambda both, how: both.redrive(how, [Redrive("d77777")]),
    "renew": lambda both, how: both.renew(how, _STRANGE),
    "send": lambda both, how: both.send(how, [Outgoing(b"refused")]),
}
"""For each operation, a call that must be refused."""

_DEFECTS = {
    "configure": ("incarnation", "layout", "stale", "malformed"),
    "destroy": ("incarnation", "layout", "malformed"),
}
_ALL_DEFECTS = ("incarnation", "layout", "older", "unknown", "stale", "newer", "malformed", AGAIN)
WRONG = tuple((operation, defect) for operation in ANY for defect in _DEFECTS.get(operation, _ALL_DEFECTS))


class AimedMachine(Machine):
    """The machine with rules that aim at rare situations."""

    # -- refusals ------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def call_wrongly(self, data: st.DataObject) -> None:
        self.make_wrong_calls(data, WRONG, ANY)

    @every(6, 0)
    @rule(status=some(["SendDisabled", "ReceiveDisabled", "Disabled"]), lane=some(["", *draws.LANES]))
    def disable_for_a_while(self, status: Status, lane: str) -> None:
        before = self.both.settings
        self.both.change(replace(before, status=status))
        for operation in ("send", "receive_deferred", "receive", "redrive"):
            ANY[operation](self.both, How(lane=lane))
        self.both.change(before)

    @every(6, 0)
    @rule(lane=some(["", *draws.LANES]))
    def forward_for_a_while(self, lane: str) -> None:
        before = self.both.settings
        self.both.change(replace(before, forwards=True))
        for operation in ("receive_deferred", "receive"):
            ANY[operation](self.both, How(lane=lane))
        self.both.receive(How(lane=lane), self.both.token(), 1, side=Side.DEAD)
        self.both.change(before)

    @every(6, 1)
    @rule(fixed=some(["clock", "window", "shared"]))
    def change_what_is_fixed(self, fixed: str) -> None:
        ours = self.both.settings
        window = 1_000 if ours.duplicate_window is None else None
        changed = {
            "clock": replace(ours, clock="server"),
            "window": replace(ours, duplicate_window=window),
            "shared": replace(ours, shared=True),
        }
        self.both.configure(PLAIN, changed[fixed])

    # -- transitions ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.those(State.ACTIVE, Side.MAIN))
    @rule(how=hows, wanted=some([1, 2, 3, 4]))
    def receive_main(self, how: How, wanted: int) -> None:
        self.both.receive(how, self.both.token(), wanted)

    @precondition(lambda self: self.those(State.ACTIVE, Side.DEAD))
    @rule(how=hows, wanted=some([1, 2, 3]), mode=draws.modes)
    def receive_dead(self, how: How, wanted: int, mode: m.Mode) -> None:
        self.both.receive(how, self.both.token(), wanted, side=Side.DEAD, mode=mode)

    @precondition(lambda self: self.those(State.ACTIVE, Side.DEAD))
    @rule(then=some(["delay and purge", "redrive", "defer and delete", "defer and abandon", "defer and release"]))
    def go_on_with_a_dead_letter(self, then: str) -> None:
        token = self.both.token()
        self.both.receive(PLAIN, token, 1, side=Side.DEAD)
        for message in self.model._held(token) if token in self.model.leases else ():
            lock = Lock(token, message.name)
            if then == "delay and purge":
                self.both.abandon(PLAIN, [lock._replace(delay=1_000)])
                self._purge(PLAIN, message, 1)
                continue
            if then == "redrive" and message.number % 2:
                self.both.abandon(PLAIN, [lock._replace(delay=1_000)])
            else:
                self.both.defer(PLAIN, [lock])
            if then == "redrive":
                self.both.redrive(PLAIN, [Redrive(message.name)])
                continue
            lock = lock._replace(token=self.both.token())
            mode: m.Mode = "delete" if then == "defer and delete" else "lock"
            self.both.receive_deferred(PLAIN, lock.token, [lock.name], mode)
            if mode == "lock":
                self.both.abandon(PLAIN, [lock], counted=then == "defer and abandon")

    @precondition(lambda self: self.those(State.DEFERRED))
    @rule(data=st.data(), how=hows)
    def lock_deferred(self, data: st.DataObject, how: How) -> None:
        message = data.draw(some(self.those(State.DEFERRED)))
        self.both.receive_deferred(how, self.both.token(), [message.name])

    @precondition(lambda self: self.both.settings.lock_duration > 1_000)
    @rule(payloads=st.lists(draws.payloads, min_size=1, max_size=3))
    def defer_what_expires(self, payloads: list[bytes]) -> None:
        token = self.both.token()
        self.both.send(PLAIN, [Outgoing(payload, time_to_live=700) for payload in payloads])
        self.both.receive(PLAIN, token, 10)
        held = self.model._held(token) if token in self.model.leases else ()
        if held:
            self.both.defer(PLAIN, [Lock(token, message.name) for message in held])

    @precondition(lambda self: self._expiring_and_deferred())
    @rule(data=st.data(), how=hows, mode=draws.modes, off=some([-1, 0, 0]), alone=st.booleans(), room=draws.rooms)
    def ask_for_what_expires(
        self, *, data: st.DataObject, how: How, mode: m.Mode, off: int, alone: bool, room: int
    ) -> None:
        """Ask for a deferred message at the time of its expiry, alone or together with all others."""
        message = data.draw(some(self._expiring_and_deferred()))
        self.both.now = max(self.both.now, message.expires + off)
        names = [message.name] if alone else [one.name for one in self.those(State.DEFERRED)]
        self.both.receive_deferred(how, self.both.token(), names, mode, room=room)

    @precondition(lambda self: self.those(State.LOCKED))
    @rule(data=st.data(), dead=st.booleans())
    def defer_and_lock(self, data: st.DataObject, dead: bool) -> None:
        held = (not dead and self.those(State.LOCKED, Side.MAIN)) or self.those(State.LOCKED)
        held = [message for message in held if message.side is Side.DEAD] or held
        message = data.draw(some(held))
        self.both.defer(PLAIN, [Lock(message.token, message.name)])
        if message.state is State.DEFERRED:
            self.both.receive_deferred(PLAIN, self.both.token(), [message.name])

    @precondition(lambda self: self._deferred_and_locked())
    @rule(data=st.data(), how=hows, counted=st.booleans(), delay=some([0, 5]))
    def abandon_deferred(self, data: st.DataObject, how: How, counted: bool, delay: int) -> None:
        there = self._deferred_and_locked()
        message = data.draw(some([one for one in there if one.side is Side.DEAD] or there))
        self.both.abandon(how, [Lock(message.token, message.name, b"", delay)], counted=counted)

    @precondition(lambda self: self._expiring_in_a_lock())
    @rule(data=st.data(), how=hows, counted=some([True, True, False]), delay=some([0, 5]))
    def abandon_expired(self, data: st.DataObject, how: How, counted: bool, delay: int) -> None:
        """Abandon a message whose time to live has ended during its lock."""
        message = data.draw(some(self._expiring_in_a_lock()))
        self.both.now = max(self.both.now, message.expires)
        self.both.abandon(how, [Lock(message.token, message.name, b"", delay)], counted=counted)

    @precondition(lambda self: self.both.settings.lock_duration > 1_000)
    @rule(payloads=st.lists(draws.payloads, min_size=1, max_size=3))
    def lock_what_expires(self, payloads: list[bytes]) -> None:
        self.both.send(PLAIN, [Outgoing(payload, time_to_live=700) for payload in payloads])
        self.both.receive(PLAIN, self.both.token(), 10)

    @precondition(lambda self: self.held())
    @every(3, 2)
    @rule(data=st.data(), lock=some([1, 1_000]))
    def renew_for_a_shorter_time(self, data: st.DataObject, lock: int) -> None:
        """Renew a lock after the lock duration became shorter, so that the lock ends sooner than before."""
        before = self.both.settings
        self.both.change(replace(before, lock_duration=lock))
        if not self.held():
            return  # the lock had ended before the renewal
        token = data.draw(some(sorted({token for token, _ in self.held()})))
        locks = [Lock(token, message.name) for message in self.model._held(token)]
        self.both.renew(PLAIN, locks)
        self.both.change(before)

    @precondition(lambda self: self.held())
    @rule(
        data=st.data(),
        how=hows,
        wait=some([0, 1, 400]),
        which=some(["", "shared", "both"]),
        then=some(["lapse", "settle", "both"]),
    )
    def renew_one_alone(self, *, data: st.DataObject, how: How, wait: int, which: str, then: str) -> None:
        """Give a message a lease of its own. Its two leases end at different times, or at the same time."""
        token, name = data.draw(some(self.held()))
        key = token + name
        self.both.renew(how, [Lock(token, name)])
        self.both.now += wait
        if which:
            self.both.renew(PLAIN, [], [token, key] if which == "both" else [token])
        if then != "settle" and key in self.model.leases:
            ends = {self.model.leases[each].until for each in (token, key) if each in self.model.leases}
            self.both.now = max(self.both.now, (max if then == "both" else min)(ends) - self.model.offset)
            self.both.due()
        self.both.complete(PLAIN, [Lock(token, name)])

    @precondition(lambda self: self.model.horizon < self.both.now + draws.FAR)
    @every(3, 0)
    @rule(payload=draws.payloads)
    def activate_what_has_expired(self, payload: bytes) -> None:
        """Let a scheduled message be due and expire at the moment when a message without an indexed expiry expires."""
        wait = max(1, self.model.horizon - self.both.now)
        lives = [(0, moment(self.both.now + wait)), (wait, None), (wait + 500, None)]
        self.both.send(PLAIN, [Outgoing(payload, time_to_live=ttl, due=due) for ttl, due in lives])
        self.both.now += wait
        self.both.due()

    @precondition(lambda self: self.model.dedup and self.both.settings.duplicate_window)
    @rule(data=st.data(), how=hows, off=some([-1, 0, 1]))
    def send_again(self, data: st.DataObject, how: How, off: int) -> None:
        """Send a message id again around the end of its window."""
        message_id, seen = data.draw(some(sorted(self.model.dedup.items())))
        self.both.now = max(0, seen + (self.both.settings.duplicate_window or 0) + off)
        self.both.send(how, [Outgoing(b"again", message_id=message_id)])

    @precondition(lambda self: self.held())
    @rule(data=st.data(), renewing=st.booleans())
    def settle_too_late(self, data: st.DataObject, renewing: bool) -> None:
        """Settle or renew after all locks have ended; there may be more ended locks than one call cleans up."""
        locks = self.locks(data)
        self.both.now = max(lease.until - self.model.offset for lease in self.model.leases.values())
        if renewing:
            self.both.renew(PLAIN, locks)
        else:
            self.both.complete(PLAIN, locks)

    @precondition(lambda self: self.model.leases or self.those(State.DELAYED))
    @rule(long=rarely[4])
    def lapse(self, long: bool) -> None:
        """Let the first lock or delay end, or all of them."""
        ends = [lease.until - self.model.offset for lease in self.model.leases.values()]
        ends += [message.due or 0 for message in self.those(State.DELAYED)]
        ends = [end for end in ends if self.both.now < end < NEVER - 1] or [self.both.now]
        self.both.now = max(ends) if long else min(ends)
        self.both.due()

    @precondition(lambda self: self._purgeable())
    @every(3, 1)
    @rule(data=st.data(), how=hows, share=some([1, 1_000]))
    def purge_those(self, data: st.DataObject, how: How, share: int) -> None:
        """Purge delayed or deferred messages, or dead letters, but keep the messages before them."""
        self._purge(how, data.draw(some(self._purgeable())), share)

    def _purge(self, how: How, message: m.Message, share: int) -> None:
        start = score(band(message.side, message.state), 0)
        self.both.purge(how, self.both.now + 1, side=message.side, share=share, start=start)

    @precondition(lambda self: not self.those(State.ACTIVE, Side.MAIN))
    @every(3, 1)
    @rule(
        receivers=some([2, 3, 4]),
        payloads=st.lists(draws.payloads, min_size=1, max_size=4),
        later=some([0, 0, 1_009, 1_010, 29_999, 30_010]),
    )
    def stand_in_line(self, receivers: int, payloads: list[bytes], later: int) -> None:
        """Let several receivers find nothing, then send messages."""
        for _ in range(receivers):
            self.both.receive(PLAIN, self.both.token(), 1)
            self.both.now += 10
        self.both.now += later
        self.both.send(PLAIN, [Outgoing(payload) for payload in payloads])
        self.both.now += later
        self.both.due()

    def _purgeable(self) -> list[m.Message]:
        dead = [self.those(state, Side.DEAD) for state in (State.DELAYED, State.DEFERRED, State.ACTIVE)]
        main = [self.those(state, Side.MAIN) for state in (State.DELAYED, State.DEFERRED)]
        return [message for there in (*dead, *main) for message in there[:1]]

    def _expiring_and_deferred(self) -> list[m.Message]:
        return [message for message in self.those(State.DEFERRED, Side.MAIN) if message.expires < NEVER - 1]

    def _deferred_and_locked(self) -> list[m.Message]:
        return [message for message in self.those(State.LOCKED) if message.home == "f"]

    def _expiring_in_a_lock(self) -> list[m.Message]:
        model = self.model
        return [
            message
            for message in self.those(State.LOCKED)
            if message.home == "a" and message.expires < model.locked_until(message) - model.offset
        ]
