"""The machine for transactions over a topic, its three subscriptions, and a queue in the same slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from sbredis.engine import Content, Copy, Lock, Outgoing, PartitionSettings, SessionLock, encode
from tests.engine import model as m
from tests.engine.proof import draws
from tests.engine.proof.both import EVENTS, PLAIN, Settlement
from tests.engine.proof.comparison import How, Step, moment
from tests.engine.proof.draws import hows, rarely, some
from tests.engine.proof.scenes import STRANGER
from tests.engine.proof.seeking import Settle
from tests.engine.proof.session_rules import DEFECTS
from tests.engine.proof.topic_rules import SESSIONS, TOPIC, TopicMachine
from tests.engine.proof.town import Town
from tests.engine.terms import Side

QUEUE = 4
"""The index of the queue in the family of partitions."""
SETTLEMENTS = tuple(EVENTS)
Parts = list[tuple[Town, Step]]
STATES: tuple[bytes | None, ...] = (None, b"1", b"four", b"1234567890")

WRONG = tuple(("transact", defect) for defect in DEFECTS if defect)


class TransactionMachine(TopicMachine):
    """A topic with subscriptions, and a queue, from their creation on."""

    what = "transactions"
    seeks = "transacted"
    each = 0
    """If not 0: all rules split their transactions into transactions of this many operations, which share a call."""

    @initialize(
        settings=draws.settings,
        others=st.lists(draws.settings, min_size=4, max_size=4),
        seq=some(draws.SEQUENCES),
        first=st.lists(draws.in_sessions, max_size=4),
        sessions=st.booleans(),
    )
    def begin(
        self, settings: PartitionSettings, others: list[PartitionSettings], seq: int, first: list[bytes], sessions: bool
    ) -> None:
        # The rules make the entities too small when they need it.
        settings, *others = [
            replace(one, quota=1 << 30, largest_message=1 << 20, lock_duration=max(one.lock_duration, 5_000))
            for one in (settings, *others)
        ]
        self.found(settings, others[:-1], seq, first)
        theirs = replace(others[-1], sessions=sessions)
        queue = Town(self.host, theirs, tally=self.tally, bounds=self.bounds, beside=self.topic)
        self.family.append(queue)
        queue.create(theirs)

    @property
    def queue(self) -> Town:
        return self.family[QUEUE]

    @rule(at=some([1, 2, SESSIONS, SESSIONS, QUEUE, QUEUE, QUEUE, TOPIC]))
    def turn_to(self, at: int) -> None:
        self.at = at

    def deliver(self, messages: list[Outgoing]) -> object:
        return self.queue.send(PLAIN, messages) if self.at == QUEUE else super().deliver(messages)

    def settle(self, data: st.DataObject, how: How) -> Settle:
        """Return a function that settles messages of the partition in a transaction, perhaps with a send."""

        def settle(what: Settlement, locks: Sequence[Lock], counted: bool) -> None:
            one = self.both, self.both.settling(what, locks, counted=counted)
            self._transact(how, data.draw(st.permutations([one, *self._sends()[: data.draw(some([0, 1, 2]))]])))

        return settle

    @rule(how=hows, messages=draws.session_messages)
    def send_to_the_queue(self, how: How, messages: list[tuple[Outgoing, int | None]]) -> None:
        now = self.queue.now
        made = [one if wait is None else one._replace(due=moment(now + wait)) for one, wait in messages]
        self.queue.send(how, made)

    @rule(wanted=some([1, 2, 3]), side=draws.sides)
    def receive_everywhere(self, wanted: int, side: Side) -> None:
        """Lock messages of all subscriptions and of the queue."""
        for town in self.family[1:]:
            self._receive(town, wanted, side)

    def _receive(self, town: Town, wanted: int, side: Side, *, name: str | None = None) -> None:
        """Lock messages. If the entity requires sessions, accept this session before, or the next one."""
        token = town.token()
        if side is Side.MAIN and town.settings.sessions:
            town.accept(token, name)
            lease = town.model.leases.get(token)
            if lease and lease.session is not None:
                town.receive(PLAIN, token, wanted, session=lease.session)
        else:
            town.receive(PLAIN, token, wanted, side=side)

    # -- transactions --------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        how=hows,
        places=st.lists(some([TOPIC, TOPIC, 1, 2, SESSIONS, SESSIONS, QUEUE, QUEUE]), min_size=1, max_size=6),
        again=rarely[4],
    )
    def transact(self, data: st.DataObject, how: How, places: list[int], again: bool) -> None:
        """Carry out any operations on any of the partitions."""
        self._stock(3)
        self._transact(how, self._parts(data, places), again=again)

    @rule(data=st.data(), how=hows, messages=st.lists(draws.payloads, min_size=1, max_size=2), later=rarely[4])
    def complete_and_publish(self, data: st.DataObject, how: How, messages: list[bytes], later: bool) -> None:
        """Settle messages of subscriptions, and publish copies to the same subscriptions."""
        self._stock(2)
        routes = self.in_order([data.draw(draws.copies) for _ in messages])
        due = moment(self.topic.now + 400) if later else None
        step = self.topic.publishing([Outgoing(one, due=due) for one in messages], routes, self.subscriptions)
        parts = [*self._parts(data, [1, 2, SESSIONS]), (self.topic, step)]
        self._transact(how, data.draw(st.permutations(parts)))

    @rule(
        data=st.data(),
        how=hows,
        what=some([*SETTLEMENTS, "abandon", "abandon"]),
        counted=st.booleans(),
        late=st.booleans(),
        aside=st.booleans(),
        side=draws.sides,
    )
    def settle_what_expires(
        self, *, data: st.DataObject, how: How, what: Settlement, counted: bool, late: bool, aside: bool, side: Side
    ) -> None:
        """Settle messages, some of which have expired during the lock, and some of which were deferred before."""
        payload = encode(Content(b"brief", session_id="brief"))
        brief = [Outgoing(payload, time_to_live=ttl) for ttl in (50, 900, 50)]
        self.queue.send(PLAIN, brief)
        self.hand_on([*brief, *[Outgoing(b"without a session")] * (side is Side.DEAD)])
        parts: Parts = []
        for town in self.family[1:]:
            self._receive(town, 10, side, name="brief")
            if aside:
                self._set_aside(town)
            locks, delay = self._locks(town)[-3:], data.draw(some([0, 0, 5, 30_000]))
            locks = [lock._replace(delay=delay) for lock in locks] if what == "abandon" else locks
            if what == "dead_letter":
                locks = [lock for lock in locks if lock.name[0] != "d"]
            if locks:
                parts.append((town, town.settling(what, locks, counted=counted)))
        self.topic.now += 60 if late else 0
        self._transact(how, parts)
        for town in self.family[1:]:
            for token, lease in list(town.model.leases.items()):
                if lease.session == "brief":
                    town.release_session(PLAIN, SessionLock("brief", token))

    @rule(data=st.data(), ids=st.lists(some([b"x", b"y", b"z"]), min_size=2, max_size=4), lane=some(["", *draws.LANES]))
    def send_one_id_twice(self, data: st.DataObject, ids: list[bytes], lane: str) -> None:
        parts: Parts = []
        for message_id in ids:
            message = Outgoing(self._payload(self.queue), message_id=message_id)
            parts.append((self.queue, self.queue.sending([message])))
            parts.append((self.topic, self.topic.publishing([message], [[Copy(1)]], self.subscriptions)))
        self._transact(How(lane=lane), data.draw(st.permutations(parts)))

    @rule(names=st.lists(some(["1", "2", "77777"]), min_size=1, max_size=2), run_id=some(["r1", "r2", "r3"]), how=hows)
    def publish_what_was_scheduled(self, names: list[str], run_id: str, how: How) -> None:
        """Publish scheduled messages in two operations, perhaps after a failover that no partition has noticed yet."""
        names = [one.name for one in self.scheduled()][:2] or names
        self.topic.run_id = run_id
        messages = [Outgoing(b"", origin=name) for name in names]
        routes = [[Copy(0, dead=True), Copy(2)] for _ in names]
        step = self.topic.publishing(messages, routes, self.subscriptions)
        self._transact(how, [(self.topic, step), (self.topic, step), *self._sends()[:1]])

    @rule(
        data=st.data(),
        how=hows,
        keys=st.dictionaries(some([b"k", b"ke", b"key"]), some([1, 9, 1_000, 30_000]), min_size=1),
        times=some([1, 1, 2]),
    )
    def remember(self, data: st.DataObject, how: How, keys: dict[bytes, int], times: int) -> None:
        """Remember keys, among other operations. If one of the keys is known, the transaction is refused."""
        town = data.draw(some(self.family))
        for _ in range(times):
            parts = [*self._parts(data, [1, 2, QUEUE]), (town, town.remembering(keys))]
            parts += [(town, town.remembering(keys))] * (self.each == 1)
            self._transact(how, data.draw(st.permutations(parts)))

    # -- refusals ------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), how=some([PLAIN, PLAIN, How(lane="a")]), times=some([1, 2, 3]))
    def end_in_a_refusal(self, data: st.DataObject, how: How, times: int) -> None:
        """Let the last operation of a transaction be refused for a reason that its own arguments give."""
        for _ in range(times):
            town = data.draw(some(self.family[1:]))
            kind = data.draw(some([*SETTLEMENTS, *"dddssllttff", "twice"]))
            parts = self._parts(data, [1, 2, SESSIONS, QUEUE])
            if kind == "twice":
                kinds: list[Settlement] = [data.draw(some(SETTLEMENTS)) for _ in range(2)]
                parts = [
                    (town, town.settling(what, locks)) for what in kinds for locks in [self._locks(town)[:1]] if locks
                ]
            elif kind == "f" and self.topic.model.route_fence < 2:
                self.topic.publish(PLAIN, [Outgoing(b"m")], [[]], self.subscriptions, fence=2)
            self._transact(how, [*parts, *self._wrong(data, kind, town)])
            self._transact(how, parts)  # the refusal has left all locks as they were

    @rule(
        data=st.data(),
        how=hows,
        names=some([*[[b"a"]] * 6, *[[b"a", b"b"]] * 2, [b"a", b"a"]]),
        at=some([TOPIC, 1, SESSIONS, QUEUE, QUEUE, QUEUE]),
        beside=st.lists(some([[], [QUEUE], [1, QUEUE, QUEUE]]), min_size=2, max_size=6),
    )
    def advance_watermarks(
        self, data: st.DataObject, how: How, names: list[bytes], at: int, beside: list[list[int]]
    ) -> None:
        """Advance watermarks, alone or beside other operations. Some of them do not have the expected value."""
        town = self.family[at]
        for places in beside:
            parts = self._parts(data, places)
            for name in names:
                stored = town.model.watermarks.get(name)
                now = stored[1] if stored else None
                expected = data.draw(some([now] * 5 + ["1", None]))
                value = data.draw(some(["1", "2", "3", *([None] * (expected is not None))]))
                parts.append((town, town.advancing(name, expected, value)))
            self._transact(how, data.draw(st.permutations(parts)), again=data.draw(rarely[4]))

    def _wrong(self, data: st.DataObject, kind: str, town: Town) -> Parts:
        """Return an operation that is refused."""
        plain, with_sessions = self.family[1], self.family[SESSIONS]
        if kind in SETTLEMENTS:
            return [(town, town.settling(kind, [Lock(STRANGER, data.draw(some(["1", "d1"])))]))]
        if kind == "d":
            dead = [lock for lock in self._locks(town) if lock.name[0] == "d"] or [Lock(STRANGER, "d1")]
            return [(town, town.settling("dead_letter", dead))]
        if kind == "s":
            sending = self.queue, self.queue.sending([Outgoing(b"none")])
            return [
                sending if self.queue.settings.sessions else (plain, plain.stating(SessionLock("a", STRANGER), b"s"))
            ]
        if kind == "l":
            return [(with_sessions, with_sessions.stating(SessionLock("a", STRANGER), b"s"))]
        one = [Outgoing(b"m")], [[Copy(1)]], self.subscriptions
        if kind == "t":
            return [(self.topic, self.topic.publishing(*one, missing=data.draw(some([0, 2]))))]
        return [(self.topic, self.topic.publishing(*one, fence=1))] if kind == "f" else []

    @rule(data=st.data(), at=some(range(5)))
    def transact_wrongly(self, data: st.DataObject, at: int) -> None:
        self.at = at
        own = self.both.settling("complete", [Lock(STRANGER, "1")])
        parts = self._sends() if self.both is self.topic else [(self.both, own), *self._sends()]
        self.make_wrong_calls(data, WRONG, {"transact": lambda both, how: both.transact(how, parts)})

    @rule(data=st.data(), unfit=some(["incarnation", "stale", "newer"]), lane=some(["", *draws.LANES]))
    def know_another_participant_wrongly(self, data: st.DataObject, unfit: str, lane: str) -> None:
        parts: Parts = data.draw(st.permutations(self._sends()))
        parts[0][0].transact(How(lane=lane), parts, unfit=(unfit, parts[1][0]))

    @rule(
        data=st.data(),
        change=some(["status", "largest", "quota"]),
        of_topic=st.booleans(),
        what=some(["send", "state"]),
    )
    def lack_room(self, data: st.DataObject, change: str, of_topic: bool, what: str) -> None:
        """Send to an entity, or set a state, while it is disabled or full, or takes small messages only."""
        store = self.topic if of_topic else self.queue
        before = store.settings
        changed = {
            "status": replace(before, status="SendDisabled"),
            "largest": replace(before, largest_message=1),
            "quota": replace(before, quota=max(1, store.model.bytes)),
        }
        with self._stating(of_topic, what) as step:
            parts = [step, step] if step else self._sends()
            self._give(store, changed[change])
            self._transact(PLAIN, [*self._parts(data, [1, 2]), *parts])
            self._transact(PLAIN, parts)
            self._give(store, before)

    @rule(
        of_topic=st.booleans(),
        what=some(["send", "state"]),
        few=st.booleans(),
        kept=rarely[4],
        twice=st.booleans(),
        last=st.booleans(),
    )
    def need_the_room_of_what_has_expired(  # noqa: PLR0917 -- Hypothesis names the arguments
        self, of_topic: bool, what: str, few: bool, kept: bool, twice: bool, last: bool
    ) -> None:
        """Send to a full entity whose messages have expired, so that the call can be made again."""
        store = self.topic if of_topic else self.queue
        with self._full_of_what_expires(store, few=few, kept=kept), self._stating(of_topic, what) as step:
            self._give(store, replace(store.settings, quota=store.model.bytes))
            self.topic.now += 10
            for _ in range(1 + twice):
                sends = self._sends()
                self._transact(PLAIN, [*sends[of_topic:][:1], step] if step else sends if last else sends[::-1])

    @contextmanager
    def _full_of_what_expires(self, store: Town, *, few: bool, kept: bool) -> Iterator[None]:
        """Store messages that will expire soon. The block may change the quota, and let them expire."""
        town = self.family[SESSIONS] if store is self.topic else self.queue
        before, after = store.settings, town.settings
        self._give(town, replace(town.settings, dead_letter_expired=kept))
        brief = [Outgoing(self._payload(town), time_to_live=5)] * (2 if few else 30)
        if store is self.topic:
            self.topic.publish(PLAIN, brief, [[Copy(2)]] * len(brief), self.subscriptions)
        else:
            self.queue.send(PLAIN, brief)
        yield
        self._give(store, replace(store.settings, quota=before.quota))
        self._give(town, replace(town.settings, dead_letter_expired=after.dead_letter_expired))

    @contextmanager
    def _stating(self, of_topic: bool, what: str) -> Iterator[tuple[Town, Step] | None]:
        """Lock a session for as long as the block runs, and give an operation that sets its state, if there is one."""
        town = self.family[SESSIONS] if of_topic else self.queue
        if what == "send" or not town.settings.sessions:
            yield None
            return
        lock = SessionLock("stated", town.token())
        town.accept_session(PLAIN, lock.token, lock.name)
        yield town, town.stating(lock, b"more" * 5)
        town.set_state(PLAIN, lock, None)
        town.release_session(PLAIN, lock)

    @rule(data=st.data(), spare=some([1, 9, 10, 11, 20, 30]))
    def fill_up_together(self, data: st.DataObject, spare: int) -> None:
        """Let the operations of one transaction fill an entity up, with messages and with states of sessions."""
        payload = self._payload(self.queue)
        for store, town, step in (
            (self.queue, self.queue, self.queue.sending([Outgoing(payload)])),
            (self.topic, self.family[SESSIONS], self._sends()[0][1]),
        ):
            before, token, parts = store.settings, town.token(), [(store, step)]
            town.accept_session(PLAIN, token, "stated")
            lock = SessionLock("stated", token)
            parts += [(town, town.stating(lock, data.draw(some(STATES)))) for _ in "ab"]
            if not town.settings.sessions:
                parts = [(store, step)] * 3
            parts += self._parts(data, [1, QUEUE]) * bool(self.each)
            self._give(store, replace(before, quota=store.model.bytes + spare))
            self._transact(PLAIN, data.draw(st.permutations(parts)))
            self._give(store, before)
            if town.settings.sessions:
                town.release_session(PLAIN, lock)

    # -- choices -------------------------------------------------------------------------------------------------------

    def _stock(self, least: int) -> None:
        """Lock new messages if fewer than this many are locked."""
        if sum(len(self._locks(town)) for town in self.family[1:]) < least:
            self.hand_on([Outgoing(encode(Content(b"stock", session_id=name))) for name in ("a", "b")])
            self.queue.send(PLAIN, [Outgoing(self._payload(self.queue))] * 2)
            self.receive_everywhere(2, Side.MAIN)

    def _transact(self, how: How, parts: Parts, *, again: bool = False) -> None:
        if parts:
            town, each = parts[0][0], self.each or len(parts)
            town.transact_together(how, [parts[at : at + each] for at in range(0, len(parts), each)])
            if again and how.lane in town.frozen:
                town.again(how.lane)

    def _sends(self) -> Parts:
        """Return a publish to all subscriptions, and a send to the queue."""
        publish = self.topic.publishing([Outgoing(b"more")], [[Copy(0), Copy(1), Copy(2)]], self.subscriptions)
        return [(self.topic, publish), (self.queue, self.queue.sending([Outgoing(self._payload(self.queue))]))]

    def _payload(self, town: Town) -> bytes:
        return encode(Content(b"more", session_id="a")) if town.settings.sessions else b"more"

    @staticmethod
    def _give(town: Town, settings: PartitionSettings) -> None:
        """Change the settings of an entity."""
        town.version += 1
        if not isinstance(town.configure(PLAIN, settings), m.Refused):
            town.settings = settings
        town.version = town.model.version

    @staticmethod
    def _locks(town: Town) -> list[Lock]:
        """Return the locks of all messages that are locked now."""
        model = town.model
        return [
            Lock(one.token, one.name)
            for one in model.everything()
            if any(lease.until - model.offset > town.now for lease in model._holders(one))
        ]

    @staticmethod
    def _set_aside(town: Town) -> None:
        """Defer a locked message and receive it again by its number."""
        for lock in TransactionMachine._locks(town)[-1:]:
            lease = town.model.leases.get(lock.token)
            town.defer(PLAIN, [lock])
            if lease is None or lease.session is None:
                town.receive_deferred(PLAIN, town.token(), [lock.name])
            else:
                town.receive_deferred(PLAIN, lock.token, [lock.name], "lock", lease.session)

    def _parts(self, data: st.DataObject, places: list[int]) -> Parts:
        """Draw an operation for each of these partitions, if it has one that can be carried out."""
        taken: set[tuple[int, str]] = set()
        return [(self.family[place], step) for place in places for step in self._part(data, place, taken)]

    def _part(self, data: st.DataObject, place: int, taken: set[tuple[int, str]]) -> Iterator[Step]:
        town = self.family[place]
        locks = [lock for lock in self._locks(town) if (place, lock.name) not in taken]
        sessions = [
            (lease.session, token)
            for token, lease in town.model.leases.items()
            if lease.session is not None and lease.until - town.model.offset > town.now
        ]
        kinds = (
            ["settle"] * 4 * bool(locks)
            + ["renew"] * bool(locks)
            + ["state"] * bool(sessions)
            + ["send"] * (place in {TOPIC, QUEUE})
        )
        kind = data.draw(some(kinds)) if kinds else ""
        if kind == "state":
            lock = SessionLock(*data.draw(some(sessions)))
            yield town.stating(lock, data.draw(draws.states))
        elif kind == "renew":
            chosen = data.draw(st.lists(some(locks), min_size=1, max_size=3, unique=True))
            taken.update((place, lock.name) for lock in chosen)
            yield town.renewing(chosen)
        elif kind == "settle":
            what: Settlement = data.draw(some(SETTLEMENTS))
            fit = [lock for lock in locks if what != "dead_letter" or lock.name[0] != "d"]
            if fit:
                chosen = data.draw(st.lists(some(fit), min_size=1, max_size=3, unique=True))
                taken.update((place, lock.name) for lock in chosen)
                changes, delay = data.draw(draws.changes), data.draw(draws.delays) * data.draw(some([0, 0, 1]))
                chosen = [lock._replace(changes=changes * (what != "complete")) for lock in chosen]
                delayed = [lock._replace(delay=delay) for lock in chosen] if what == "abandon" else chosen
                yield town.settling(what, delayed, counted=data.draw(st.booleans()))
        elif kind:
            yield self._sending(data, town)

    def _sending(self, data: st.DataObject, town: Town) -> Step:
        drawn = data.draw(st.lists(st.tuples(draws.of_sessions, draws.delays_until_due), min_size=1, max_size=2))
        if town.settings.sessions:
            payload: bytes = data.draw(draws.in_sessions)
            drawn = [(one._replace(payload=payload), wait) for one, wait in drawn]
        made = [one if wait is None else one._replace(due=moment(town.now + wait)) for one, wait in drawn]
        if town is self.queue:
            return town.sending(made)
        routes: list[Any] = self.in_order([data.draw(draws.copies) for _ in made])
        scheduled = [one.name for one in self.scheduled()]
        again: bool = data.draw(st.booleans())
        if scheduled and again:
            made = [Outgoing(b"", origin=data.draw(some(scheduled))), *made]
            routes = [*self.in_order([data.draw(draws.copies)]), *routes]
        return town.publishing(made, routes, self.subscriptions, fence=data.draw(some([None, None, None, None, 1, 3])))
