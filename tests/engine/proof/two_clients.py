"""The guarantees for two clients whose calls to one partition interleave, over a network that loses messages.

The code of this module does not know how the scripts work.
Each client derives beliefs from its answers: which messages it holds, and for how long by its own clock.
That clock only goes forward.
An observer between them sees every answer, including the lost ones, and compares the beliefs.
The server has another clock.
The clock of the server may be set back at any time.
After another server process has taken over, the clock may be ahead by up to one lock duration.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sbredis.engine import CallId, Lock, Mode, Outgoing, Partition, PartitionSettings, Received, Request
from tests.engine.model import Refused
from tests.engine.proof.both import in_call
from tests.engine.proof.hosts import Host
from tests.engine.taking import first_token, receiving

T0 = 1_700_000_000_000
LOCK = 10_000
SETTINGS = PartitionSettings(clock="test", lock_duration=LOCK, max_delivery_count=99_999)

Make = Callable[[CallId], Request[Any]]


@dataclass
class Held:
    """A client's belief about a message that it was given."""

    lock: Lock
    until: int
    delivery: int  # the delivery count of the message at that time, which the client does not know


@dataclass
class Pending:
    """A call that was begun and is not answered yet. If the client sends it again, it is the same call."""

    kind: str
    make: Make
    number: int
    token: str
    about: dict[str, Held]
    executed: Any = None  # the server's answer to the first run of the call


@dataclass
class Client:
    """A client that has one call at a time under way, in its own lane."""

    name: str
    number: int = 0
    pending: Pending | None = None
    held: dict[str, Held] = field(default_factory=dict)


