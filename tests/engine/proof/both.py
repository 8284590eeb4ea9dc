"""Methods that run every operation both in the scripts and in the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from sbredis.engine import CallId, Lock, Outgoing, Partition, PartitionSettings, Redrive, Request, Sent
from sbredis.engine._partition import COMMON_ARGUMENTS
from tests.engine import model as m
from tests.engine.proof.comparison import FIRST_VERSION, Comparison, How, Step
from tests.engine.taking import receiving
from tests.engine.terms import Event, Side

LARGE = 1 << 20
PLAIN = How()

Settlement = Literal["complete", "abandon", "defer", "dead_letter"]
EVENTS: dict[Settlement, Event] = {
    "complete": Event.COMPLETE,
    "abandon": Event.ABANDON,
    "defer": Event.DEFER,
    "dead_letter": Event.DEAD_LETTER,
}


class Both(Comparison):
    """A partition on which each operation is compared. A method returns the result of the scripts, or their refusal."""

    def create(self, settings: PartitionSettings) -> None:
        """Make the partition new."""
        self.settings = settings
        self.version = FIRST_VERSION
        self.configure(PLAIN, settings, create=True)

    def in_a_lane(self, how: How, operation: str, *ours: Any, real: Sequence[Any] | None = None, **given: Any) -> Any:
        """Carry out an operation. The scripts get the arguments of the model, if they have no others (``real``)."""
        theirs = ours if real is None else real
        step = Step(
            operation,
            lambda p, call_id: getattr(p, operation)(call_id, *theirs, **given),
            lambda call: getattr(self.model, operation)(call, *ours, **given),
        )
        return self.do(step, how)

    def without_a_lane(
        self, how: How, operation: str, *ours: Any, real: Sequence[Any] | None = None, **given: Any
    ) -> Any:
        """Do the same with an operation that takes no lane."""
        theirs = ours if real is None else real
        step = Step(
            operation,
            lambda p, call_id: getattr(p, operation)(*theirs, call_id=call_id, **given),
            lambda call: getattr(self.model, operation)(call, *ours, **given),
        )
        return self.do(step, without_lane(how))

    # -- sending and receiving -----------------------------------------------------------------------------------------

    def send(self, how: How, messages: Sequence[Outgoing]) -> Any:
        return self.do(self.sending(messages), how)

    def sending(self, messages: Sequence[Outgoing]) -> Step:
        columns = "i" if any(one.message_id for one in messages) else ""

        def make(partition: Partition, call_id: CallId) -> Request[Sent]:
            # A request refuses a message that is too large, and sends nothing. Here it has a higher limit, because the
            # script must refuse the message too.
            partition.settings = replace(partition.settings, largest_message=LARGE)
            return partition.send(call_id, messages)

        return Step(
            "send",
            make,
            lambda call: self.model.send(call, messages, columns=columns),
            lambda call, together: self.model.plan_send(call, together, messages, columns=columns),
        )

    def cancel(self, how: How, names: Sequence[str]) -> Any:
        return self.in_a_lane(how, "cancel", names)

    def receive(
        self,
        how: How,
        token: str,
        wanted: int,
        *,
        side: Side = Side.MAIN,
        mode: m.Mode = "lock",
        room: int = LARGE,
        session: str | None = None,
    ) -> Any:
        given: dict[str, Any] = {"mode": mode, "room": room, "session": session}
        run = self.run_of(how)
        return self.do(
            Step(
                "receive",
                lambda p, call_id: in_call(
                    receiving(p, token, wanted, run=run, side=side.value, refuse=m.Refused, **given), call_id
                ),
                lambda call: self.model.receive(call, token, wanted, side=side, **given),
            ),
            without_lane(how),
        )

    def run_of(self, how: How) -> str:
        """Return how a grant names the server process."""
        return "?" if how.unsure else self.run_id

    def receive_deferred(
        self,
        how: How,
        token: str,
        names: Sequence[str],
        mode: m.Mode = "lock",
        session: str | None = None,
        *,
        room: int = LARGE,
        wide: bool = False,
    ) -> Any:
        given: dict[str, Any] = {"mode": mode, "session": session, "room": room, "wide": wide}
        return self.in_a_lane(how, "receive_deferred", token, names, **given)

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete(self, how: How, locks: Sequence[Lock]) -> Any:
        return self.do(self.settling("complete", locks), how)

    def abandon(self, how: How, locks: Sequence[Lock], *, counted: bool = True, interrupted: bool = False) -> Any:
        return self.do(self.settling("abandon", locks, counted=counted, interrupted=interrupted), how)

    def defer(self, how: How, locks: Sequence[Lock]) -> Any:
        return self.do(self.settling("defer", locks), how)

    def dead_letter(self, how: How, locks: Sequence[Lock]) -> Any:
        return self.do(self.settling("dead_letter", locks), how)

    def settling(
        self, what: Settlement, locks: Sequence[Lock], *, counted: bool = True, interrupted: bool = False
    ) -> Step:
        more = {} if what != "abandon" else {"counted": counted, "interrupted": interrupted}
        interrupted = interrupted and what == "abandon"
        event = Event.RELEASE if what == "abandon" and (interrupted or not counted) else EVENTS[what]
        return Step(
            what,
            lambda p, call_id: getattr(p, what)(call_id, locks, **more),
            lambda call: getattr(self.model, what)(call, locks, **more),
            lambda call, together: self.model.plan_settle(call, together, locks, event, interrupted=interrupted),
        )

    def renew(self, how: How, locks: Sequence[Lock], leases: Sequence[str] = ()) -> Any:
        return self.do(self.renewing(locks, leases), how)

    def renewing(self, locks: Sequence[Lock], leases: Sequence[str] = ()) -> Step:
        return Step(
            "renew",
            lambda p, call_id: p.renew(call_id, locks, leases),
            lambda call: self.model.renew(call, locks, leases),
            lambda call, together: self.model.plan_renew(call, together, locks),
        )

    def redrive(self, how: How, messages: Sequence[Redrive]) -> Any:
        return self.in_a_lane(how, "redrive", messages)

    # -- administration ------------------------------------------------------------------------------------------------

    def peek(
        self,
        how: How,
        start: int = 0,
        wanted: int = 10,
        *,
        side: Side = Side.MAIN,
        room: int = LARGE,
        states: str = "alwfs",
        session: str | None = None,
    ) -> Any:
        ours = frozenset(state for state, letter in m.LETTERS.items() if letter in states)
        return self.do(
            Step(
                "peek",
                lambda p, call_id: p.peek(
                    start, wanted, side=side.value, room=room, states=states, session=session, call_id=call_id
                ),
                lambda call: self.model.peek(call, start, wanted, side=side, room=room, states=ours, session=session),
            ),
            without_lane(how),
        )

    def count(self, how: How = PLAIN) -> Any:
        return self.without_a_lane(how, "count")

    def purge(
        self,
        how: How,
        before: int,
        *,
        side: Side = Side.MAIN,
        share: int = 1_000,
        start: int = 0,
        session: str | None = None,
    ) -> Any:
        given: dict[str, Any] = {"share": share, "start": start, "session": session}
        return self.do(
            Step(
                "purge",
                lambda p, call_id: p.purge(call_id, before, side=side.value, **given),
                lambda call: self.model.purge(call, before, side=side, **given),
            ),
            how,
        )

    def due(self, how: How = PLAIN) -> Any:
        return self.in_a_lane(how, "due")

    def configure(self, how: How, settings: PartitionSettings, *, create: bool = False) -> Any:
        """Give the partition these settings, with the version that the caller names."""

        def make(partition: Partition, call_id: CallId) -> Request[int]:
            partition.settings = settings
            return partition.configure(create=create, now=call_id.now)

        step = Step("configure", make, lambda call: self.model.configure(call, settings, create=create))
        return self.do(step, how._replace(lane=""))

    def change(self, settings: PartitionSettings) -> None:
        """Change the settings, after all work that was due before."""
        self.version += 1
        while isinstance(refused := self.configure(PLAIN, settings), m.Refused) and refused.code == "DUE":
            pass
        self.settings = settings

    def destroy(self, how: How = PLAIN) -> Any:
        step = Step("destroy", lambda p, _: p.destroy(), self.model.destroy)
        return self.do(step, how._replace(lane=""))


def without_lane(how: How) -> How:
    """Remove the lane for an operation that takes none, except where its refusal is tested."""
    return how if how.defect in ("older", "unknown") else how._replace(lane="")


def in_call(request: Request[Any], call_id: CallId) -> Request[Any]:
    """Return a request with the lane, the number and the time of a call."""
    incarnation, version, *_ = request.arguments
    now = "" if call_id.now is None else call_id.now
    arguments = (incarnation, version, call_id.lane, call_id.number, now, *request.arguments[COMMON_ARGUMENTS:])
    return request._replace(arguments=arguments)
