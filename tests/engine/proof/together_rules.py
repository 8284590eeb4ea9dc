"""The machine of transactions with rules for calls that have several transactions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from sbredis.engine import Copy, Outgoing
from tests.engine.proof import draws
from tests.engine.proof.comparison import How, moment
from tests.engine.proof.draws import hows, rarely, some
from tests.engine.proof.topic_rules import SESSIONS, TOPIC
from tests.engine.proof.transaction_rules import QUEUE, SETTLEMENTS, Parts, TransactionMachine

__all__ = ["TogetherMachine"]


class TogetherMachine(TransactionMachine):
    """The machine of transactions whose calls often have several."""

    @rule(each=some([0, 0, 1, 1, 2, 3]))
    def share_calls(self, each: int) -> None:
        self.each = each

    @rule(
        data=st.data(),
        how=hows,
        drawn=st.lists(
            st.tuples(
                st.lists(some([TOPIC, TOPIC, 1, 2, SESSIONS, SESSIONS, QUEUE, QUEUE]), min_size=1, max_size=3),
                some([*"      ", *SETTLEMENTS, *"dsltf"]),
            ),
            min_size=2,
            max_size=4,
        ),
        times=some([1, 1, 2]),
        again=rarely[4],
    )
    def share_a_call(
        self, data: st.DataObject, how: How, drawn: list[tuple[list[int], str]], times: int, again: bool
    ) -> None:
        """Carry out several transactions in one call. Some are refused, and some need what others have taken."""
        self._stock(3)
        transactions: list[Parts] = []
        for places, kind in drawn:
            parts = self._parts(data, places)
            wrong = self._wrong(data, kind, data.draw(some(self.family[1:])))
            transactions += [parts] * (times - 1) + [[*parts, *wrong]] + [parts] * (times - 1)
        transactions = [parts for parts in transactions if parts]
        if transactions:
            town = transactions[0][0][0]
            town.transact_together(how, transactions)
            if again and how.lane in town.frozen:
                town.again(how.lane)

    @rule(
        data=st.data(),
        how=hows,
        of_topic=st.booleans(),
        spare=some([0, 19, 20, 24, 27, 40, 1_000]),
        drawn=st.lists(
            st.lists(some(["send", "send", "state", "advance", "wrong"]), min_size=1, max_size=2),
            min_size=2,
            max_size=5,
        ),
    )
    def fill_up_in_one_call(
        self, *, data: st.DataObject, how: How, of_topic: bool, spare: int, drawn: list[list[str]]
    ) -> None:
        """Let transactions of one call fill an entity up. Those that are refused take no room."""
        store = self.topic if of_topic else self.queue
        before, stored = store.settings, store.model.watermarks.get(b"a")
        with self._stating(of_topic, "state") as step:
            advance = store, store.advancing(b"a", stored[1] if stored else None, data.draw(some("123")))
            parts: dict[str, Parts] = {
                "send": [self._sends()[0 if of_topic else 1]],
                "state": [step or advance],
                "advance": [advance],
                "wrong": self._wrong(data, "complete", store if store is self.queue else self.family[1]),
            }
            self._give(store, replace(before, quota=store.model.bytes + spare))
            transactions = [[part for kind in kinds for part in parts[kind]] for kinds in drawn]
            transactions[0][0][0].transact_together(how, transactions)
            self._give(store, before)

    @rule(
        lane=some(["", *draws.LANES]),
        of_topic=st.booleans(),
        few=st.booleans(),
        kept=st.booleans(),
        first=st.booleans(),
    )
    def need_room_in_one_call(self, *, lane: str, of_topic: bool, few: bool, kept: bool, first: bool) -> None:
        """Send to a full entity whose messages have expired, before or after a transaction that needs no room."""
        store = self.topic if of_topic else self.queue
        with self._full_of_what_expires(store, few=few, kept=kept):
            self._give(store, replace(store.settings, quota=store.model.bytes))
            self.topic.now += 10
            transactions = [[self._sends()[0 if of_topic else 1]], [(store, store.remembering({b"key": 1}))]]
            store.transact_together(How(lane=lane), transactions if first else transactions[::-1])
            if lane in store.frozen:
                store.again(lane)

    @rule(how=hows, wait=some([0, 5]), route=draws.copies)
    def publish_what_the_call_schedules(self, how: How, wait: int, route: list[Copy]) -> None:
        """Schedule a message, and publish it in a later transaction of the same call."""
        later = Outgoing(b"later", due=moment(self.topic.now + wait))
        scheduling = self.topic.publishing([later], [None], self.subscriptions)
        name = str(self.topic.model.seq + 1)
        publishing = self.topic.publishing([Outgoing(b"", origin=name)], self.in_order([route]), self.subscriptions)
        self.topic.transact_together(how, [[(self.topic, scheduling)], [(self.topic, publishing)]])

    @rule(how=hows, more=st.lists(some([0, 1, 2]), min_size=2, max_size=3))
    def lose_the_role_in_a_call(self, how: How, more: list[int]) -> None:
        """Publish with the fences of clients that had the role one after the other, in any order."""
        newest, one = self.topic.model.route_fence, ([Outgoing(b"m")], [[Copy(1)]], self.subscriptions)
        steps = [self.topic.publishing(*one, fence=newest + 1 + later) for later in more]
        self.topic.transact_together(how, [[(self.topic, step)] for step in steps])