class TwoClients(RuleBasedStateMachine):
    """The machine; subclasses name the host."""

    host: ClassVar[Host]

    @initialize(messages=st.integers(1, 4))
    def begin(self, messages: int) -> None:
        self.partition = Partition("two", "abc", "e1", "i1", 1, SETTINGS)
        self.now = T0  # the time by the clock of the clients
        self.skew = 0  # how far the clock of the server is ahead
        self.seen_skew = 0  # the value of `skew` when the partition last read the clock
        # The value of `skew` when the partition last recorded the time. A repeated call does not record the time.
        self.recorded_skew = 0
        self.run_id = 1
        self.clients = [Client("one"), Client("two")]
        self.tokens = itertools.count(1)
        self.deliveries: dict[str, int] = {}
        self.gone: set[str] = set()  # the messages that were settled for good
        self.host.run(self.partition.configure(create=True))
        self.host.run(self.partition.send(CallId("", 0, self.now), [Outgoing(b"m")] * messages))

    def teardown(self) -> None:
        if hasattr(self, "partition"):
            self.host.ask("DEL", *self.partition.keys)

    # -- calls begin ---------------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, 1), kind=st.sampled_from(["lock", "lock", "lock", "delete"]), wanted=st.integers(1, 3))
    def receive(self, who: int, kind: str, wanted: int) -> None:
        def make(call_id: CallId) -> Request[Any]:
            return in_call(request, CallId("", 0, call_id.now))

        token = self._token()
        mode: Mode = "lock" if kind == "lock" else "delete"
        request = receiving(self.partition, token, wanted, run=f"r{self.run_id}", mode=mode, refuse=Refused)
        self._begin_call(who, kind, make, token, {})

    @rule(
        who=st.integers(0, 1),
        kind=st.sampled_from(["complete", "complete", "abandon", "release", "renew"]),
        data=st.data(),
    )
    def settle(self, who: int, kind: str, data: st.DataObject) -> None:
        """Settle messages that the client holds or held earlier. The client forgets the messages that it gives up."""
        client = self.clients[who]
        if not client.held or client.pending:
            return
        chosen = data.draw(st.lists(st.sampled_from(sorted(client.held)), min_size=1, max_size=3, unique=True))
        about = {name: client.held[name] for name in chosen}
        locks = [held.lock for held in about.values()]
        token = self._token()
        makes: dict[str, Make] = {
            "complete": lambda call_id: self.partition.complete(call_id, locks),
            "abandon": lambda call_id: self.partition.abandon(call_id, locks),
            "release": lambda call_id: self.partition.abandon(call_id, locks, counted=False),
            "renew": lambda call_id: self.partition.renew(call_id, locks),
        }
        if kind != "renew":
            for name in about:
                del client.held[name]
        self._begin_call(who, kind, makes[kind], token, about)

    def _begin_call(self, who: int, kind: str, make: Make, token: str, about: dict[str, Held]) -> None:
        client = self.clients[who]
        if client.pending is None:
            client.number += kind not in {"lock", "delete"}  # a grant has no lane
            client.pending = Pending(kind, make, client.number, token, about)

    def _token(self) -> str:
        return first_token(f"{next(self.tokens):08}")

    # -- calls travel --------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(client.pending for client in self.clients))
    @rule(first=st.integers(0, 1), answered=st.sampled_from([True, True, True, False]))
    def travel(self, first: int, answered: bool) -> None:
        """Let a call reach the server, for the first time or again; its answer may be lost."""
        client = self.clients[first] if self.clients[first].pending else self.clients[1 - first]
        pending = client.pending
        assert pending is not None
        call_id = CallId(client.name, pending.number, max(0, self.now + self.skew))
        try:
            result = self.host.run(pending.make(call_id), f"r{self.run_id}")
        except Refused as refused:
            if refused.code != "FORGOTTEN":  # a grant that names another server process
                raise
            result = Received(more=False, lock=0, messages=())
        self.seen_skew = self.skew
        if pending.executed is None:
            pending.executed, self.recorded_skew = result, self.skew
            self._happened(client, pending, result)
        else:
            self._repeated(pending, result)
        if answered:
            client.pending = None
            self._learned(client, pending, result)

    def _happened(self, client: Client, pending: Pending, result: Any) -> None:
        """Record what the server did, whether or not the client will hear of it."""
        if pending.kind in ("lock", "delete"):
            for message in result.messages:
                self._given_out(client, message.name)
        gone = [message.name for message in result.messages] if pending.kind == "delete" else []
        if pending.kind == "complete":
            gone += [name for name in pending.about if name not in result.lost]
            for name in gone:
                assert self.deliveries[name] == pending.about[name].delivery, f"{name}: completed, and given out since"
        for name in gone:
            assert name not in self.gone, f"{name} is settled for good twice"
            self.gone.add(name)

    def _given_out(self, client: Client, name: str) -> None:
        assert name not in self.gone, f"{name} was settled for good, and is given out again"
        for other in self.clients:
            held = other.held.get(name)
            assert held is None or held.until <= self.now, f"{client.name} gets {name}, which {other.name} holds"
        self.deliveries[name] = self.deliveries.get(name, 0) + 1

    @staticmethod
    def _repeated(pending: Pending, result: Any) -> None:
        """Check that a repetition does nothing more, and returns the part of the first answer that is still true."""
        first = pending.executed
        if pending.kind in ("lock", "delete"):
            again, before = ([message.name for message in one.messages] for one in (result, first))
            assert set(again) <= set(before), f"first {first}, then {result}"
        else:
            assert result.lost == first.lost, f"first {first}, then {result}"

    def _learned(self, client: Client, pending: Pending, result: Any) -> None:
        """Update the client's beliefs from an answer. A lock counts from the time when the answered call was sent."""
        if pending.kind == "lock":
            for message in result.messages:
                lock, until = Lock(pending.token, message.name), self.now + result.lock
                client.held[message.name] = Held(lock, until, self.deliveries[message.name])
        elif pending.kind == "renew":
            for name, held in pending.about.items():
                if name in result.lost:
                    client.held.pop(name, None)
                else:
                    client.held[name] = Held(held.lock, self.now + result.lock, held.delivery)

    # -- time passes ---------------------------------------------------------------------------------------------------

    @rule(by=st.sampled_from([1, 999, LOCK // 2, LOCK - 1, LOCK, 3 * LOCK]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(by=st.sampled_from([1, LOCK, 100 * LOCK]))
    def clock_is_set_back(self, by: int) -> None:
        self.skew -= by

    @rule(ahead=st.sampled_from([-100 * LOCK, -1, 0, 1, LOCK // 2, LOCK]))
    def fail_over(self, ahead: int) -> None:
        """Let another server process take over, with its own clock."""
        self.run_id += 1
        self.skew = min(self.seen_skew, self.recorded_skew) + ahead


def two_clients(host: Host) -> type[TwoClients]:
    """Return the machine of two clients for a host."""
    return type("TwoClients", (TwoClients,), {"host": host})
