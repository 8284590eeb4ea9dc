"""The machine of credit: several receivers with the decider of the product, and the model of a partition.

Between them is a network that loses, delays, repeats and reorders calls, replies and pushes. Clients and servers pause,
clients die, clocks run at different speeds and step, the partition moves to other servers, and a failover loses its
last writes. All is decided by one random number generator, so a seed gives the same run everywhere.

What must hold, always:

- No message is in two hands while both believe in their locks.
- No lock is given beyond what the callers and the stock of a receiver allow.
- A session has one holder, and its messages come in their order.
- A suspect is given alone, and only to a receiver that takes suspects.
- A client that leaves a session does not believe in it any more, until it learns that it still holds it.
- After a call, no message is ready beside open credit, unless interest was announced less than a second ago.

After some seconds without a fault:

- Everything that is locked for a living client is known to it.
- No message is ready while a caller waits, and nothing is overdue.
- If sessions wait that nobody can take, a holder of an empty session knows it for each of them.

A lock that a failover has lost, or that a step of the server's clock has ended early, is excused.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from sbredis.client import ServerClock
from sbredis.engine import NEXT_SESSION, CreditAnswer, CreditPush, CreditReply
from sbredis.receiving._credit import TABLE, CreditDemand, CreditEvent, CreditState, HandedGift, PartitionCredit
from tests.engine.model.credit import DELIVERY_CALLS, WORD_LIFE, CallGrant, CreditCall, CreditPartition, Token, holder

__all__ = ["BrokenPromiseError", "CreditMachine", "run", "transition"]

LOCK = 5_000
SERIALS = 60
"""The serials of a prefix; few, so that prefixes are used up."""
CALLS_AT_ONCE = 4


class BrokenPromiseError(AssertionError):
    """A promise that was not kept."""


def require(holds: object, what: str, *details: object) -> None:
    if not holds:
        raise BrokenPromiseError(f"{what}: {details}")


@dataclass
class Server:
    """A server process, with a clock of its own."""

    run: str
    speed: float
    offset: float

    def now(self, time: float) -> int:
        return int(1000 * (time * self.speed + self.offset))


@dataclass
class Listening:
    """A subscription of a client to its channel, at a server process."""

    server: Server
    queue: deque[tuple[str, CreditPush[int] | None]] = field(default_factory=deque)
    asked: bool = False
    """Whether the server has got the subscription."""
    confirmed: bool = False
    heard: bool = True
    """Whether pushes reach the client."""
    listed: bool = False
    """Whether the server believes that the client listens."""


@dataclass(eq=False)
class Sent:
    """A call that a client has made, with a grant of each of some receivers."""

    receiver: Receiver
    """The receiver that settles, or grants."""
    grantors: tuple[Receiver, ...]
    call: CreditCall
    written: float
    made_at: float
    copies: int = 1
    answered: bool = False


@dataclass
class Belief:
    """A message, or a session, in the hands of a client."""

    receiver: Receiver
    token: Token
    ends: float


class Settling(NamedTuple):
    """A settlement that a receiver is to make."""

    token: Token
    completed: tuple[int, ...]
    released: tuple[int, ...]
    grantors: tuple[Receiver, ...] = ()
    leaves: bool = False


class CountedCredit(PartitionCredit[int]):
    """The decider of the product. It counts its transitions."""

    __slots__ = ("cases",)

    cases: Counter[str]

    def _happens(self, event: CreditEvent) -> None:
        if (self.state, event) in TABLE:
            self.cases[transition(self.state, event)] += 1
        super()._happens(event)


def transition(state: CreditState, event: CreditEvent) -> str:
    return f"{state.name.lower()}: {event.name.lower()}"


class Receiver:
    """A receiver of a client: for messages, for sessions, or for the messages of a session."""

    def __init__(
        self,
        client: Client,
        name: str,
        source: str,
        session: HandedGift[int] | None,
        *,
        run: str,
        prefix: Callable[[], str],
    ) -> None:
        self.client, self.name, self.source, self.session = client, name, source, session
        self.credit = CountedCredit(client.clock_of, prefix, run, dated=session is None, serials=SERIALS)
        self.sessions: Receiver | None = None
        """The receiver that was given the session."""
        self.doubts = False
        """Whether the client does not know if it still holds the session, because it has made a call that leaves it."""
        self.callers, self.stock = 0, 0
        self.flags: dict[str, Any] = {}
        self.hand: list[tuple[Token, list[int], float]] = []
        self.known: set[Token] = set()
        self.settles: list[Settling] = []
        self.under_way = 0
        self.last_name, self.ordered = 0, True
        self.most = 0
        """The most messages that it has wanted at a time."""
        self.closed = False

    @property
    def key(self) -> str:
        return f"{self.name} {self.source}"

    def token(self, prefix: str, serial: int) -> Token:
        """Return the token of a gift, as the model has it."""
        return (f"{self.name}/{prefix}" if self.session is not None else prefix), serial

    def lock(self, token: Token) -> Token:
        """Return the token of the lock on the messages of a gift."""
        return token if self.session is None else (self.session.prefix, self.session.serial)

    def want(self) -> None:
        held = sum(len(names) for _, names, _ in self.hand)
        stock = max(0, self.stock - held)
        callers = 0 if self.closed else self.callers
        self.most = max(self.most, callers + stock)
        self.credit.want(CreditDemand(callers=callers, stock=0 if self.closed else stock, room=40_000, **self.flags))


class Client:
    """A client process: its clock, its subscription, its receivers."""

    def __init__(self, name: str, speed: float, offset: float) -> None:
        self.name, self.speed, self.offset = name, speed, offset
        self.clocks: dict[str, ServerClock] = {}
        self.receivers: dict[str, Receiver] = {}
        self.listening: Listening | None = None
        self.paused = self.deaf = False
        """Whether it does nothing, and whether it may not listen."""
        self.calm_since = 0.0

    def clock_of(self, run: str) -> ServerClock:
        return self.clocks.setdefault(run, ServerClock())

    def now(self, time: float) -> float:
        return time * self.speed + self.offset


class CreditMachine:
    """One partition, its clients, and the network between them."""

    def __init__(self, seed: int, cases: Counter[str] | None = None) -> None:
        self.random = random.Random(seed)
        self.cases: Counter[str] = Counter() if cases is None else cases
        self.weather = WEATHERS[seed % len(WEATHERS)]
        self.sessions = seed // len(WEATHERS) % 3 == 2
        self.crowds = seed % 5 == 4  # these runs take longer
        self.time = 1000.0
        self.names = 0
        self.servers = [self.new_server()]
        self.server = self.servers[0]
        self.server_paused = False
        self.closed = ""
        now = self.server.now(self.time)
        self.partition = self.new_partition(now)
        self.saved = self.save()
        self.listeners: dict[str, list[Listening]] = {}
        self.calls: list[Sent] = []
        self.replies: list[tuple[Sent, Any]] = []
        self.beliefs: dict[int, list[Belief]] = {}
        self.excused: set[Token] = set()
        """The leases that ended early: a failover has lost them, or the time of the partition has leapt."""
        self.restored: set[Token] = set()
        """The leases that had ended, and that a failover has brought back."""
        self.void: set[str] = set()
        """The prefixes for which nothing is promised any more."""
        self.given: set[Token] = set()
        self.given_at: dict[Token, float] = {}
        self.leapt_at, self.called_at = -1e9, self.time
        self.clients: list[Client] = []
        self.log: deque[str] = deque(maxlen=400)
        for _ in range(self.random.randint(1, self.weather.clients)):
            self.add_client()

    # -- names and copies ----------------------------------------------------------------------------------------------

    def new_name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def new_server(self) -> Server:
        return Server(self.new_name("r"), 1 + self.random.uniform(-4e-4, 4e-4), self.random.uniform(-1.5, 1.5))

    def new_partition(self, now: int) -> CreditPartition:
        return CreditPartition(
            self.server.run, now, self.publish, hears=self.hears, lock=LOCK, seen=self.cases, sessions=self.sessions
        )

    def save(self) -> dict[str, Any]:
        state = {
            name: value for name, value in vars(self.partition).items() if name not in ("publish", "hears", "cases")
        }
        return copy.deepcopy(state)

    def restore(self) -> None:
        vars(self.partition).update(copy.deepcopy(self.saved))

    def add_client(self) -> None:
        client = Client(self.new_name("c"), 1 + self.random.uniform(-4e-4, 4e-4), self.random.uniform(0, 1000))
        self.clients.append(client)
        self.add_receiver(client, NEXT_SESSION if self.sessions else "")
        if not self.sessions and self.random.random() < 0.2:
            self.add_receiver(client, "")

    def new_prefix(self) -> str:
        """Return a new prefix. The first ones begin with a letter of each kind that a token may begin with."""
        return self.new_name("p7_-"[self.names % 4])

    def add_receiver(self, client: Client, source: str) -> Receiver:
        receiver = Receiver(client, self.new_name("w"), source, None, run=self.server.run, prefix=self.new_prefix)
        receiver.credit.cases = self.cases
        if client.listening is not None and client.listening.confirmed:
            receiver.credit.subscribed(client.listening.server.run)
        client.receivers[receiver.key] = receiver
        if source == NEXT_SESSION:
            receiver.flags = self.first_messages()
        return receiver

    # -- the partition -------------------------------------------------------------------------------------------------

    def hearers(self, channel: str) -> list[Listening]:
        return [one for one in self.listeners.get(channel, ()) if one.listed and one.server is self.server]

    def hears(self, channel: str) -> bool:
        return bool(self.hearers(channel))

    def publish(self, channel: str, key: str, push: CreditPush[int]) -> None:
        there = self.hearers(channel)
        require(there, "given although nobody listens", key, push)
        for one in there:
            if one.heard:
                one.queue.append((key, push))

    def at_partition(self, what: Callable[[str, int], Any]) -> Any:
        """Run a call in the partition, and check what must hold after each call."""
        now, partition = self.server.now(self.time), self.partition
        if self.leaps():  # words are forgotten too early, so one may begin again with a prefix of before
            self.void |= {
                one.token(prefix, 0)[0]
                for client in self.clients
                for one in client.receivers.values()
                for prefix in (one.credit._prefix, *one.credit._retired)
            }
        clock, leases = partition.clock, {*partition.leases}
        result = what(self.server.run, now)
        if partition.clock - clock > 1001 * (self.time - self.called_at) + 2:  # the clock has leapt
            self.excused |= leases
            self.cases["the time of the partition leaps"] += 1
        self.called_at = self.time
        self.check_partition(now)
        for token in partition.leases.keys() - leases - self.restored:
            self.check_suspects(token)
        given = {token for token in {*partition.leases} - leases - self.restored if token[0] not in self.void}
        require(not given & self.given, "a token is given twice", given & self.given)
        self.given |= given
        for token in {*partition.leases} - leases:
            self.given_at[token] = self.time
        return result

    def check_suspects(self, token: tuple[str, int]) -> None:
        """Check that a new gift has a suspect alone, and that its receiver takes suspects."""
        lease = self.partition.leases[token]
        if any(name > 0 and self.partition.items[name].suspect for name in lease.names):
            word = self.partition.words[lease.word]
            require(len(lease.names) == 1 and word.suspects, "a suspect among others", token, lease.names)

    def check_partition(self, now: int) -> None:
        partition = self.partition
        for client in self.clients:
            for receiver in client.receivers.values():
                unknown = [
                    lease
                    for token, lease in partition.leases.items()
                    if lease.word == receiver.key and token not in receiver.known | self.restored
                ]
                locked = sum(len(lease.names) for lease in unknown)
                require(locked <= receiver.most, "more locks than callers and stock allow", receiver.key, locked)
        if len(partition.untold) > 0 or partition.closed:
            return
        for source in {word.source for word in partition.words.values()}:
            able = [
                word
                for word in partition.words.values()
                if word.source == source and partition._eligible(word) and partition._there(word)
            ]
            told = any(word.told_at is not None and now - word.told_at <= 1000 for word in able)
            require(not able or told, "ready beside open credit", [word.key for word in able])

    # -- clients -------------------------------------------------------------------------------------------------------

    def tick(self, client: Client) -> None:
        """Let a client do what it does by itself now."""
        if client.paused:
            return
        now = client.now(self.time)
        for receiver in [*client.receivers.values()]:
            self.end_locks(receiver, now)
            receiver.want()
            while receiver.settles and receiver.under_way < CALLS_AT_ONCE:
                self.call(receiver, receiver.settles.pop(0))
            lost = receiver.closed and receiver.session is not None
            calls = receiver.credit.needs_call(now) and not lost
            if receiver.under_way < CALLS_AT_ONCE and calls and not self.lets_go(receiver):
                self.call(receiver)
            over = lost or (receiver.closed and receiver.credit.settled)
            if over and not receiver.under_way and not receiver.settles:
                del client.receivers[receiver.key]
        unheard = [one for one in client.receivers.values() if one.credit.state is CreditState.UNHEARD]
        if client.deaf:
            return
        if client.listening is None or (unheard and client.listening.confirmed):
            if client.listening is not None:
                self.drop(client)
            self.cases["client: subscribes"] += 1
            client.listening = Listening(self.server)

    def drop(self, client: Client) -> None:
        """Let a client end its subscription, or notice that it is lost."""
        assert client.listening is not None
        client.listening.heard = False
        client.listening.queue.clear()
        client.listening = None
        if self.random.random() < 0.7:  # or it subscribes anew at once, and only says so when that is confirmed
            for receiver in client.receivers.values():
                receiver.credit.unsubscribed()

    def first_messages(self) -> dict[str, int]:
        """Return how many messages a receiver of sessions wants with each of them."""
        return {"first": self.random.choice([0, 1, 3]), "first_room": self.random.choice([2_000, 40_000])}

    def call(self, receiver: Receiver, settling: Settling | None = None) -> None:
        """Let a receiver make a call: a grant, or a settlement with the grants that go with it."""
        client = receiver.client
        now = client.now(self.time)
        grantors = (receiver,) if settling is None else settling.grantors
        leaves = settling is not None and settling.leaves
        grants = tuple(
            CallGrant(one.name, one.source, one.credit.grant(now, leaves=leaves and one is receiver))
            for one in grantors
        )
        call = CreditCall(client.name, grants)
        if settling is not None:
            call = CreditCall(client.name, grants, settling[0], settling[1], settling[2])
        for one in {receiver, *grantors}:
            one.under_way += 1
        self.calls.append(Sent(receiver, grantors, call, now, self.time))
        self.log.append(f"{self.time:.3f} {receiver.key} calls {call}")

    def lets_go(self, receiver: Receiver) -> bool:
        """Let a receiver release its empty session if it knows that others wait, and it wants to."""
        sessions, session = receiver.sessions, receiver.session
        if not receiver.credit.others_wait or receiver.hand or self.random.random() < 0.3:
            return False
        assert sessions is not None
        assert session is not None
        token = session.prefix, session.serial
        for one in [*sessions.hand]:
            if one[0] == token:
                self.cases["client: lets go of an empty session"] += 1
                sessions.hand.remove(one)
                self.forget(sessions, token, one[1])
                sessions.callers += 1
                sessions.credit.ask_again()
                sessions.want()
                sessions.settles.append(Settling(token, (), tuple(one[1]), (sessions,)))
                return True
        return False

    def end_locks(self, receiver: Receiver, now: float) -> None:
        for token, names, ends in [*receiver.hand]:
            if ends <= now:
                self.cases["client: lock over"] += 1
                receiver.hand.remove((token, names, ends))
                self.forget(receiver, token, names)
        if receiver.session is not None and (receiver.session.ends or 0) <= now:
            receiver.closed = True

    def forget(self, receiver: Receiver, token: Token, names: list[int]) -> None:
        for name in names:
            beliefs = self.beliefs.get(name, [])
            self.beliefs[name] = [one for one in beliefs if (one.receiver, one.token) != (receiver, token)]
            if name < 0:
                for other in receiver.client.receivers.values():
                    session = other.session
                    if session is not None and (session.prefix, session.serial) == token:
                        other.closed = True
                        for lease, messages, _ in other.hand:
                            self.forget(other, lease, messages)
                        other.hand.clear()

    def answer(self, sent: Sent, answer: tuple[bool, list[CreditReply[int]]]) -> None:
        """Let a client get the answer of a call."""
        receiver, client = sent.receiver, sent.receiver.client
        if sent.answered:
            return
        settled, replies = answer
        if len(replies) < len(sent.grantors):  # the release of a session was refused, so the grants were not read
            self.fail(sent, refused=True)
            return
        self.ended(sent)
        self.log.append(f"{self.time:.3f} {receiver.key} is answered {settled} {replies}")
        for one, given, reply in zip(sent.grantors, sent.call.grants, replies, strict=True):
            handed = one.credit.replied(given.grant, reply, sent.written, client.now(self.time))
            self.cases[f"answer: {reply.answer.name.lower()}"] += 1
            if reply.answer is CreditAnswer.REFUSED and one.session is not None and reply.prefix == "":
                self.lose_session(one)
            elif one.doubts and reply.answer is not CreditAnswer.FORGOTTEN:
                self.keep_session(one)
            self.hand_out(one, handed)
            if reply.answer is CreditAnswer.REFUSED or one.credit.state is CreditState.ENDED:  # its callers get errors
                one.callers = 0
            one.want()

    def ended(self, sent: Sent) -> None:
        sent.answered = True
        for one in {sent.receiver, *sent.grantors}:
            one.under_way -= 1

    def lose_session(self, receiver: Receiver) -> None:
        """Let a receiver learn that it does not hold its session any more."""
        self.cases["client: a session is lost"] += not receiver.doubts
        self.cases["client: a session was left"] += receiver.doubts
        receiver.closed, receiver.doubts = True, False
        self.give_up(receiver)
        for token, names, _ in receiver.hand:
            self.forget(receiver, token, names)
        receiver.hand.clear()

    def give_up(self, receiver: Receiver) -> None:
        """Let a client give up its belief in a session."""
        sessions, session = receiver.sessions, receiver.session
        assert sessions is not None
        assert session is not None
        token = session.prefix, session.serial
        for name in [name for of, names, _ in sessions.hand if of == token for name in names]:
            self.beliefs[name] = [one for one in self.beliefs.get(name, []) if one.token != token]
        sessions.hand = [one for one in sessions.hand if one[0] != token]

    def keep_session(self, receiver: Receiver) -> None:
        """Let a client learn that it has not left its session."""
        self.cases["client: a session was not left"] += 1
        sessions, session = receiver.sessions, receiver.session
        assert sessions is not None
        assert session is not None
        receiver.doubts = False
        token, names, ends = (session.prefix, session.serial), [-int(receiver.source[2:])], session.ends or 0.0
        if ends > receiver.client.now(self.time) and not receiver.closed:
            self.believe(sessions, token, names[0], ends)
            sessions.hand.append((token, names, ends))

    def fail(self, sent: Sent, *, refused: bool = False) -> None:
        if sent.answered:
            return
        self.ended(sent)
        self.cases["client: a call fails"] += 1
        for one, given in zip(sent.grantors, sent.call.grants, strict=True):
            one.credit.failed(given.grant)
        call = sent.call
        if (call.completed or call.released) and not refused:
            assert call.token is not None
            sent.receiver.settles.append(Settling(call.token, call.completed, call.released))

    def hand_out(self, receiver: Receiver, handed: list[HandedGift[int]]) -> None:
        client = receiver.client
        now = client.now(self.time)
        for gift in handed:
            token, names = receiver.token(gift.prefix, gift.serial), list(gift.messages)
            require(token not in receiver.known, "handed out twice", token)
            receiver.known.add(token)
            self.log.append(f"{self.time:.3f} {receiver.key} is handed {gift}")
            if gift.ends is None or receiver.closed:
                self.cases["handed: to be given back"] += 1
                if receiver.session is None:
                    receiver.settles.append(Settling(token, (), tuple(names)))
                continue
            ends = gift.ends if receiver.session is None else receiver.session.ends or 0.0
            require(ends > now or receiver.session is not None, "handed out after its end", token)
            self.cases["handed"] += 1
            for name in names:
                self.believe(receiver, token, name, ends)
            receiver.hand.append((token, names, ends))
            receiver.callers = max(0, receiver.callers - len(names))
            if receiver.source == NEXT_SESSION:
                self.open_session(receiver, gift)
        receiver.want()

    def open_session(self, sessions: Receiver, gift: HandedGift[int]) -> None:
        """Let a client hold a session, and begin with its first messages."""
        assert gift.session is not None
        client, run = sessions.client, sessions.credit.run
        name, source = holder((gift.prefix, gift.serial)), f"={gift.session.name}"
        held = Receiver(client, name, source, gift, run=run, prefix=self.new_prefix)
        held.sessions, held.credit.cases = sessions, self.cases
        held.flags = {"yields": self.random.random() < 0.7, "suspects": sessions.flags.get("suspects", True)}
        client.receivers[held.key] = held
        listens = sessions.credit.state is not CreditState.UNHEARD
        handed = held.credit.opened(gift, listens=listens, now=client.now(self.time))
        self.hand_out(held, handed)
        self.cases["client: a session with messages"] += bool(handed)

    def believe(self, receiver: Receiver, token: Token, name: int, ends: float) -> None:
        for other in self.beliefs.get(name, ()):
            client, tokens = other.receiver.client, {token, other.token}
            if client in self.clients and client.now(self.time) < other.ends and not tokens & self.excused:
                small = any(abs(self.given_at.get(one, 0) - self.leapt_at) < 70 for one in tokens)
                require(small, "in two hands", name, other.token, token, other.ends - client.now(self.time))
        self.beliefs[name] = [one for one in self.beliefs.get(name, ()) if one.receiver is not receiver]
        self.beliefs[name].append(Belief(receiver, token, ends))
        if receiver.session is not None:
            require(
                name > receiver.last_name or not receiver.ordered, "the order of a session", name, receiver.last_name
            )
            receiver.last_name = name

    # -- steps ---------------------------------------------------------------------------------------------------------

    def some_client(self) -> Client:
        return self.random.choice(self.clients)

    def some_receiver(self) -> Receiver | None:
        open_ones = [one for client in self.clients for one in client.receivers.values()]
        return self.random.choice(open_ones) if open_ones else None

    def step_send(self) -> None:
        choice = self.random
        many = choice.choice([1, 2, 3, 3, self.weather.burst]) if choice.random() < 0.3 else 1
        size = choice.choice(self.weather.sizes)
        at = self.server.now(self.time + choice.choice([0.2, 1, 6])) if choice.random() < 0.1 else None
        session = choice.choice(SESSIONS) if self.sessions else ""
        if len(self.partition.items) > 60:
            return
        sizes = [size] * many
        self.at_partition(lambda run, now: self.partition.send(run, now, sizes, session=session, at=at))

    def step_touch(self) -> None:
        self.at_partition(self.partition.touch)

    def step_want(self) -> None:
        receiver = self.some_receiver()
        if receiver is None or receiver.client.paused or receiver.closed:
            return
        choice = self.random
        if choice.random() < 0.2:
            receiver.callers = max(0, receiver.callers - 1)
        elif receiver.callers < self.weather.callers:
            receiver.callers += choice.choice([1, 1, 2, self.weather.callers])
            receiver.credit.ask_again()
        receiver.callers = min(receiver.callers, self.weather.callers)
        if choice.random() < 0.1:
            receiver.stock = choice.choice([0, 0, 3, self.weather.callers]) if receiver.source != NEXT_SESSION else 0
        if choice.random() < 0.15:
            receiver.flags = choice.choice(FLAGS)
        elif choice.random() < 0.1:  # it wants only news
            receiver.callers, receiver.stock, receiver.flags = 0, 0, {"announced": True}
        if receiver.source == NEXT_SESSION:
            receiver.flags = {**receiver.flags, **self.first_messages()}
        elif receiver.session is not None:
            receiver.flags = {**receiver.flags, "yields": choice.random() < 0.7}
        receiver.want()

    def step_settle(self) -> None:
        receiver = self.some_receiver()
        if receiver is None or receiver.client.paused or not receiver.hand:
            return
        token, names, ends = receiver.hand.pop(0 if receiver.session else self.random.randrange(len(receiver.hand)))
        self.forget(receiver, token, names)
        receiver.credit.began((token[0].rpartition("/")[2], token[1] + 1))
        lock, luck = receiver.lock(token), self.random.random()
        if receiver.source == NEXT_SESSION or (receiver.session is None and self.random.random() < 0.2):
            receiver.settles.append(Settling(lock, (), tuple(names), (receiver,) if luck < 0.3 else ()))
        elif len(names) > 1 and self.random.random() < 0.3:
            receiver.settles.append(Settling(lock, tuple(names[:1]), (), (receiver,) if luck < 0.5 else ()))
            receiver.hand.insert(0, (token, names[1:], ends))
            for name in names[1:]:
                self.beliefs.setdefault(name, []).append(Belief(receiver, token, ends))
        elif receiver.sessions is not None and not receiver.hand and not receiver.closed and luck < 0.5:
            self.leave(receiver, lock, tuple(names))
        else:
            receiver.settles.append(Settling(lock, tuple(names), (), (receiver,) if luck < 0.5 else ()))

    def leave(self, receiver: Receiver, lock: Token, names: tuple[int, ...]) -> None:
        """Complete the last messages of a session, leave it if nothing is ready, and take the next one."""
        sessions = receiver.sessions
        assert sessions is not None
        self.give_up(receiver)
        receiver.doubts = True
        sessions.callers += 1
        receiver.callers = max(1, receiver.callers)
        for one in (receiver, sessions):
            one.credit.ask_again()
        sessions.want()
        receiver.want()
        receiver.settles.append(Settling(lock, names, (), (receiver, sessions), leaves=True))

    def step_call(self) -> None:
        """Let a call reach the partition, or not."""
        self.lose_calls_at_a_leap()
        if not self.calls or self.server_paused:
            return
        sent = self.calls.pop(self.random.randrange(len(self.calls)))
        luck = self.random.random()
        if luck < 0.04:
            self.cases["network: a call is lost"] += 1
            sent.receiver.client.calm_since = self.time
            self.fail(sent)
            return
        if luck < 0.12:
            self.cases["network: a call is repeated"] += 1
            self.calls.append(sent)
            if self.random.random() < 0.5 and not sent.receiver.client.paused:
                self.perform(sent)
                sent.written = sent.receiver.client.now(self.time)  # answers to earlier writings cannot come any more
                self.replies = [one for one in self.replies if one[0] is not sent]
                return
        reply = self.perform(sent)
        if luck > 0.94:
            self.cases["network: a reply is lost"] += 1
            sent.receiver.client.calm_since = self.time
            if self.random.random() < 0.5:
                self.fail(sent)
            else:
                self.calls.append(sent)
            return
        self.replies.append((sent, reply))

    def lose_calls_at_a_leap(self) -> None:
        """Lose all calls if the clock has leapt, so that words are forgotten too early: a late call may begin one."""
        if self.leaps():
            calls, self.calls = self.calls, []
            for sent in calls:
                self.fail(sent)
            self.at_partition(self.partition.touch)

    def leaps(self) -> bool:
        """Return whether the clock has leapt so far since the last call that words are forgotten too early."""
        leap = self.server.now(self.time) - self.partition.now - 1001 * (self.time - self.called_at)
        return leap > WORD_LIFE - DELIVERY_CALLS

    def perform(self, sent: Sent) -> tuple[bool, list[CreditReply[int]]]:
        answer: tuple[bool, list[CreditReply[int]]] = self.at_partition(
            lambda run, now: self.partition.execute(run, now, sent.call)
        )
        return answer

    def step_reply(self) -> None:
        able = [one for one in self.replies if not one[0].receiver.client.paused]
        if able:
            chosen = self.random.choice(able)
            self.replies.remove(chosen)
            self.answer(*chosen)

    def step_push(self) -> None:
        client = self.some_client()
        if client.listening is not None and not client.paused:
            self.read(client)

    def read_all(self, client: Client) -> None:
        while client.listening is not None and client.listening.queue:
            self.read(client)

    def read(self, client: Client) -> None:
        """Let a client read the next push of its subscription."""
        listening = client.listening
        if listening is None or not listening.queue:
            return
        key, push = listening.queue.popleft()
        if push is None:
            listening.confirmed = True
            for receiver in client.receivers.values():
                receiver.credit.subscribed(listening.server.run)
            return
        target = client.receivers.get(key)
        self.log.append(f"{self.time:.3f} {key} reads {push}")
        if target is not None:
            self.hand_out(target, target.credit.pushed(push, client.now(self.time)))

    def step_subscribe(self) -> None:
        self.subscribe(self.some_client())

    def subscribe(self, client: Client) -> None:
        """Let a subscription reach its server."""
        listening = client.listening
        if listening is None or listening.asked:
            return
        listening.asked = True
        if listening.server is not self.server:  # it is refused: the slot is elsewhere
            self.drop(client)
            return
        listening.listed = True
        listening.queue.append(("", None))
        self.listeners.setdefault(client.name, []).append(listening)

    def step_lose_push(self) -> None:
        """Lose a push before another one to the same receiver."""
        listening = self.some_client().listening
        if listening is None or len(listening.queue) < 2:
            return
        (key, first), (other, second) = listening.queue[0], listening.queue[1]
        gifts = first is not None and first.gift is not None and second is not None and second.gift is not None
        if gifts and key == other:
            listening.queue.popleft()
            self.cases["network: a push is lost"] += 1

    def step_cut(self) -> None:
        """Cut a subscription: pushes that are under way are lost. One side may notice later than the other."""
        client = self.some_client()
        listening = client.listening
        if listening is None or not listening.asked:
            return
        client.calm_since = self.time
        self.cases["network: a subscription is cut"] += 1
        luck = self.random.random()
        listening.queue.clear()
        listening.heard = False
        if luck < 0.5 and not client.paused:
            self.drop(client)
        if luck > 0.3:
            self.unlist(client, listening)

    def unlist(self, client: Client, listening: Listening) -> None:
        listening.listed = False
        if listening in self.listeners.get(client.name, []):
            self.listeners[client.name].remove(listening)

    def step_time(self) -> None:
        self.time += self.random.choice([0.0, 0.001, 0.004, 0.02, 0.06, 0.3])

    def step_long_time(self) -> None:
        self.time += self.random.choice([0.6, 1.2, 5.2, 5.2, 12, 30])
        self.purge()

    def step_very_long_time(self) -> None:
        if self.random.random() < 0.1:
            self.time += self.random.choice([75, 130, 310])
            self.purge()

    def purge(self) -> None:
        """Forget calls that are not repeated any more."""
        for sent in [sent for sent in self.calls if self.time - sent.made_at > DELIVERY_CALLS / 1000]:
            self.calls.remove(sent)
            self.fail(sent)
        for sent, reply in [*self.replies]:
            if self.time - sent.made_at > DELIVERY_CALLS / 1000 and not sent.receiver.client.paused:
                self.replies.remove((sent, reply))
                self.fail(sent)

    def step_pause(self) -> None:
        client = self.some_client()
        client.paused = not client.paused
        client.calm_since = self.time
        self.cases["client: pauses"] += client.paused

    def step_pause_server(self) -> None:
        self.server_paused = not self.server_paused
        self.cases["server: pauses"] += self.server_paused

    def step_fail_over(self) -> None:
        """Let another server take over. It may lack the last writes."""
        self.fail_over(loses=self.random.random() < 0.5)

    def fail_over(self, *, loses: bool) -> None:
        if loses:
            leases = {*self.partition.leases}
            self.restore()
            self.excused |= leases - {*self.partition.leases}
            self.restored |= {*self.partition.leases} - leases
            for receiver in (one for client in self.clients for one in client.receivers.values()):
                receiver.ordered = False  # settled messages may have come back
            self.cases["server: a failover loses writes"] += 1
        self.servers.append(self.new_server())
        self.move(self.servers[-1], notices=loses)
        self.cases["server: a failover"] += 1

    def step_move_slot(self) -> None:
        """Move the slot to another server, perhaps to one that had it before."""
        if len(self.servers) < 2 or self.random.random() < 0.3:
            self.servers.append(self.new_server())
        self.move(self.random.choice([server for server in self.servers[-3:] if server is not self.server]))
        self.cases["server: the slot moves"] += 1

    def move(self, server: Server, *, notices: bool = False) -> None:
        """Let another server have the partition. The partition notices it at the next call, or at once.

        If it has lost writes, it must notice before it comes back to the former server, or nobody ever will.
        """
        for client in self.clients:
            listening = client.listening
            if listening is not None and listening.asked:
                self.unlist(client, listening)
                if self.random.random() < 0.5 and not client.paused:
                    self.drop(client)
                else:
                    listening.heard = False
            client.calm_since = self.time
        self.server, self.server_paused = server, False
        if notices or self.random.random() < 0.5:
            self.at_partition(self.partition.touch)

    def step_save(self) -> None:
        self.saved = self.save()

    def step_clock(self) -> None:
        """Let the clock of a server step."""
        by = self.random.choice([-100, -3, -0.2, 0.01, 0.2, 2, 200, 200])
        self.server.offset += by
        self.cases["server: its clock steps"] += 1
        for client in self.clients:
            client.calm_since = self.time  # a keeper counts the seconds until it calls by its own clock
        if abs(by) < 100:  # too small to be seen, if a push was on its way for longer
            self.leapt_at = self.time

    def step_configure(self) -> None:
        closed = "" if self.partition.closed else "DISABLED"
        self.at_partition(lambda run, now: self.partition.configure(run, now, closed))

    def step_open(self) -> None:
        if self.partition.closed:
            self.step_configure()

    def step_flow(self) -> None:
        """Deliver everything that is under way, as a network does most of the time."""
        if not self.server_paused:
            self.work()

    def step_kill(self) -> None:
        while len(self.clients) > 1 + self.random.randrange(self.weather.clients):
            self.kill(self.some_client())
            self.cases["client: dies"] += 1
        if len(self.clients) < self.weather.clients:
            self.add_client()

    def kill(self, client: Client) -> None:
        self.clients.remove(client)
        if client.listening is not None and self.random.random() < 0.5:
            self.unlist(client, client.listening)
        for sent in self.calls:
            if sent.receiver.client is client:
                sent.answered = True
        self.replies = [one for one in self.replies if one[0].receiver.client is not client]

    # -- steps that bring about cases which are rare otherwise ---------------------------------------------------------

    def step_seek(self) -> None:
        """Bring about a case that random steps seldom bring about."""
        if self.server_paused:
            return
        for client in self.clients:
            client.paused = False
        if self.sessions:
            often = (
                self.hold_empty_sessions,
                self.leave_sessions,
                self.lapse_sessions,
                self.move_sessions,
                self.lose_the_keepers,
            )
            self.random.choice((*often, self.hold_many_sessions) if self.crowds else often)()
            return
        aims = (
            *[self.crowd] * 4,
            *[self.throng] * (12 * self.crowds),
            *[self.succeed_a_throng] * (6 * self.crowds),
            *[self.overfill] * 4,
            *[self.begin_in_two_epochs] * 2,
            *[self.use_up_a_prefix] * 2,
            self.cut_an_ended_one,
            self.let_a_grant_expire,
            self.move_there_and_back,
            self.lose_a_reply_and_want_nothing,
            self.lose_a_first_grant,
            self.repeat_a_first_grant_late,
            self.push_before_an_answer,
            self.schedule_sooner,
            self.lose_the_keepers,
            self.send_beside_a_suspect,
            self.refuse_and_move,
            self.refuse_and_wait,
            self.refuse_in_two_epochs,
        )
        self.random.choice(aims)()

    def accept_sessions(self, most: int = 2) -> None:
        """Let each client accept up to ``most`` sessions, and handle all their messages."""
        self.step_open()
        self.work()
        for receiver in self.receivers():
            receiver.credit.ask_again()
            if receiver.source == NEXT_SESSION:
                receiver.callers, receiver.flags = most, self.first_messages()
        self.work()
        for receiver in self.receivers():
            if receiver.source == NEXT_SESSION:
                receiver.callers = 0
            else:
                receiver.callers, receiver.flags = 1, {"yields": True}
        for _ in range(30):
            self.work()
            for receiver in self.receivers():
                for token, names, _ in receiver.hand if receiver.session is not None else ():
                    self.forget(receiver, token, names)
                    receiver.settles.append(Settling(receiver.lock(token), tuple(names), (), (receiver,)))
                    receiver.callers = 1
                if receiver.session is not None:
                    receiver.hand.clear()
        self.work()

    def hold_empty_sessions(self) -> None:
        """Let messages of other sessions come while the holders of empty sessions wait. They may be slow to answer."""
        self.accept_sessions()
        for _ in range(3):
            session = self.random.choice(SESSIONS)
            self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=session))  # noqa: B023
            if self.random.random() < 0.5:
                self.work()
            self.time += self.random.choice([0.0, 0.3, 1.2])
            self.step_touch()

    def hold_many_sessions(self) -> None:
        """Let clients hold more empty sessions than a call looks at, and let others wait.

        The first holders may keep their sessions: they do not yield, or have messages.
        """
        while len(self.clients) < 3:
            self.add_client()
        there = [*self.clients]
        for number in range(101, 140):
            self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=f"s{number}"))  # noqa: B023
        self.accept_sessions(20)
        keeping = self.random.choice(("none", "firm", "busy"))
        holders = [one for one in self.receivers() if one.session is not None]
        for receiver in holders[: len(holders) - 3] if keeping != "none" else ():
            receiver.callers, receiver.flags = 1, {"yields": keeping != "firm"}
            receiver.credit.ask_again()
            if keeping == "busy":
                self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=receiver.source[1:]))  # noqa: B023
        self.work()
        for number in range(3):
            self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=f"s{200 + number}"))  # noqa: B023
            if self.random.random() < 0.5:
                self.work()
            self.time += self.random.choice([0.0, 0.3, 1.2])
            self.step_touch()
        self.add_client()
        for client in there:
            self.kill(client)

    def leave_sessions(self) -> None:
        """Let clients leave sessions with their last messages, and take the next ones in the same calls."""
        self.accept_sessions()
        for session in SESSIONS:
            self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=session))  # noqa: B023
        self.work()
        holders = [
            one for one in self.receivers() if one.sessions is not None and len(one.hand) == 1 and not one.closed
        ]
        if self.random.random() < 0.5:
            for receiver in holders:
                receiver.callers = 1
                receiver.credit.ask_again()
            self.work()
            for receiver in holders:  # a message is on its way to a holder that leaves
                self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=receiver.source[1:]))  # noqa: B023
        for receiver in holders:
            if len(receiver.hand) == 1:
                token, names, _ = receiver.hand.pop()
                self.forget(receiver, token, names)
                self.leave(receiver, receiver.lock(token), tuple(names))
        if self.random.random() < 0.5:
            self.work()

    def lapse_sessions(self) -> None:
        """Let the locks of sessions end while their holders have credit."""
        self.accept_sessions()
        self.time += LOCK / 1000 + 0.2
        self.step_touch()

    def let_sessions_lapse(self) -> None:
        """Let the locks of sessions with messages end, again and again. The last holders take no suspects."""
        self.accept_sessions()
        for session in SESSIONS:
            self.at_partition(lambda run, now: self.partition.send(run, now, [10, 10], session=session))  # noqa: B023
        for suspects in (True, True, False, False):
            for receiver in self.receivers():
                receiver.callers, receiver.flags = 2, {"suspects": suspects}
                if receiver.source == NEXT_SESSION:
                    receiver.flags |= self.first_messages()
                receiver.credit.ask_again()
            self.work()
            self.time += LOCK / 1000 + 0.2
            self.step_touch()

    def move_sessions(self) -> None:
        """Move the partition while messages of held sessions are on their way."""
        self.accept_sessions()
        for receiver in self.receivers():
            if receiver.session is not None:
                session = receiver.source[1:]
                self.at_partition(lambda run, now: self.partition.send(run, now, [10], session=session))  # noqa: B023
        self.servers.append(self.new_server())
        self.move(self.servers[-1], notices=True)
        self.work()

    def receivers(self) -> list[Receiver]:
        return [one for client in self.clients for one in client.receivers.values()]

    def crowd(self) -> None:
        """Send many messages at once to many receivers that wait."""
        self.step_open()
        while len(self.clients) < 18:
            self.add_client()
        self.work()
        for receiver in (one for client in self.clients for one in client.receivers.values()):
            receiver.callers, receiver.flags = max(1, receiver.callers), {}
            receiver.credit.ask_again()
        self.work()
        self.at_partition(lambda run, now: self.partition.send(run, now, [10] * 30))

    def throng(self) -> None:
        """Let more receivers wait than a call looks at, and send them messages. Some may not be there any more."""
        self.step_open()
        there = len(self.clients)
        for _ in range(self.random.choice([2, 2, 4])):
            self.add_client()
            for _ in range(17):
                self.add_receiver(self.clients[-1], "")
        self.work()
        for receiver in self.receivers():
            receiver.callers, receiver.flags = self.random.choice([(1, {}), (1, {}), (3, {}), (0, {"announced": True})])
            receiver.credit.ask_again()
        self.work()
        came = self.clients[there:]
        for client in came[self.random.randint(1, len(came)) :]:
            self.go_away(client)
        sizes = [self.random.choice([10, 10, 17_000])] * self.random.choice([1, 3, 40, 100])
        self.at_partition(lambda run, now: self.partition.send(run, now, sizes))
        if self.random.random() < 0.7:
            self.work()
        for client in came:
            if client in self.clients:
                self.kill(client)

    def succeed_a_throng(self) -> None:
        """Let many receivers come in place of others that are gone and forgotten. Some go too when messages come."""
        self.step_open()
        self.complete_all()
        self.go_away(self.come_together(callers=1))
        self.time += 310
        self.purge()
        going, staying = self.come_together(announced=True), self.come_together(announced=True)
        at = self.server.now(self.time + 0.001)
        self.at_partition(lambda run, now: self.partition.send(run, now, [10] * 100, at=at))
        self.time += 0.01
        self.go_away(going)
        caller = next(iter(staying.receivers.values()))
        caller.callers, caller.flags = 40, {}
        caller.want()
        self.perform(self.grant_by(caller))
        self.work()
        self.add_client()
        self.kill(staying)

    def complete_all(self) -> None:
        """Let all clients go. One that comes completes all messages before it goes too."""
        for client in [*self.clients]:
            self.go_away(client)
        self.time += 310
        self.purge()
        taker = self.newcomer()
        for _ in range(3):
            taker.callers = 500
            taker.credit.ask_again()
            self.work()
            for token, names, _ in taker.hand:
                self.forget(taker, token, names)
                taker.settles.append(Settling(taker.lock(token), tuple(names), (), (taker,)))
            taker.hand.clear()
            self.work()
        self.go_away(taker.client)

    def come_together(self, callers: int = 0, **flags: bool) -> Client:
        """Let a client come with more receivers than a call looks at, who all want the same."""
        self.add_client()
        client = self.clients[-1]
        for _ in range(40):
            self.add_receiver(client, "")
        self.work()
        for receiver in client.receivers.values():
            receiver.callers, receiver.flags = callers, {**flags}
            receiver.credit.ask_again()
        self.work()
        return client

    def go_away(self, client: Client) -> None:
        """Let a client go that nobody misses yet."""
        if client.listening is not None:
            self.unlist(client, client.listening)
        self.kill(client)

    def overfill(self) -> None:
        """Give a receiver more gifts than it may leave unseen."""
        receiver = self.some_receiver()
        assert receiver is not None
        receiver.callers, receiver.flags = 40, {}
        receiver.credit.ask_again()
        self.work()
        for _ in range(3):
            self.call(receiver)
        receiver.client.paused = True
        for _ in range(20):
            self.at_partition(lambda run, now: self.partition.send(run, now, [10]))
        for _ in range(4):
            self.step_call()
            self.at_partition(lambda run, now: self.partition.send(run, now, [10]))

    def cut_an_ended_one(self) -> None:
        self.at_partition(lambda run, now: self.partition.configure(run, now, "DISABLED"))
        self.work()
        for client in self.clients:
            ended = any(one.credit.state is CreditState.ENDED for one in client.receivers.values())
            if ended and client.listening is not None:
                self.unlist(client, client.listening)
                self.drop(client)
        self.step_configure()

    def move_there_and_back(self) -> None:
        """Let the partition go to another server and come back, with calls under way that name the first one."""
        self.work()
        for client in self.clients:
            for receiver in client.receivers.values():
                self.call(receiver)
        self.move_away_and_back()
        for _ in self.clients:
            self.step_call()

    def let_a_grant_expire(self) -> None:
        self.step_want()
        self.work()
        self.some_client().paused = True
        self.time += 310
        self.purge()
        self.step_touch()

    def newcomer(self, *, deaf: bool = False) -> Receiver:
        """Return a receiver that is subscribed and has not called yet, and send something for it."""
        self.step_open()
        self.add_client()
        client = self.clients[-1]
        client.deaf = deaf
        receiver = next(iter(client.receivers.values()))
        self.work()
        receiver.callers = 3
        receiver.want()
        self.at_partition(lambda run, now: self.partition.send(run, now, [10, 10]))
        return receiver

    def grant_by(self, receiver: Receiver) -> Sent:
        """Let a receiver make a call that does not reach the partition yet."""
        self.call(receiver)
        return self.calls.pop()

    def lose_a_reply_and_want_nothing(self) -> None:
        receiver = self.newcomer()
        sent = self.grant_by(receiver)
        self.perform(sent)
        receiver.callers = 0
        self.fail(sent)

    def lose_a_first_grant(self) -> None:
        """Lose the first grant of a receiver in a failover, and repeat it after that."""
        receiver = self.newcomer()
        self.step_save()
        sent = self.grant_by(receiver)
        self.answer(sent, self.perform(sent))
        self.fail_over(loses=True)
        self.at_partition(lambda run, now: self.partition.send(run, now, [10, 10, 10]))
        self.perform(sent)

    def begin_in_two_epochs(self) -> None:
        """Let a server that has the partition again get the second grant of a prefix that it had before."""
        receiver = self.newcomer(deaf=self.random.random() < 0.5)
        first, second = self.grant_by(receiver), self.grant_by(receiver)
        self.perform(first)
        leaps = self.move_away_and_back()
        self.at_partition(lambda run, now: self.partition.send(run, now, [10, 10, 10]))
        if not leaps:
            self.answer(second, self.perform(second))
        self.fail(first)
        receiver.client.deaf = False

    def use_up_a_prefix(self) -> None:
        receiver = self.newcomer(deaf=self.random.random() < 0.5)
        for _ in range(SERIALS):
            self.at_partition(lambda run, now: self.partition.send(run, now, [10]))
            receiver.callers = 1
            sent = self.grant_by(receiver)
            self.answer(sent, self.perform(sent))
        receiver.client.deaf = False

    def refused(self) -> tuple[Receiver, Sent]:
        """Return a receiver that was refused, and its next call."""
        receiver = self.newcomer()
        self.at_partition(lambda run, now: self.partition.configure(run, now, "DISABLED"))
        sent = self.grant_by(receiver)
        self.answer(sent, self.perform(sent))
        return receiver, self.grant_by(receiver)

    def refuse_and_move(self) -> None:
        """Move the partition before a receiver calls that was refused."""
        _, sent = self.refused()
        self.servers.append(self.new_server())
        self.move(self.servers[-1])
        self.answer(sent, self.perform(sent))
        self.step_open()

    def refuse_and_wait(self) -> None:
        """Lose the call of a receiver that was refused, until its prefix may not begin any more."""
        receiver, sent = self.refused()
        self.fail(sent)
        self.time += 12
        sent = self.grant_by(receiver)
        self.answer(sent, self.perform(sent))
        self.step_open()

    def refuse_in_two_epochs(self) -> None:
        receiver, first = self.refused()
        self.perform(first)
        leaps = self.move_away_and_back()
        second = self.grant_by(receiver)
        if not leaps:
            self.answer(second, self.perform(second))
        self.fail(first)
        self.fail(second)
        self.step_open()

    def repeat_a_first_grant_late(self) -> None:
        """Let a server that has the partition again get a grant of a prefix that was answered for."""
        receiver = self.newcomer()
        first = self.grant_by(receiver)
        self.drop(receiver.client)
        self.work()
        leaps = self.move_away_and_back()
        self.at_partition(lambda run, now: self.partition.send(run, now, [10, 10, 10]))
        if not leaps:
            self.perform(first)
        self.fail(first)

    def push_before_an_answer(self) -> None:
        """Let a push come before the reply that answers for an earlier prefix."""
        receiver = self.newcomer()
        self.perform(self.grant_by(receiver))
        self.drop(receiver.client)
        receiver.client.listening = Listening(self.server)
        self.subscribe(receiver.client)
        self.read_all(receiver.client)
        second = self.grant_by(receiver)
        reply = self.perform(second)
        self.at_partition(lambda run, now: self.partition.send(run, now, [10, 10, 10]))
        self.read_all(receiver.client)
        if receiver.credit.needs_call(receiver.client.now(self.time)):
            self.perform(self.grant_by(receiver))
        self.answer(second, reply)

    def schedule_sooner(self) -> None:
        """Schedule a message for a time before the one that the keeper knows."""
        self.step_open()
        self.step_calm()
        for receiver in self.receivers():
            receiver.callers, receiver.flags = 500, {}  # more than there is
            receiver.credit.ask_again()
        self.live(7)
        at = self.server.now(self.time + 0.5)
        self.at_partition(lambda run, now: self.partition.send(run, now, [10], at=at))
        self.live(2.5)
        self.check_calm(2.5, kept=True, late=1_500)

    def send_beside_a_suspect(self) -> None:
        """Send a message to receivers that take no suspects, while there are three. One of them is gone."""
        self.step_open()
        self.complete_all()
        for _ in range(6):  # a message is a suspect when it has lapsed twice
            taker = self.newcomer()
            taker.flags = {"suspects": False}
            self.work()
            self.go_away(taker.client)
            self.time += LOCK / 1000 + 0.2
            self.step_touch()
        for _ in range(2):
            self.add_client()
        self.work()
        ones = [next(iter(client.receivers.values())) for client in self.clients]
        for receiver in self.receivers():
            receiver.callers, receiver.flags = 20 * (receiver in ones), {"suspects": False}
            receiver.credit.ask_again()
        self.work()
        self.go_away(min(ones, key=lambda one: len(one.hand)).client)  # the next message is pushed to it
        self.at_partition(lambda run, now: self.partition.send(run, now, [10]))
        self.work()

    def lose_the_keepers(self) -> None:
        """Let the clients of the keeper of the due time and of its deputy die at once, while others wait."""
        self.step_open()
        self.step_calm()
        while len(self.clients) < 3:
            self.add_client()
        if self.sessions:
            self.accept_sessions()
        self.work()
        for receiver in self.receivers():
            receiver.callers = 2 if receiver.source == NEXT_SESSION else 500
            receiver.flags = self.first_messages() if receiver.source == NEXT_SESSION else {}
            receiver.credit.ask_again()
        self.work()
        at = self.server.now(self.time + self.random.choice([3, 12]))
        session = self.random.choice(SESSIONS) if self.sessions else ""
        self.at_partition(lambda run, now: self.partition.send(run, now, [10] * 40, at=at, session=session))
        for receiver in self.receivers():
            receiver.credit.look_again()
        self.work()
        keepers = {*self.partition.keepers}
        for client in [one for one in self.clients if keepers & {*one.receivers}]:
            self.kill(client)
        self.cases["client: no keeper is left"] += 1
        self.live(63.5)
        self.check_calm(63.5, kept=True, late=1_500)

    def step_let_locks_end(self) -> None:
        """Let the locks of receivers that take no suspects end, again and again."""
        if self.server_paused:
            return
        if self.sessions:
            self.let_sessions_lapse()
            return
        self.newcomer()
        for _ in range(3):
            for receiver in (one for client in self.clients for one in client.receivers.values()):
                receiver.callers, receiver.flags = max(1, receiver.callers), {"suspects": False}
                receiver.credit.ask_again()
            self.work()
            self.time += LOCK / 1000 + 0.2
            self.step_touch()

    def move_away_and_back(self) -> bool:
        """Let another server have the partition for a moment. Return whether the clock has leapt."""
        server = self.server
        self.servers.append(self.new_server())
        by = self.servers[-1].now(self.time) - server.now(self.time)
        self.move(self.servers[-1], notices=True)
        self.move(server)
        return abs(by) > WORD_LIFE - DELIVERY_CALLS

    # -- a time without faults -----------------------------------------------------------------------------------------

    def step_calm(self) -> None:
        """Let everything work for some seconds, and check what must hold then."""
        self.cases["a calm time"] += 1
        self.server_paused = False
        for name in [*self.listeners]:
            if name not in {client.name for client in self.clients}:
                del self.listeners[name]
        for client in self.clients:
            client.paused = client.deaf = False
            listening = client.listening
            if listening is not None and listening.asked and not (listening.listed and listening.heard):
                self.drop(client)
        self.purge()
        kept, late = self.due_is_kept(), self.lateness()
        lasts = self.random.choice([2.5, 2.5, 7, 13])
        self.live(lasts)
        self.check_calm(lasts, kept=kept and self.due_is_kept(), late=max(late, self.lateness()))

    def live(self, lasts: float) -> None:
        """Let everybody work for some seconds."""
        ends = self.time + lasts
        while self.time < ends:
            self.work()
            timers = [
                one.credit.next_at - client.now(self.time)
                for client in self.clients
                for one in client.receivers.values()
            ]
            self.time += min([max(0.001, each) for each in timers] + [0.25])

    def due_is_kept(self) -> bool:
        """Return whether the client that should call when something is due, or its deputy, lives."""
        alive = {one.key for client in self.clients for one in client.receivers.values()}
        keepers = {*self.partition.keepers} - {""}
        return not keepers or bool(keepers & alive)

    def lateness(self) -> int:
        """Return how late a call may be when something is due: the deputy calls later than the keeper."""
        alive = {one.key for client in self.clients for one in client.receivers.values()}
        return 1_500 if self.partition.keepers[0] in alive else 6_500

    def work(self) -> None:
        """Deliver everything that is under way."""
        for _ in range(1000):
            for client in self.clients:
                self.tick(client)
            awake = [client for client in self.clients if not client.paused]
            queued = [client for client in awake if client.listening is not None and client.listening.queue]
            asking = [client for client in awake if client.listening is not None and not client.listening.asked]
            able = [one for one in self.replies if not one[0].receiver.client.paused]
            if not (self.calls or able or queued or asking):
                return
            self.time += 0.0005
            for client in asking:
                self.subscribe(client)
            self.lose_calls_at_a_leap()
            calls, self.calls = self.calls, []
            self.random.shuffle(calls)
            for sent in calls:
                self.replies.append((sent, self.perform(sent)))
            for client in awake:
                if self.random.random() < 0.5:  # pushes come before the replies to the calls that have caused them
                    self.read_all(client)
            able = [one for one in self.replies if not one[0].receiver.client.paused]
            self.replies = [one for one in self.replies if one not in able]
            for sent, reply in able:
                self.answer(sent, reply)
            for client in awake:
                self.read_all(client)
        raise BrokenPromiseError("the clients never stop calling")

    def check_calm(self, lasts: float, *, kept: bool, late: int) -> None:
        partition = self.partition
        now = self.server.now(self.time)
        receivers = [one for client in self.clients for one in client.receivers.values()]
        for receiver in receivers:
            require(receiver.credit.state is not CreditState.UNHEARD, "not subscribed", receiver.key)
            for token, lease in partition.leases.items():
                if lease.word == receiver.key and self.time - self.given_at.get(token, 0) > 1.2:
                    known = token in receiver.known or token in self.restored or token[0] in self.void
                    require(known, "locked, and its client does not know", token, receiver.key)
        if partition.closed:
            return
        # The next call passes on the interest of a receiver that is gone. The keeper calls within a lock duration.
        there = {receiver.key for receiver in receivers}
        unanswered = {
            word.source for word in partition.words.values() if word.told_at is not None and word.key not in there
        }
        lost = unanswered if not kept or lasts < 7 else set[str]()
        waiting = [one for one in receivers if one.callers and not one.closed and not one.flags.get("now")]
        for receiver in waiting:
            word = partition.words.get(receiver.key)
            require(word is not None and word.wants, "a caller waits without credit, and without news", receiver.key)
            assert word is not None
            require(
                word.source in lost or not partition._there(word), "a caller waits beside ready messages", receiver.key
            )
        for receiver in receivers:
            word = partition.words.get(receiver.key)
            if word is not None and word.alive and not receiver.closed and receiver.credit.state is CreditState.OPEN:
                ignorant = receiver.flags.get("announced") and not receiver.callers and not receiver.credit.news
                ignorant = ignorant and word.source not in lost
                require(not ignorant or not partition._there(word), "no news of ready messages", receiver.key)
        if self.sessions and not any(word.source == NEXT_SESSION for word in partition._able()):
            able = [word for word in partition._able() if word.yields and not partition._in_use(word)]
            told = [word for word in able if word.marked]
            require(len(told) >= min(len(able), len(partition.free)), "nobody lets go", partition.free)
        if waiting and kept and self.time - max(client.calm_since for client in self.clients) > 6.5:
            self.cases["due times are checked"] += 1
            require(partition.keeper, "nobody keeps the due time")
            require(all(at > now - late for at, _ in partition.scheduled), "scheduled messages are overdue")
            ends = [lease.until - partition.offset for lease in partition.leases.values()]
            require(all(end > now - late for end in ends), "locks are overdue")

    # -- the run -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        (what,) = self.random.choices(STEPS, self.weather.weights)
        self.log.append(f"{self.time:.3f} {what}")
        self.cases["steps"] += 1
        getattr(self, f"step_{what}")()
        for client in self.clients:
            self.tick(client)


CHANCES = {
    "send": 30,
    "want": 40,
    "settle": 30,
    "call": 90,
    "reply": 80,
    "push": 60,
    "subscribe": 20,
    "time": 40,
    "touch": 4,
    "long_time": 4,
    "very_long_time": 2,
    "cut": 4,
    "lose_push": 40,
    "pause": 4,
    "pause_server": 2,
    "fail_over": 1,
    "move_slot": 1,
    "save": 3,
    "clock": 1,
    "configure": 2,
    "open": 30,
    "flow": 20,
    "kill": 1,
    "calm": 4,
    "seek": 10,
    "let_locks_end": 0.4,
}
STEPS = [*CHANCES]
FLAGS: list[dict[str, Any]] = [{}, {}, {"once": True}, {"announced": True}, {"now": True}, {"suspects": False}]


SESSIONS = ("s1", "s2", "s3", "s4", "s5", "s6")
SIZES = (10, 10, 10, 1_000, 9_000, 17_000, 50_000)


class Weather:
    """How often the steps happen in a run, and how many clients and callers it has."""

    def __init__(
        self,
        chances: Mapping[str, float] = MappingProxyType({}),
        *,
        clients: int = 4,
        callers: int = 5,
        burst: int = 12,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self.clients, self.callers, self.burst, self.sizes = clients, callers, burst, sizes
        self.weights = [{**CHANCES, **chances}[step] for step in STEPS]


RARE = dict.fromkeys(("fail_over", "move_slot", "clock", "configure"), 0.2)
CROWD = {**RARE, "want": 60, "flow": 60, "cut": 1, "kill": 0.5}
GREEDY = {
    **RARE,
    "want": 6,
    "send": 120,
    "push": 1,
    "reply": 4,
    "settle": 60,
    "long_time": 1,
    "time": 10,
    "flow": 0.3,
    "calm": 1,
}
IDLE = {**RARE, "long_time": 20, "very_long_time": 40, "pause": 20, "flow": 40}
WEATHERS = (
    Weather(),
    Weather(CROWD, clients=24, burst=40, sizes=(10,)),
    Weather(GREEDY, clients=1, callers=60, burst=3, sizes=(10,)),
    Weather(IDLE, clients=3),
    Weather({"configure": 8, "open": 6, "cut": 12}),
)
"""A storm, a crowd, a receiver that reads less than it is given, an idle time, and an entity that is often disabled."""


def run(seed: int, steps: int, cases: Counter[str] | None = None) -> CreditMachine:
    """Run a machine; raise :class:`BrokenPromiseError` if a promise is not kept."""
    machine = CreditMachine(seed, cases)
    for _ in range(steps):
        machine.step()
    machine.step_calm()
    return machine
