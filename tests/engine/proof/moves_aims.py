"""The machine of moves with more rules; each rule brings about a situation that is rare by chance."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sbredis.engine import (
    Delivery,
    Lock,
    Operation,
    Recipient,
    Redrive,
    Request,
    number_of,
    read_record,
    transact,
    withdraw,
)
from tests.engine.model import Refused
from tests.engine.proof.comparison import Transition
from tests.engine.proof.moves_cases import MOVES, Place, text_of
from tests.engine.proof.moves_failures import FailingMovesMachine
from tests.engine.proof.moves_machine import LOCK, WHY, Mover
from tests.engine.terms import Condition, Event, Side, State, band, score

__all__ = ["AimedMovesMachine"]


WAYS = {text_of(way): way for way in MOVES}


class AimedMovesMachine(FailingMovesMachine):
    """The machine of moves with rules that aim at rare situations."""

    sought: ClassVar[tuple[str, ...]] = ()
    """The cases that the run has not seen often enough."""

    # -- transitions ---------------------------------------------------------------------------------------------------

    @property
    def ways(self) -> list[Transition]:
        """The transitions that are sought. One that is named more than once is chosen more often."""
        return [WAYS[case] for case in self.sought if case in WAYS]

    @precondition(lambda self: self.ways)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        """Bring some of the transitions about that the run has not seen often enough."""
        for way in data.draw(st.lists(st.sampled_from(self.ways), min_size=1, max_size=4)):
            self._bring_about(way)

    def _bring_about(self, way: Transition) -> None:
        side, state, event, condition = way
        expiring = condition in {Condition.EXPIRED, Condition.EXPIRED_KEPT}
        if state is State.NEW or (expiring and self.keeps is (condition is Condition.EXPIRED)):
            return
        to = "n" if event is Event.WITHDRAW else "a"
        if self._outstanding(to):
            self._finish(to)
        transferred = condition in {Condition.HOME_TRANSFER, Condition.CHOSEN} or state is State.TRANSFER
        name = self._made(side, to, transferred=transferred, brief=expiring)
        if condition is Condition.HOME_DEFERRED:
            self._settle_alone("defer", self._lock(name))
        self._put(name, state, to)
        places = self._places()
        if state is State.FROZEN:
            self._move(self._delivery(name), to, event, expiring=expiring)
        elif places.get(name) == Place(side, state):
            self._let(event, name, to, delayed=condition is Condition.DELAY)

    def _outstanding(self, to: str) -> bool:
        return any(batch.destination == self.to[to] for batch in self._read().batches)

    # -- a message in a state ------------------------------------------------------------------------------------------

    def _made(self, side: Side, to: str, *, transferred: bool, brief: bool) -> str:
        """Make a message of a side; return its name."""
        before = set(self._places())
        body = next(body for body in self.bodies if "abn"[body % 3] == to)
        if transferred or side is Side.TRANSFER_DEAD:
            self._transfer(body)
        else:
            self._send([body], 300 if brief else None)
        name = self._added(before)
        if side is Side.MAIN:
            return name
        before = set(self._places())
        if side is Side.DEAD:
            self._settle_alone("dead_letter", self._lock(name))
        else:
            self._refuse(name, to)
        return self._added(before)

    def _added(self, before: set[str]) -> str:
        """Return the name of the newest message that was not there before."""
        return max(set(self._places()) - before, key=number_of, default="77777")

    def _put(self, name: str, state: State, to: str) -> None:
        """Put an active message into another state."""
        if state is State.KEPT:
            self._refuse(name, to)
        elif state in {State.LOCKED, State.DELAYED, State.DEFERRED}:
            self.locked = self._lock(name)
            if state is State.DELAYED:
                self._settle_alone("abandon", self.locked._replace(delay=500))
            elif state is State.DEFERRED:
                self._settle_alone("defer", self.locked)

    def _lock(self, name: str) -> Lock:
        token = self._token()
        with self._changed(forwards="0"):
            request = self.of["q"].receive_deferred(self._call_id(), token, [name], wide=True)
            self._watch(request, lambda found: dict.fromkeys([name] * bool(found.messages), Event.RECEIVE_DEFERRED))
        return Lock(token, name)

    def _settle_alone(self, what: str, lock: Lock, *, counted: bool = True) -> None:
        """Settle a locked message."""
        lock = lock._replace(changes=WHY if what == "dead_letter" else b"")
        more: dict[str, Any] = {"counted": counted} if what == "abandon" else {}
        request = getattr(self.of["q"], what)(self._call_id(), [lock], **more)
        event = Event.RELEASE if not counted else Event[what.upper()]
        self._watch(request, lambda done: {} if done.lost else {lock.name: event})

    def _delivery(self, name: str) -> Delivery | None:
        """Return a message of the source that is in no batch."""
        return next((each for each in self._all("q") if each.name == name), None)

    def _refuse(self, name: str, to: str) -> None:
        """Let a mover give a message up."""
        self._move(self._delivery(name), to, Event.REFUSE, expiring=False)

    # -- events --------------------------------------------------------------------------------------------------------

    def _move(self, message: Delivery | None, to: str, event: Event, *, expiring: bool) -> None:
        """Freeze a message and end its batch."""
        if message is None:
            return
        mover = Mover(self.to[to], (message,), self._read().birth)
        if self._step(mover, divide=False) or mover.batch is None:
            return
        if event is Event.TAKE:
            while not self._step(mover, divide=True):
                pass
            return
        self.now += 400 if expiring else 0
        of, number = self.of["q"], mover.batch.number
        if event is Event.REFUSE:
            changes = {message.name: WHY}
            request = of.settle_batch(mover.birth, mover.destination, number, "refused", changes=changes, now=self.now)
        else:
            request = of.settle_batch(mover.birth, mover.destination, number, "back", now=self.now)
        self._settle(mover, request)

    def _let(  # noqa: C901 -- one branch for each event
        self, event: Event, name: str, to: str, *, delayed: bool
    ) -> None:
        """Let an event happen to a message that no mover has."""
        source, call_id, place = self.of["q"], self._call_id(), self._places()[name]
        message = self._delivery(name)
        if message is None:
            return
        taken = dict.fromkeys([name], event)
        if event is Event.WITHDRAW:
            sending = Operation(self.of[to], self._sending(to, (message,)))
            self._withdraw(transact(call_id, [withdraw(source, self._read().birth, [message]), sending]), [message])
        elif event is Event.FREEZE:
            self._step(Mover(self.to[to], (message,), self._read().birth), divide=False)
        elif event is Event.REDRIVE:
            changes = b""
            if place.side is Side.TRANSFER_DEAD:
                changes = Recipient(self.ids[to], f"of-{to}", self.to[to].number, to).changes()
            self._watch(source.redrive(call_id, [Redrive(name, None, changes)]), lambda _: taken)
        elif event in {Event.LAPSE, Event.WAKE}:
            self.now += LOCK if event is Event.LAPSE else 500
            self._watch(source.due(call_id), lambda _: taken)
        elif event is Event.RENEW:
            self._watch(source.renew(call_id, [self.locked]), lambda _: taken)
        elif event is Event.PURGE:
            start = score(band(*place), number_of(name))
            self._gone(source.purge(call_id, self.now + 1, side=place.side.value, share=1, start=start), event, message)
        elif event in {Event.RECEIVE, Event.RECEIVE_AND_DELETE}:
            self._receive(event, message, place)
        elif event is Event.RECEIVE_DEFERRED:
            self._lock(name)
        elif event is Event.RECEIVE_DEFERRED_AND_DELETE:
            request = source.receive_deferred(call_id, self._token(), [name], mode="delete", wide=True)
            self._gone(request, event, message)
        elif event is Event.COMPLETE:
            self._gone(source.complete(call_id, [self.locked]), event, message)
        else:
            what = "abandon" if event is Event.RELEASE else event.name.lower()
            lock = self.locked._replace(delay=500 if delayed else 0)
            self._settle_alone(what, lock, counted=event is not Event.RELEASE)

    def _gone(self, request: Request[Any], event: Event, message: Delivery) -> None:
        """Make a call that removes a message, which its user then has."""
        self._watch(request, lambda _: {message.name: event})
        if message.name not in self._places():
            self.received[self._body(message)] += 1

    def _receive(self, event: Event, message: Delivery, place: Place) -> None:
        """Receive messages until this one is among them."""
        for _ in range(20):
            mode: Any = "lock" if event is Event.RECEIVE else "delete"
            request = self._receiving("q", self._token(), 10, side=place.side.value, mode=mode)
            found: list[Delivery] = []

            def events(received: Any, found: list[Delivery] = found) -> dict[str, Event]:
                found += received.messages
                return {each.name: event for each in found}

            self._watch(request, events)
            if mode == "delete":
                self.received.update(map(self._body, found))
            if not found or message.name in {each.name for each in found}:
                return

    # -- sequences that chance alone makes rarely ----------------------------------------------------------------------

    @rule(name=st.sampled_from("ab"))
    def lose_a_take_at_once(self, name: str) -> None:
        """The destination is rolled back after it has taken a new batch."""
        if self._outstanding(name):
            self._finish(name)
        self.send(3, None)
        count = len(self.movers)
        self.begin(name, 2)
        if len(self.movers) > count:
            if self._step(self.movers[-1], divide=False):
                self.movers.pop()
            else:
                self.lose_a_take()

    @rule(name=st.sampled_from("ab"), alone=st.booleans(), forwards=st.booleans())
    def redrive_elsewhere(self, name: str, alone: bool, forwards: bool) -> None:
        """A client redrives dead letters elsewhere, or stops after its freeze, and a mover completes the batch. If the
        source forwards nothing, only the batch calls for a mover.
        """
        self._finish(name if forwards else "abn")
        with nullcontext() if forwards else self._changed(forwards="0", forwards_dead="0"):
            self._made(Side.DEAD, name, transferred=False, brief=False)
            count = len(self.movers)
            self.begin_a_redrive(name, 6, "d", b"one")
            if len(self.movers) > count:
                if alone:
                    self.hurry()
                else:
                    self._step(self.movers.pop(), divide=False)
                    self.move(name, 1)

    def _again(self, kind: str, back: int = 1) -> None:
        """Repeat a recent call of this kind."""
        calls = [each for each in self.past if each[1].script.name == kind]
        if len(calls) >= back:
            with suppress(Refused):
                self._tell(*calls[-back])

    @rule(name=st.sampled_from("ab"), kind=st.sampled_from(["take", "settle_batch", "freeze"]), frozen=st.booleans())
    def repeat_the_call_before_the_last(self, name: str, kind: str, frozen: bool) -> None:
        """Move two batches to one destination, and repeat a call of the first. The second may be under way."""
        self.send(9, None)
        self.move(name, 2)
        count = len(self.movers)
        self.begin(name, 2)
        if len(self.movers) > count:
            self._step(self.movers[-1], divide=True)
            if not frozen:
                self.hurry()
            self._again(kind, 1 if frozen and kind != "freeze" else 2)

    @rule(name=st.sampled_from("ab"), forgotten=st.booleans())
    def repeat_a_take_from_a_former_source(self, name: str, forgotten: bool) -> None:
        self.move(name, 3)
        self.make_the_source_again(5)
        if forgotten:
            self.forget()
        self._again("take")
        self._again("settle_batch")

    @rule(name=st.sampled_from("ab"), count=st.integers(3, 6))
    def freeze_messages_of_a_former_source(self, name: str, count: int) -> None:
        """A mover has read the source before it was made again. The new source has other messages of the same names."""
        self.make_the_source_again(5)
        self.send(count, None)
        movers = len(self.movers)
        self.begin(name, count)
        self.make_the_source_again(5)
        self.send(count, None)
        if len(self.movers) > movers and self._step(self.movers[-1], divide=False):
            self.movers.pop()

    @rule(name=st.sampled_from("ab"), count=st.integers(1, 4))
    def sweep_for_a_former_source(self, name: str, count: int) -> None:
        """A batch was taken, its source was made again, and the new source has a batch of the same number."""
        self.make_the_source_again(5)
        self.send(count, None)
        self._sweep(name, None, 10, 1 << 20)
        if not self.movers or self.movers[-1].taken is not None:
            return
        mover = self.movers.pop()
        if not self._step(mover, divide=False) and mover.taken is not None and mover.taken.verdict == "taken":
            self.make_the_source_again(5)
            self.send(count, None)
            self._sweep(name, None, 10, 1 << 20)
            self._sweep(name, mover, 10, 1 << 20)

    @rule(name=st.sampled_from("ab"))
    def sweep_after_a_redriver(self, name: str) -> None:
        """A client that redrives elsewhere stops after its freeze, and a mover sweeps the source."""
        self._finish(name)
        self._made(Side.DEAD, name, transferred=False, brief=False)
        count = len(self.movers)
        self.begin_a_redrive(name, 6, "d", b"one")
        if len(self.movers) > count:
            self._step(self.movers.pop(), divide=False)
            self._sweep(name, None, 10, 1 << 20)

    @rule(name=st.sampled_from("ab"), count=st.integers(1, 3))
    def repeat_a_refused_take(self, name: str, count: int) -> None:
        """The destination refuses a batch, receivers take the messages at the source, and the take is repeated."""
        self.set_status(name, "SendDisabled")
        self.begin(name, 2)
        if self.movers:
            mover = self.movers.pop()
            while not self._step(mover, divide=True):
                pass
        self.set_status(name, "Active")
        self.receive_at_the_source(count, "complete", dead=False)
        self._again("take")

    @rule(name=st.sampled_from("ab"), early=st.booleans())
    def receive_what_a_mover_has_read(self, name: str, early: bool) -> None:
        """A receiver locks messages before or after a mover freezes them. A mover leaves locked messages out."""
        self.send(3, None)
        self.begin(name, 3)
        if self.movers:
            if not early:
                self._step(self.movers[-1], divide=False)
            token = self._token()
            with self._changed(forwards="0"):
                found = self._tell("q", self._receiving("q", token, 20)).messages
            self.hurry()
            if found:
                locks = [Lock(token, each.name) for each in found]
                assert not self._tell("q", self.of["q"].complete(self._call_id(), locks)).lost, "a lock was lost"
                self.received.update(map(self._body, found))

    @rule(name=st.sampled_from("ab"), back=st.booleans(), repeated=st.booleans())
    def let_a_redriver_die(self, name: str, back: bool, repeated: bool) -> None:
        """A client that redrives elsewhere stops after its freeze, and another mover completes the batch."""
        if self._outstanding(name):
            return
        self.send(3, None)
        self.receive_at_the_source(20, "dead_letter", dead=False)
        count = len(self.movers)
        self.begin_a_redrive(name, 3, "d", b"left behind")
        if len(self.movers) == count:
            return
        redriver = self.movers.pop()
        self._step(redriver, divide=False)
        if back:
            self.set_status(name, "SendDisabled")
        if repeated:  # another redrive with other changes finds the batch, and completes it as it was begun
            self._again("freeze")
            self.movers.append(replace(redriver, batch=None, purpose=b"other changes"))
            self.hurry()
        self.begin(name, 3)
        if len(self.movers) > count:
            self.hurry()
        self.set_status(name, "Active")

    @rule(name=st.sampled_from("ab"), time=st.sampled_from([0, 400, 3000]))
    def leave_a_batch_alone(self, name: str, time: int) -> None:
        """A mover stops after a freeze. Time passes, and another mover returns the messages."""
        self.send(2, 300)
        self.begin(name, 4)
        if self.movers:
            mover = self.movers.pop()
            self._step(mover, divide=True)
            self.now += time
            self.set_quota(name, 1)
            while not self._step(mover, divide=True):
                pass
            self.set_quota(name, 10**9)
            self.now += 2000
            self._no_message_is_late()

    def _no_message_is_late(self) -> None:
        """Check that all messages have expired whose time has come, except those in batches."""
        waiting = self._read()
        for each in waiting.messages:
            record = read_record(each.record)
            expires = record.expires if each.expires is None else each.expires
            assert expires > self.now or not each.name.isdigit(), f"{each.name} has not expired"

    @rule(name=st.sampled_from("ab"))
    def let_two_movers_freeze(self, name: str) -> None:
        """Two movers have read different messages."""
        self.send(3, None)
        self.begin(name, 1)
        self.send(6, None)
        self.begin(name, 6)
        for mover in self.movers[-2:]:
            self._step(mover, divide=False)

    @rule(most=st.integers(1, 4), how=st.sampled_from(["complete", "keep", "expire"]))
    def withdraw_what_has_left(self, most: int, how: str) -> None:
        """A mover has read messages of its own slot. Receivers get some of them, or they expire."""
        self.send(3, 300)
        waiting = self._read()
        mine = tuple(each for each in waiting.messages if self._destination(each) == "n")[-most:]
        if how != "expire":
            self.receive_at_the_source(2, how, dead=False)
        self.now += 300
        if mine:
            sending = Operation(self.of["n"], self._sending("n", mine))
            self._withdraw(transact(self._call_id(), [withdraw(self.of["q"], waiting.birth, mine), sending]), mine)

    @rule(
        name=st.sampled_from("ab"),
        why=st.sampled_from(["status", "quota", "largest", "sessions"]),
        divide=st.booleans(),
    )
    def let_the_destination_refuse(self, name: str, why: str, divide: bool) -> None:
        """A destination is disabled, full, takes no message of this size, or requires sessions, while a mover moves."""
        self.send(2, None)
        self.begin(name, 2)
        if not self.movers:
            return
        mover, (state, *_, store) = self.movers.pop(), self.of[name].keys[:9]
        before = self.on.ask("HGET", state, "settings"), self.on.ask("HMGET", store, "quota", "largest")
        if why in {"status", "sessions"}:
            self._set(name, **{why: {"status": "SendDisabled", "sessions": "1"}[why]})
        else:
            self.on.ask("HSET", store, why, 0)
        while not self._step(mover, divide):
            pass
        self.on.ask("HSET", state, "settings", before[0])
        self.on.ask("HSET", store, "quota", before[1][0], "largest", before[1][1])
