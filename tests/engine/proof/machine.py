"""The machine that drives the scripts and the model side by side: every operation, valid and invalid, at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sbredis.engine import NEVER, Lock, Outgoing, PartitionSettings, Redrive
from sbredis.engine._settings import Status
from tests.engine import model as m
from tests.engine.proof import draws
from tests.engine.proof.both import PLAIN, Settlement
from tests.engine.proof.cases import Case, Kind
from tests.engine.proof.comparison import How, Tally, moment
from tests.engine.proof.draws import hows, rarely, some
from tests.engine.proof.hosts import Host
from tests.engine.proof.scenes import SCENES
from tests.engine.proof.seeking import Seeker, Settle
from tests.engine.proof.town import Town
from tests.engine.terms import Side, State

WrongCalls: TypeAlias = st.SearchStrategy[list[tuple[tuple[str, str], str, int]]]
REFUSED_FOR = {
    "incarnation": "GONE",
    "layout": "LAYOUT",
    "older": "REPEATED",
    "unknown": "LANE",
    "stale": "STALE",
    "newer": "CONFIG",
    "malformed": "BADCALL",
}
"""The refusal of a call with a defect."""
AGAIN = "again"
"""Instead of a defect: the call has none, and is repeated."""

Rule = TypeVar("Rule", bound=Callable[..., Any])


def every(of: int, at: int) -> Callable[[Rule], Rule]:
    """Skip a rule most of the time, so that the rules that move messages are taken more often."""
    return precondition(lambda self: self.both.steps % of == at)


@cache
def wrong_calls(wrong: tuple[tuple[str, str], ...], sought: tuple[Case, ...]) -> WrongCalls:
    """Return a strategy for some calls with a defect, or repeated ones; each is one that is sought, if there is any."""
    keys = {case.key for case in sought}
    chosen = [one for one in wrong if (one[0] if one[1] == AGAIN else (one[0], REFUSED_FOR.get(one[1]))) in keys]
    return st.lists(st.tuples(some(chosen or wrong), some(draws.LANES), draws.breakages), min_size=4, max_size=20)


class Machine(RuleBasedStateMachine):
    """A partition from its creation on. Subclasses name the host, the tally, and the bounds of a call."""

    host: ClassVar[Host]
    tally: ClassVar[Tally] = Tally()
    bounds: ClassVar[m.Bounds] = m.REAL_BOUNDS
    sought: ClassVar[tuple[Case, ...]] = ()
    """The cases that the run has not seen often enough."""
    what: ClassVar[str] = "queue"
    seeks: ClassVar[Kind] = "transitions"
    """The name of the machine, and the kind of transitions that it brings about."""
    both: Town

    @property
    def model(self) -> m.Model:
        return self.both.model

    @initialize(settings=draws.settings, seq=some(draws.SEQUENCES), first=st.lists(draws.payloads, max_size=6))
    def begin(self, settings: PartitionSettings, seq: int, first: list[bytes]) -> None:
        self.both = Town(self.host, settings, tally=self.tally, bounds=self.bounds)
        self.both.create(settings)
        self.both.number_from(seq)
        if first:
            self.both.send(PLAIN, [Outgoing(payload) for payload in first])

    def teardown(self) -> None:
        if hasattr(self, "both"):
            self.both.close()

    # -- sending -------------------------------------------------------------------------------------------------------

    @rule(how=hows, messages=draws.messages)
    def send(self, how: How, messages: list[tuple[Outgoing, int | None]]) -> None:
        now = self.both.now
        made = [one if wait is None else one._replace(due=moment(now + wait)) for one, wait in messages]
        self.both.send(how, made)

    @rule(how=hows, payloads=st.lists(draws.payloads, min_size=1, max_size=5))
    def send_plain(self, how: How, payloads: list[bytes]) -> None:
        self.both.send(how, [Outgoing(payload) for payload in payloads])

    @precondition(lambda self: self.those(State.SCHEDULED))
    @rule(data=st.data(), how=hows, again=st.booleans())
    def cancel(self, data: st.DataObject, how: How, again: bool) -> None:
        self.both.cancel(how, self.names(data, State.SCHEDULED))
        if again and how.lane in self.both.frozen:
            self.both.again(how.lane)

    # -- receiving -----------------------------------------------------------------------------------------------------

    @rule(how=hows, side=draws.sides, mode=draws.modes, wanted=some([1, 1, 2, 3, 10]), room=draws.rooms)
    def receive(self, *, how: How, side: Side, mode: m.Mode, wanted: int, room: int) -> None:
        self.both.receive(how, self.both.token(), wanted, side=side, mode=mode, room=room)

    @precondition(lambda self: self.those(State.DEFERRED))
    @rule(data=st.data(), how=hows, mode=draws.modes, room=draws.rooms, old=rarely[20])
    def receive_deferred(self, data: st.DataObject, how: How, mode: m.Mode, room: int, old: bool) -> None:
        self.both.receive_deferred(how, self.token(old), self.names(data, State.DEFERRED), mode, room=room)

    @precondition(lambda self: self.messages_of(Side.MAIN) or self.messages_of(Side.DEAD))
    @rule(data=st.data(), how=hows, mode=draws.modes, room=draws.rooms)
    def receive_by_number(self, data: st.DataObject, how: How, mode: m.Mode, room: int) -> None:
        there = [message.name for side in (Side.MAIN, Side.DEAD) for message in self.messages_of(side)]
        names = data.draw(st.lists(some(there), min_size=1, max_size=3, unique=True))
        self.both.receive_deferred(how, self.both.token(), names, mode, room=room, wide=True)

    # -- settling ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.held())
    @rule(data=st.data(), how=hows)
    def complete(self, data: st.DataObject, how: How) -> None:
        self.both.complete(how, self.locks(data))

    @precondition(lambda self: self.held())
    @rule(data=st.data(), how=hows, counted=st.booleans(), interrupted=st.booleans(), changed=draws.changes)
    def abandon(self, data: st.DataObject, how: How, counted: bool, interrupted: bool, changed: bytes) -> None:
        self.both.abandon(how, self.locks(data, changed), counted=counted, interrupted=interrupted)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), how=hows, counted=st.booleans(), changed=draws.changes, delay=draws.delays)
    def abandon_for_later(self, data: st.DataObject, how: How, counted: bool, changed: bytes, delay: int) -> None:
        self.both.abandon(how, self.locks(data, changed, delay), counted=counted)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), how=hows, changed=draws.changes)
    def defer(self, data: st.DataObject, how: How, changed: bytes) -> None:
        self.both.defer(how, self.locks(data, changed))

    @precondition(lambda self: self.held())
    @rule(data=st.data(), how=hows, changed=draws.changes)
    def dead_letter(self, data: st.DataObject, how: How, changed: bytes) -> None:
        self.both.dead_letter(how, self.locks(data, changed))

    @precondition(lambda self: self.held())
    @rule(data=st.data(), how=hows)
    def renew(self, data: st.DataObject, how: How) -> None:
        self.both.renew(how, self.locks(data))

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), how=hows, part=st.booleans())
    def renew_leases(self, data: st.DataObject, how: How, part: bool) -> None:
        """Extend whole leases, also of sessions; some have ended, and one may be renewed in part by the same call."""
        leases = data.draw(st.lists(some([*self.model.leases, "x" * 11]), min_size=1, max_size=3))
        locks = self.locks(data) if part and self.held() else []
        self.both.renew(how, locks, leases)

    @precondition(lambda self: self.messages_of(Side.DEAD))
    @rule(data=st.data(), how=hows, time_to_live=some([None, None, 0, 500, 50_000]), changed=draws.changes)
    def redrive(self, data: st.DataObject, how: How, time_to_live: int | None, changed: bytes) -> None:
        """Move some dead letters back, locked ones and missing ones among them."""
        dead = [*(message.name for message in self.messages_of(Side.DEAD)), "d77777"]
        names = data.draw(st.lists(some(dead), max_size=4, unique=True))
        self.both.redrive(how, [Redrive(name, time_to_live, changed) for name in names])

    # -- administration ------------------------------------------------------------------------------------------------

    @every(8, 1)
    @rule(
        how=hows,
        side=draws.sides,
        start=some([0, 1, 2, 5, 4_095]),
        late=st.booleans(),
        wanted=some([1, 3, 50]),
        room=draws.rooms,
        states=some(["alwfs", "alwfs", "a", "fl", "sw", "laaf"]),
    )
    def peek(self, *, how: How, side: Side, start: int, late: bool, wanted: int, room: int, states: str) -> None:
        start += max(0, self.model.seq - 8) if late else 0
        self.both.peek(how, start, wanted, side=side, room=room, states=states)

    @every(8, 3)
    @rule(how=hows)
    def count(self, how: How) -> None:
        self.both.count(how)

    @every(8, 5)
    @rule(data=st.data(), how=hows, side=draws.sides, share=some([1, 2, 1_000]), onwards=st.booleans())
    def purge(self, data: st.DataObject, how: How, side: Side, share: int, onwards: bool) -> None:
        there = list(self.model.messages[side].values())
        times = {self.both.now, *(message.enqueued or 0 for message in there)}
        before = max(0, data.draw(some(sorted(times))) + data.draw(some([0, 1])))
        start = data.draw(some([message.score for message in there])) if onwards and there else 0
        self.both.purge(how, before, side=side, share=share, start=start)

    @every(4, 2)
    @rule(how=hows)
    def due(self, how: How) -> None:
        self.both.due(how)

    @every(12, 7)
    @rule(how=hows, changed=draws.settings, status=draws.statuses, same=rarely[4], create=st.booleans())
    def configure(self, how: How, changed: PartitionSettings, status: Status, same: bool, create: bool) -> None:
        ours = self.both.settings
        window = ours.duplicate_window and (changed.duplicate_window or ours.duplicate_window)
        changed = ours if same else self.alike(replace(changed, status=status, duplicate_window=window))
        self.both.version += not same and not how.defect
        real = self.both.configure(how, changed, create=create)
        self.both.version = self.model.version
        if not isinstance(real, m.Refused):
            self.both.settings = changed

    @precondition(lambda self: self.both.steps % 30 == 29)
    @rule(again=rarely[2], lane=some(draws.LANES), settings=draws.settings)
    def destroy(self, again: bool, lane: str, settings: PartitionSettings) -> None:
        """Destroy the partition, and make it again as another one; in between all calls are refused."""
        settings = self.alike(settings)
        self.both.destroy()
        if again:
            self.both.destroy()
            self.both.configure(PLAIN, settings)
            self.both.count()
            self.both.due(How(lane=lane))
        self.both.incarnation += 1
        self.both.create(settings)

    # -- events outside the partition ----------------------------------------------------------------------------------

    @rule(data=st.data(), off=some([-1, 0, 0, 1]), then=st.booleans())
    def wait(self, data: st.DataObject, off: int, then: bool) -> None:
        """Wait until something is about to happen, or has just happened."""
        instants = [one for one in self._instants() if one > 1]  # what is due at 0 or 1 waits on a topic already
        if instants:
            self.both.now = data.draw(some(instants)) + off
        if then:
            self.both.due()

    @every(3, 0)
    @rule(by=some(draws.SCALES), long=rarely[8], further=some(draws.LONG))
    def move_time(self, by: int, long: bool, further: int) -> None:
        self.both.now += further if long else by

    @every(9, 4)
    @rule(run_id=some(["r1", "r2", "r3"]))
    def fail_over(self, run_id: str) -> None:
        """Let later calls reach another server process."""
        self.both.run_id = run_id

    @precondition(lambda self: self.both.frozen)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Repeat the last call of a lane, with any number of other calls in between."""
        self.both.again(data.draw(some(sorted(self.both.frozen))))

    # -- cases that the run has not seen often enough ------------------------------------------------------------------

    def make_wrong_calls(
        self, data: st.DataObject, wrong: tuple[tuple[str, str], ...], calls: Mapping[str, Callable[[Town, How], Any]]
    ) -> None:
        """Make some of the wrong calls, each given as an operation and a defect."""
        for (operation, defect), lane, breakage in data.draw(wrong_calls(wrong, self.sought)):
            if defect == AGAIN:
                calls[operation](self.both, How(lane=lane))
                if lane in self.both.frozen:
                    self.both.again(lane)
                continue
            self.know_lanes(defect, lane)
            calls[operation](self.both, How(defect, lane, breakage=breakage))

    @rule(data=st.data(), how=hows)
    def seek(self, data: st.DataObject, how: How) -> None:
        """Make some of the cases happen that the run has not seen often enough."""
        cases = [case for case in self.sought if self.can_bring_about(case)]
        for case in data.draw(st.lists(some(cases), min_size=1, max_size=6)) if cases else ():
            self.bring_about(case, data, how)

    def can_bring_about(self, case: Case) -> bool:
        """Return whether this machine can make a case happen, with a scene or with a message that it sends."""
        scene = SCENES.get((case.kind, case.key))
        if scene is None:
            return case.kind == self.seeks and Seeker.fits(self.both.settings, case.key)
        fits = scene.machine == self.what and (not scene.narrow or self.bounds != m.REAL_BOUNDS)
        return fits and (not scene.window or getattr(self, scene.window).settings.duplicate_window is not None)

    def bring_about(self, case: Case, data: st.DataObject, how: How) -> None:
        scene = SCENES.get((case.kind, case.key))
        if scene is None:
            Seeker(self.both, self.deliver, self.settle(data, how), how).bring_about(case.key)
        else:
            scene.play(self, how._replace(defect=""))

    # -- choices -------------------------------------------------------------------------------------------------------

    def deliver(self, messages: list[Outgoing]) -> object:
        return self.both.send(PLAIN, messages)

    def settle(self, data: st.DataObject, how: How) -> Settle:
        """Return a function that settles messages of the partition."""
        del data

        def settle(what: Settlement, locks: Sequence[Lock], counted: bool) -> None:
            self.both.do(self.both.settling(what, locks, counted=counted), how)

        return settle

    def know_lanes(self, defect: str, lane: str) -> None:
        """If the defect is an older number of a lane, let a lane have one."""
        if defect == "older" and not any(known.number > 1 for known in self.model.lanes.values()):
            self.both.due(How(lane=lane))
            self.both.due(How(lane=lane))

    def alike(self, settings: PartitionSettings) -> PartitionSettings:
        """Return these settings, changed to fit an entity of the same kind."""
        ours = self.both.settings
        return replace(settings, shared=ours.shared, sessions=ours.sessions, topic=ours.topic)

    def those(self, state: State, *sides: Side) -> list[m.Message]:
        """Return all messages in a state."""
        there = (message for side in sides or Side for message in self.model.messages[side].values())
        return [message for message in there if message.state is state]

    def held(self) -> list[tuple[str, str]]:
        """Return the locked messages, each with its token."""
        return [(one.token, one.name) for one in self.model.everything() if self.model._holders(one)]

    def messages_of(self, side: Side) -> list[m.Message]:
        """Return all messages of a side."""
        return list(self.model.messages[side].values())

    def token(self, old: bool) -> str:
        """Return a token that was never used, or a token that is in use and must be refused."""
        return next(iter(self.model.leases))[:11] if old and self.model.leases else self.both.token()

    def _instants(self) -> list[int]:
        model = self.model
        window = self.both.settings.duplicate_window or 0
        instants = {message.expires for message in model.messages[Side.MAIN].values()}
        instants.update(model._due().values())
        instants.update(lease.until - model.offset for lease in model.leases.values())
        instants.update(seen + window for seen in model.dedup.values())
        return sorted(instant for instant in instants if instant < NEVER - 1)

    def names(self, data: st.DataObject, state: State) -> list[str]:
        """Draw names of messages in this state, now and then with an unknown name among them."""
        fitting = [message.name for message in self.those(state)]
        names = data.draw(st.lists(some(fitting), min_size=1, max_size=3, unique=True))
        if data.draw(rarely[4]):
            others = {message.name for side in Side for message in self.model.messages[side].values()} - set(names)
            names.append(data.draw(some(["77777", "d77777", *sorted(others)])))
        return names

    def locks(self, data: st.DataObject, changed: bytes = b"", delay: int = 0) -> list[Lock]:
        """Draw locks: of all or some messages of a lease, of messages of several leases, or with a mistake."""
        held = self.held()
        token, _ = data.draw(some(held))
        chosen = [one for one in held if one[0] == token]
        kind = data.draw(some(["whole", "whole", "part", "any", "wrong"]))
        if kind == "part":
            chosen = data.draw(st.lists(some(chosen), min_size=1, max_size=3))
        elif kind in ("any", "wrong"):
            chosen = data.draw(st.lists(some(held), min_size=1, max_size=4))
        if kind == "wrong":
            strangers = [("x" * 11, chosen[0][1]), (token, "77777"), (token, "d77777")]
            chosen.append(data.draw(some([*strangers, *((token, name) for _, name in held)])))
        return [Lock(of, name, changed, delay) for of, name in chosen]
