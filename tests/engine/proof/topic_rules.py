"""The machine for a topic and its subscriptions, one of them with sessions. Calls go to all of these partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sbredis.engine import NEVER, Copy, Outgoing, PartitionSettings
from sbredis.engine._settings import Status
from tests.engine import model as m
from tests.engine.proof import draws
from tests.engine.proof.both import PLAIN
from tests.engine.proof.comparison import How, moment
from tests.engine.proof.draws import hows, rarely, some
from tests.engine.proof.machine import every
from tests.engine.proof.session_rules import DEFECTS, SessionMachine
from tests.engine.proof.town import Town
from tests.engine.terms import Side, State

TOPIC, PLAIN_ONE, SESSIONS = 0, 1, 3
"""Indexes in the family of partitions; the second to the fourth partition belong to subscriptions."""


ANY: dict[str, Callable[[Town, How], Any]] = {
    "publish": lambda both, how: both.publish(how, [Outgoing(b"m")], [[]], []),
    "ripe": lambda both, how: both.ripe(how, 5),
}
WRONG = tuple((operation, defect) for operation in ANY for defect in DEFECTS)


class TopicMachine(SessionMachine):
    """A topic and three subscriptions, from their creation on."""

    what = "topic"
    family: list[Town]
    at: int

    @property
    def both(self) -> Town:  # type: ignore[override]
        """The partition to which calls go at the moment."""
        return self.family[self.at]

    @property
    def topic(self) -> Town:
        return self.family[TOPIC]

    @property
    def subscriptions(self) -> list[Town]:
        return self.family[PLAIN_ONE : SESSIONS + 1]

    @initialize(
        settings=draws.settings,
        others=st.lists(draws.settings, min_size=3, max_size=3),
        seq=some(draws.SEQUENCES),
        first=st.lists(draws.in_sessions, max_size=4),
    )
    def begin(self, settings: PartitionSettings, others: list[PartitionSettings], seq: int, first: list[bytes]) -> None:
        self.found(settings, others, seq, first)

    def found(self, settings: PartitionSettings, others: list[PartitionSettings], seq: int, first: list[bytes]) -> None:
        """Make the topic and its subscriptions, and publish the first messages."""
        self.at = SESSIONS
        settings = replace(settings, topic=True)
        topic = Town(self.host, settings, tally=self.tally, bounds=self.bounds)
        self.family = [topic]
        topic.create(settings)
        topic.number_from(seq)
        for place, other in enumerate(others, 1):
            other = replace(other, shared=True, sessions=place == SESSIONS, duplicate_window=None)
            subscription = Town(self.host, other, tally=self.tally, bounds=self.bounds, topic=topic)
            subscription.create(other)
            self.family.append(subscription)
        if first:
            self.hand_on([Outgoing(payload) for payload in first])

    def teardown(self) -> None:
        if hasattr(self, "family"):
            self.topic.close()

    @rule(at=some([1, 2, 3, 3, 3, 0]))
    def turn_to(self, at: int) -> None:
        self.at = at

    # -- sending -------------------------------------------------------------------------------------------------------

    @rule(how=hows, messages=draws.session_messages, data=st.data(), fence=some([None, None, None, 1, 2, 3]))
    def send(
        self, how: How, messages: list[tuple[Outgoing, int | None]], data: st.DataObject, fence: int | None
    ) -> None:
        now = self.topic.now
        made = [one if wait is None else one._replace(due=moment(now + wait)) for one, wait in messages]
        routes = self.in_order([data.draw(draws.copies) for _ in made])
        waiting = [one.due is not None and data.draw(st.booleans()) for one in made]
        given = [None if waits else route for waits, route in zip(waiting, routes, strict=True)]
        self.topic.publish(how, made, given, self.subscriptions, fence=fence)

    @rule(how=hows, payloads=st.lists(draws.mixed, min_size=1, max_size=5), few=st.booleans())
    def send_plain(self, how: How, payloads: list[bytes], few: bool) -> None:
        messages = [Outgoing(payload) for payload in payloads]
        if few:
            self.topic.publish(how, messages, [[Copy(0)]] * len(messages), self.subscriptions[2:])
        else:
            self.hand_on(messages, how)

    def hand_on(self, messages: Sequence[Outgoing], how: How = PLAIN) -> Any:
        """Publish to all subscriptions; messages for a later time are scheduled."""
        routes = [None if one.due is not None else [Copy(place) for place in range(3)] for one in messages]
        return self.topic.publish(how, messages, routes, self.subscriptions)

    def deliver(self, messages: list[Outgoing]) -> object:
        return self.hand_on(messages)

    @staticmethod
    def in_order(routes: list[list[Copy]]) -> list[list[Copy]]:
        return [sorted(route, key=lambda copy: copy.place) for route in routes]

    @precondition(lambda self: self.scheduled())
    @rule(data=st.data(), how=hows, early=rarely[8], fence=some([None, 2]), strange=rarely[8])
    def publish_scheduled(self, data: st.DataObject, how: How, early: bool, fence: int | None, strange: bool) -> None:
        """Publish a scheduled message, together with another one, at its due time, or earlier, although a client must
        not do this.
        """
        due = [one.due or 0 for one in self.scheduled()]
        if not early:
            self.topic.now = max(self.topic.now, min(due))
        self.topic.count()
        self.topic.ripe(PLAIN, data.draw(some([1, 2, 50])), data.draw(draws.rooms))
        names = data.draw(st.lists(some([one.name for one in self.scheduled()]), min_size=1, max_size=3))
        messages = [Outgoing(b"", origin=name) for name in [*names, *["77777"] * strange]]
        messages.append(Outgoing(data.draw(draws.mixed)))
        routes = self.in_order([data.draw(draws.copies) for _ in messages])
        self.topic.publish(how, messages, routes, self.subscriptions, fence=fence)
        if how.lane in self.topic.frozen:
            self.topic.again(how.lane)

    @precondition(lambda self: self.scheduled())
    @rule(data=st.data(), how=hows, fence=some([None, 2]), astray=rarely[8])
    def spread(self, data: st.DataObject, how: How, fence: int | None, astray: bool) -> None:
        """Make some of the copies of messages that wait, perhaps the last ones. Each subscription has one turn."""
        waiting = self.scheduled()
        reached = data.draw(some(sorted({one.reached for one in waiting})))
        turns = {"": range(3), "b": range(1, 3), "c": range(2, 3)}
        to = data.draw(some([bound for bound in turns if not bound or bound > reached]))
        present = [place for place in turns[reached] if not to or place not in turns[to]]
        fit = [one.name for one in waiting if astray or one.reached == reached]
        names = data.draw(st.lists(some(fit), min_size=1, max_size=3, unique=True))
        messages = [Outgoing(b"", origin=name) for name in names]
        routes = self.in_order([data.draw(draws.copies) for _ in messages])
        routes = [[copy for copy in route if copy.place in present] for route in routes]
        self.topic.publish(how, messages, routes, self.subscriptions, fence=fence, bounds=(reached, to))
        self.topic.ripe(PLAIN, 50)

    @rule(how=hows, payloads=st.lists(draws.mixed, min_size=1, max_size=2))
    def send_to_spread(self, how: How, payloads: list[bytes]) -> None:
        """Send messages that were not judged, because they have very many copies."""
        messages = [Outgoing(payload, due=1) for payload in payloads]
        self.topic.publish(how, messages, [None] * len(messages), self.subscriptions)

    @precondition(lambda self: self.scheduled())
    @rule(data=st.data(), how=hows)
    def cancel(self, data: st.DataObject, how: How) -> None:
        names = data.draw(st.lists(some([one.name for one in self.scheduled()]), min_size=1, max_size=2, unique=True))
        self.topic.cancel(how, [*names, *["77777"] * data.draw(rarely[4])])

    @every(6, 5)
    @rule(how=hows, status=some(["SendDisabled", "Disabled", "ReceiveDisabled"]))
    def disable_for_a_while(self, how: How, status: Status) -> None:
        before = self.topic.settings
        for settings in (replace(before, status=status), before):
            self.topic.version += 1
            self.topic.settings = settings
            self.topic.configure(PLAIN, settings)
            self.topic.publish(how, [Outgoing(b"m")], [[Copy(1)]], self.subscriptions)

    @every(4, 2)
    @rule(run_id=some(["r1", "r2", "r3"]), times=some([1, 2]))
    def bury_copies_after_a_failover(self, run_id: str, times: int) -> None:
        """Send dead letters to subscriptions that got no call since a failover. Each numbers its own dead letters."""
        self.topic.run_id = run_id
        for _ in range(times):
            self.topic.publish(PLAIN, [Outgoing(b"m")], [[Copy(0, dead=True), Copy(2)]], self.subscriptions)

    @every(6, 1)
    @rule(how=hows, missing=some([0, 2]))
    def publish_to_one_that_is_gone(self, how: How, missing: int) -> None:
        self.topic.publish(how, [Outgoing(b"m")], [[Copy(1)]], self.subscriptions, missing=missing)

    @every(2, 1)
    @rule(data=st.data())
    def call_the_topic_wrongly(self, data: st.DataObject) -> None:
        at, self.at = self.at, TOPIC
        self.make_wrong_calls(data, WRONG, ANY)
        self.at = at

    @precondition(lambda self: self.at == PLAIN_ONE or self.at == PLAIN_ONE + 1)
    @rule(how=hows, wanted=some([1, 2, 3, 4]), mode=draws.modes)
    def receive_plain(self, how: How, wanted: int, mode: m.Mode) -> None:
        self.both.receive(how, self.both.token(), wanted, mode=mode)

    @precondition(lambda self: self.at in {PLAIN_ONE, PLAIN_ONE + 1} and self.model.leases)
    @rule(data=st.data(), counted=st.booleans())
    def give_back_what_lives_shorter_here(self, data: st.DataObject, counted: bool) -> None:
        """Abandon messages and receive them again, which must not lengthen their time to live."""
        held = self.held()
        if held:
            self.both.abandon(PLAIN, self.locks(data), counted=counted)
            self.both.receive(PLAIN, self.both.token(), 5)

    # -- administration ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.both.steps % 30 == 29 and TOPIC < self.at <= SESSIONS)
    @rule(again=rarely[2], lane=some(draws.LANES), settings=draws.settings)
    def destroy(self, again: bool, lane: str, settings: PartitionSettings) -> None:
        settings = self.alike(replace(settings, duplicate_window=None))
        self.both.destroy()
        if again:
            self.both.destroy()
            self.both.configure(PLAIN, settings)
            self.both.count()
            self.both.due(How(lane=lane))
        place = self.at - 1
        self.topic.publish(PLAIN, [Outgoing(b"m")], [[Copy(place)]], self.subscriptions, missing=place)
        self.both.incarnation += 1
        self.both.create(settings)

    # -- choices -------------------------------------------------------------------------------------------------------

    def scheduled(self) -> list[m.Message]:
        there = self.topic.model.messages[Side.MAIN].values()
        return [one for one in there if one.state is State.SCHEDULED and (one.due or 0) < NEVER - 2]
