"""Methods that run the operations of sessions and topics both in the scripts and in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sbredis.engine import (
    NO_CALL_ID,
    CallId,
    Copy,
    Operation,
    Outgoing,
    Partition,
    Request,
    Sent,
    SessionLock,
    advance,
    once,
    transact,
    transact_together,
)
from sbredis.engine._results import spelled_out
from tests.engine import model as m
from tests.engine.proof.both import LARGE, PLAIN, Both, in_call, without_lane
from tests.engine.proof.comparison import How, Step, part_of
from tests.engine.taking import accepting

__all__ = ["Town"]

Parts = Sequence[tuple["Town", Step]]
"""The operations of a transaction, each with its partition."""


class Town(Both):
    """A partition that may have sessions, or belong to a topic or a subscription."""

    def accept_session(self, how: How, token: str, name: str) -> Any:
        return self.in_a_lane(how, "accept_session", token, name)

    def accept_next(self, how: How, token: str) -> Any:
        run = self.run_of(how)
        return self.do(
            Step(
                "accept_next",
                lambda p, call_id: in_call(accepting(p, token, run=run, refuse=m.Refused), call_id),
                lambda call: self.model.accept_next(call, token),
            ),
            without_lane(how),
        )

    def accept(self, token: str, name: str | None) -> Any:
        """Accept the session of this name, or the next free one."""
        return self.accept_next(PLAIN, token) if name is None else self.accept_session(PLAIN, token, name)

    def _named(self, lock: SessionLock) -> SessionLock | str:
        """Return how a call names a session that it has locked: every other token stands for its session."""
        lease = self.model.leases.get(lock.token)
        holds = lease is not None and lease.session == lock.name and lease.until - self.model.offset > self.now
        return lock.token if holds and lock.token[7] in "02468" else lock

    def renew_session(self, how: How, lock: SessionLock) -> Any:
        return self.in_a_lane(how, "renew_session", *lock, real=[self._named(lock)])

    def release_session(self, how: How, lock: SessionLock) -> Any:
        return self.in_a_lane(how, "release_session", *lock, real=[self._named(lock)])

    def set_state(self, how: How, lock: SessionLock, state: bytes | None) -> Any:
        return self.do(self.stating(lock, state), how)

    def stating(self, lock: SessionLock, state: bytes | None) -> Step:
        named = self._named(lock)

        def make(partition: Partition, call_id: CallId) -> Request[bool]:
            partition.settings = replace(partition.settings, largest_message=LARGE)
            return partition.set_state(call_id, named, state)

        return Step(
            "set_state",
            make,
            lambda call: self.model.set_state(call, *lock, state),
            lambda call, together: self.model.plan_state(call, together, *lock, state),
        )

    def get_state(self, how: How, lock: SessionLock) -> Any:
        return self.without_a_lane(how, "get_state", *lock, real=[self._named(lock)])

    def peek_state(self, how: How, name: str) -> Any:
        step = Step(
            "get_state", lambda p, call_id: p.peek_state(name, call_id), lambda call: self.model.peek_state(call, name)
        )
        return self.do(step, without_lane(how))

    def list_sessions(self, how: How, wanted: int, after: str | None = None) -> Any:
        return self.without_a_lane(how, "list_sessions", wanted, after)

    def list_sessions_since(self, how: How, wanted: int, since: int, skip: int = 0) -> Any:
        return self.without_a_lane(how, "list_sessions_since", wanted, since, skip)

    def bury_session(self, how: How, lock: SessionLock, changes: bytes, share: int) -> Any:
        return self.in_a_lane(how, "bury_session", *lock, changes, real=[lock, changes], share=share)

    # -- topics --------------------------------------------------------------------------------------------------------

    def publish(
        self,
        how: How,
        messages: Sequence[Outgoing],
        routes: Sequence[Sequence[Copy] | None],
        targets: Sequence[Town],
        **given: Any,
    ) -> Any:
        """Publish messages."""
        return self.do(self.publishing(messages, routes, targets, **given), how)

    def publishing(
        self,
        messages: Sequence[Outgoing],
        routes: Sequence[Sequence[Copy] | None],
        targets: Sequence[Town],
        *,
        fence: int | None = None,
        bounds: tuple[str, str] | None = None,
        missing: int | None = None,
    ) -> Step:
        """Return a publish. The target with the index ``missing`` gets an incarnation that does not exist."""
        columns = "i" if any(one.message_id for one in messages) else ""

        def make(partition: Partition, call_id: CallId) -> Request[Sent]:
            partition.settings = replace(partition.settings, largest_message=LARGE)
            named = [target._partition() for target in targets]
            if missing is not None:
                named[missing].incarnation += "-other"
            return partition.publish(call_id, messages, routes, named, fence=fence, bounds=bounds)

        models = [target.model for target in targets]
        given: dict[str, Any] = {"fence": fence, "bounds": bounds, "missing": missing, "columns": columns}
        return Step(
            "publish",
            make,
            lambda call: self.model.publish(call, messages, routes, models, **given),
            lambda call, together: self.model.plan_publish(call, together, messages, routes, models, **given),
        )

    # -- transactions --------------------------------------------------------------------------------------------------

    def transact(self, how: How, parts: Parts, *, unfit: tuple[str, Town] | None = None) -> Any:
        """Carry out operations in one transaction; the first is one of this partition, which has the lane.

        ``unfit`` is another participant of which the caller has wrong knowledge, and the mistake.
        """
        return self._transact(how, [parts], unfit)

    def transact_together(
        self, how: How, transactions: Sequence[Parts], *, unfit: tuple[str, Town] | None = None
    ) -> Any:
        """Carry out several transactions in one call; the first operation of the first is one of this partition."""
        answer = self._transact(how, transactions, unfit)
        if isinstance(answer, m.TransactedTogether):
            for parts, outcome in zip(transactions, answer.outcomes, strict=True):
                if isinstance(outcome, m.Refused):
                    self.tally.refusals[part_of([step.operation for _, step in parts], outcome), outcome.code] += 1
        return answer

    def _transact(self, how: How, transactions: Sequence[Parts], unfit: tuple[str, Town] | None) -> Any:
        everything = [part for parts in transactions for part in parts]
        others = [town for town in dict.fromkeys(town for town, _ in everything) if town is not self]
        known = {town: (town.incarnation, town.version) for town in others}
        if unfit:
            incarnation, version = known[unfit[1]]
            known[unfit[1]] = {
                "incarnation": (incarnation + 1, version),
                "stale": (incarnation, version - 1),
                "newer": (incarnation, version + 1),
            }[unfit[0]]

        def make(partition: Partition, call_id: CallId) -> Request[Any]:
            partitions = {self: partition} | {town: town._partition(*known[town]) for town in others}
            made = [[_operation(partitions[town], step) for town, step in parts] for parts in transactions]
            if len(made) == 1:
                return transact(call_id, made[0])
            request: Request[Any] = transact_together(call_id, made)
            return request._replace(read=_outcomes)

        def mirror(call: m.Call) -> m.Transacted | m.TransactedTogether:
            theirs = [
                (town.model, replace(call, lane="", number=0, incarnation=f"i{known[town][0]}", version=known[town][1]))
                for town in others
            ]
            planned = [
                [m.Part(town.model, step.plan) for town, step in parts if step.plan is not None]
                for parts in transactions
            ]
            if len(planned) == 1:
                return self.model.transact(call, theirs, planned[0])
            return self.model.transact_together(call, theirs, planned)

        return self.do(Step("transact", make, mirror, parts=tuple(step.operation for _, step in everything)), how)

    def remembering(self, keys: Mapping[bytes, int]) -> Step:
        """Return an operation that only a transaction has: to remember keys, each for its window."""
        return Step(
            "once",
            lambda p, _: once(p, keys),
            _alone,
            lambda call, together: self.model.plan_once(call, together, keys),
        )

    def advancing(self, name: bytes, expected: str | None, value: str | None) -> Step:
        """Return an operation that only a transaction has: to give a watermark a new value."""
        return Step(
            "advance",
            lambda p, _: advance(p, name, expected, value),
            _alone,
            lambda call, together: self.model.plan_advance(call, together, name, expected, value),
        )

    def ripe(self, how: How, wanted: int, room: int = LARGE) -> Any:
        return self.without_a_lane(how, "ripe", wanted, room=room)


def _alone(_: m.Call) -> Any:
    raise AssertionError("this operation has no script of its own")


def _operation(partition: Partition, step: Step) -> Operation:
    made = step.make(partition, NO_CALL_ID)
    return made if isinstance(made, Operation) else Operation(partition, made)


def _outcomes(reply: list[Any]) -> m.TransactedTogether:
    """Return the outcomes of several transactions in the form of the model."""
    more, outcomes = bool(reply[0]), list[m.Transacted | m.Refused]()
    for text in reply[1:]:
        if text.startswith(b"!"):
            code, _, detail = text[1:].decode().partition(" ")
            outcomes.append(m.Refused(code, detail))
        else:
            outcomes.append(m.Transacted(tuple(map(_result, text.split(b"|")[:-1])), more))
    return m.TransactedTogether(tuple(outcomes), more)


def _result(text: bytes) -> m.Stored | int | tuple[int, tuple[str, ...]] | None:
    """Return the result of one operation in the form of the model."""
    if text.startswith(b"="):
        return int(text[1:])
    if text.startswith(b"~"):
        lock, *moved = text[1:].decode().split(" ")
        return int(lock), tuple(moved)
    if b";" not in text:
        return None
    first, dropped, scheduled = text.split(b";")
    return m.Stored(int(first), tuple(map(int, dropped.split())), spelled_out(scheduled))
