"""The machine of credit over the scripts: each call runs in the model of a partition and on a real server.

Their replies, pushes, words, leases and ready messages must be equal after each call. The clients, the network and the
faults are those of the machine of credit (``credit_machine.py``); a failover that loses writes restores the keys of the
partition. Steps of the server's clock are left out: the scripts judge some waiting times only when they read a word.

python -m tests.engine.proof.credit_twin [--steps N] [--seconds N] [--begin-at PART]
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sbredis.engine import (
    CallId,
    CreditGift,
    CreditPush,
    CreditReply,
    Delivery,
    Lock,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    SentGrant,
    SessionGift,
    Settled,
    carrying,
    push_channel,
    read_push,
)
from tests.engine.model import Refused
from tests.engine.model.credit import CallGrant, CreditCall, CreditPartition, Token, Word, holder
from tests.engine.proof.credit_machine import LOCK, BrokenPromiseError, CreditMachine, require
from tests.engine.proof.hosts import USUAL, Host, Read, host, source_at_start
from tests.engine.proof.until import run_until
from tests.engine.terms import BAND_WIDTH, LEVELS

__all__ = ["CASES", "TwinMachine", "TwinPartition", "prove", "unhurried"]

NAMESPACE, SALT, INCARNATION = "twin", "abc", "i"
MARK, MARKED = push_channel(NAMESPACE, SALT, "e0", "mark"), b"mark"
SETTINGS = PartitionSettings(clock="test", lock_duration=LOCK, max_delivery_count=99_999, quota=1 << 40)
LEAST: Final = 15
"""The bytes of a record without a payload."""
DIGITS: Final = 4
"""How many digits of its number are at the end of a payload, unless the message is scheduled: it gets a new number."""
LET_GO: Final = 6 * 4 * BAND_WIDTH
"""The end of the ranks of holders that may let go."""
STEPS = 300
CASES = (
    *("again: a gift", "bound of a call", "due: another receiver", "due: comes forward", "due: deputy"),
    *("due: deputy of another client", "due: keeper", "due: next keeper"),
    *("due: scheduled", "epoch", "gift: push", "gift: reply", "grant expired", "grant: before the epoch"),
    *("grant: forgotten", "grant: new prefix", "grant: of another process", "grant: older", "grant: refused"),
    *("grant: repeated", "grant: taken", "grant: withdrawn", "interest", "interest: announced"),
    *("interest: a suspect", "interest: passed on", "interest: size", "interest: unseen gifts"),
    *("interest: without credit", "lapse", "lapse: begun", "lapse: not begun", "suspect"),
    *("lapse: not begun in a session", "lapse: a careful holder has not begun a suspect", "no listener", "once"),
    *("reply: too much unseen", "server: a failover loses writes", "settings end credit"),
    *("settlement: completed", "settlement: lost", "settlement: released", "word begun", "word forgotten"),
    *("grant: session lost", "session: with first messages", "session: left"),
    *("session: not left, because nobody waits", "session: release refused"),
    *("session: its holder is told of the end", "gift: several sessions"),
    *("others wait: in a reply", "others wait: in a push", "others wait: in a push, behind a crowd"),
    *("more receivers than a call looks at", "more holders than a call looks at"),
)
_entities = itertools.count(1)
_SERIALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def long(prefix: str) -> str:
    """Return the prefix of the machine as the scripts know it, with eight characters."""
    return f"{prefix:-<8}"


def short(prefix: str) -> str:
    return prefix.rstrip("-")


def token_of(token: Token) -> str:
    """Return a token as the scripts know it."""
    prefix, serial = token
    return long(prefix) + _SERIALS[serial >> 12] + _SERIALS[serial >> 6 & 63] + _SERIALS[serial & 63]


def unhurried(read: Read) -> Read:
    """Read the scripts with a larger share of due work in a call, because the model does all of it at once."""

    def changed(name: str) -> str | None:
        text = read(name)
        return text and text.replace("advance(p, 100)", "advance(p, 900)")

    return changed


class Scripts:
    """The partition on a server, and a connection that listens."""

    def __init__(self, on: Host, run: str, now: int, *, sessions: bool) -> None:
        self.on = on
        self.listening: Any = on.client.pubsub()  # type: ignore[attr-defined]
        self.subscribed: set[bytes] = set()
        self.listen({MARK})
        entity = f"e{next(_entities)}"
        self.partition = Partition(NAMESPACE, SALT, entity, INCARNATION, 1, replace(SETTINGS, sessions=sessions))
        self.entity = entity
        on.run(self.partition.configure(create=True, now=now), run)
        self.touch(run, now)

    def channel(self, name: str) -> bytes:
        return push_channel(NAMESPACE, SALT, self.entity, name)

    def listen(self, channels: set[bytes]) -> None:
        """Listen to these channels only."""
        wanted = channels | {MARK}
        for command, changed in (("ssubscribe", wanted - self.subscribed), ("sunsubscribe", self.subscribed - wanted)):
            if changed:
                getattr(self.listening, command)(*changed)
                for _ in changed:
                    while self.listening.get_message(timeout=5)["type"] != command:
                        pass
        self.subscribed = wanted

    def heard(self) -> list[tuple[bytes, bytes]]:
        """Return all that was published on the channels since the last time."""
        self.on.ask("SPUBLISH", MARK, MARKED)
        found: list[tuple[bytes, bytes]] = []
        while (said := self.listening.get_message(timeout=5))["data"] != MARKED:
            found.append((said["channel"], said["data"]))
        return found

    def touch(self, run: str, now: int) -> None:
        self.on.run(self.partition.due(CallId("", 0, now)), run)

    def configure(self, run: str, now: int, closed: str) -> None:
        before = self.partition
        settings = replace(before.settings, status="ReceiveDisabled" if closed else "Active")
        self.partition = Partition(NAMESPACE, SALT, self.entity, INCARNATION, before.version + 1, settings)
        self.on.run(self.partition.configure(now=now), run)

    def save(self) -> dict[bytes, bytes]:
        return {key: self.on.ask("DUMP", key) for key in self.partition.keys}

    def restore(self, saved: dict[bytes, bytes]) -> None:
        for key, value in saved.items():
            self.on.ask("DEL", key)
            if value is not None:
                self.on.ask("RESTORE", key, 0, value)

    def close(self) -> None:
        self.listening.close()
        self.on.ask("FLUSHALL")


class TwinPartition(CreditPartition):
    """The model of a partition and its twin on a server. Each call runs in both, and they must not differ."""

    def __init__(
        self,
        run: str,
        now: int,
        publish: Callable[[str, str, CreditPush[int]], None],
        *,
        scripts: Scripts,
        **options: Any,
    ) -> None:
        self.pushed: list[tuple[object, ...]] = []
        self.scripts = scripts
        self.channels: set[str] = set()

        def noted(channel: str, key: str, push: CreditPush[int]) -> None:
            publish(channel, key, push)
            gift = push.gift and _gift(push.gift, push.prefix)
            self.pushed.append((channel, key, push.run, push.clock, push.prefix, gift, push.others_wait))

        super().__init__(run, now, noted, **options)

    def _both(self, model: Callable[[], Any], script: Callable[[], Any]) -> Any:
        self.pushed.clear()
        scripts = self.scripts
        scripts.listen({scripts.channel(name) for name in self.channels if self.hears(name)})
        expected = model()
        found = script()
        require(found == expected, "another answer", found, expected)
        pushed: list[tuple[object, ...]] = []
        for channel, text in scripts.heard():
            receiver, source, push = read_push(text)
            gift = push.gift and _read(push.gift, push.prefix)
            name = channel.rpartition(b":")[2].decode()
            key = self._named(f"{receiver} {source}")
            pushed.append((name, key, push.run, push.clock, short(push.prefix), gift, push.others_wait))
        require(sorted(pushed, key=str) == sorted(self.pushed, key=str), "other pushes", pushed, self.pushed)
        self._compare()
        return expected

    def _compare(self) -> None:
        """Compare the stored messages, leases and words."""
        keys = self.scripts.partition.keys
        ask = self.scripts.on.ask
        ready = [int(name) for name in ask("ZRANGE", keys[1], 0, LEVELS * BAND_WIDTH - 1, "BYSCORE")]
        require(ready == sorted(itertools.chain(*self.ready.values())), "other ready messages", ready, self.ready)
        entries = ask("HMGET", keys[2], *ready) if ready else []
        lapses = [0 if entry is None or entry[11:12] == b" " else entry[11] - ord("0") for entry in entries]
        counted = [min(14, self.items[name].lapses) for name in ready]
        require(lapses == counted, "other lapses", lapses, counted)
        tokens = {token.decode() for token in ask("HKEYS", keys[3])}
        locks = {token_of(token) for token, lease in self.leases.items() if not lease.source.startswith("=")}
        require(tokens == locks, "other leases", tokens, [*self.leases])
        stored = {self._named(key.decode()): text.decode().split(" ") for key, text in ask("HGETALL", keys[32]).items()}
        ranked = {self._named(key.decode()): int(rank) for key, rank in ask("ZRANGE", keys[33], 0, -1, "WITHSCORES")}
        if self.sessions:
            self._compare_sessions({key: words for key, words in stored.items() if " =" in key})
        for key, word in self.words.items():
            require(key in stored, "a word is missing", key)
            require(self._stored(stored[key]) == self._known(word), "another word", stored[key], word)
            require(not self._eligible(word) or key in ranked, "an open grant has no rank", key)
            if self._eligible(word) and " =" in key:
                first = ranked[key] < LET_GO
                require(first == self.may_let_go(word), "a holder has the rank of others", key, ranked[key], word)
        credit = (ask("HGET", keys[0], "credit") or b"").decode()
        require(not ranked or credit.split(" ")[5][0] == "1", "the partition does not know its open grants", credit)

    def _compare_sessions(self, words: Mapping[str, Sequence[str]]) -> None:
        """Compare the free sessions, the holders, their words, and what they hold."""
        keys = self.scripts.partition.keys
        ask = self.scripts.on.ask
        turns = ask("ZRANGE", keys[27], 0, BAND_WIDTH - 1, "BYSCORE", "WITHSCORES")
        free = {member[1:].decode(): int(score) for member, score in turns}
        require(free == self.free, "other free sessions", free, self.free)
        states = ask("HGETALL", keys[28])
        holders = {name[1:].decode(): token.decode() for name, token in states.items() if name[:1] == b"!"}
        expected = {session: token_of(token) for session, token in self.holders.items()}
        require(holders == expected, "other holders", holders, expected)
        held = {f"{holder(token)} ={session}" for session, token in self.holders.items()}
        require({*words} == held & {*self.words}, "other words of sessions", words, held)
        for key, said in words.items():
            kept = [gift.split(":") for gift in said[20].split(";")] if said[20] else []
            gifts = {self.words[key].token(short(prefix), int(serial)) for prefix, serial, _ in kept}
            leases = {token: lease for token, lease in self.leases.items() if lease.word == key}
            unseen = {token for token, lease in leases.items() if not lease.seen}
            require(unseen <= gifts, "a gift of a session is not kept", key, unseen, gifts)
            require(not gifts & (leases.keys() - unseen), "a gift that was seen is kept", key, gifts)
        found = [int(member[-12:], 16) for member in ask("ZRANGE", keys[26], 0, -1) if member[-13:-12] == b"h"]
        names = [name for lease in self.leases.values() if lease.source.startswith("=") for name in lease.names]
        require(sorted(found) == sorted(names), "other held messages", found, names)

    def _named(self, key: str) -> str:
        """Return the key of a word as the model knows it."""
        receiver, _, source = key.partition(" ")
        if not source.startswith("="):
            return key
        serial = 0
        for letter in receiver[8:]:
            serial = serial * 64 + _SERIALS.index(letter)
        return f"{holder((short(receiver[:8]), serial))} {source}"

    def _stored(self, words: Sequence[str]) -> tuple[object, ...]:
        _, number, prefix, serial, messages, size, seen, begun, hands, callers, *_ = words
        counts = int(serial), int(messages), int(size)
        return int(number), short(prefix), counts, int(seen), int(begun), int(hands), int(callers), int(words[17])

    def _known(self, word: Word) -> tuple[object, ...]:
        return (
            *(word.number, word.prefix, tuple(word.last), word.seen, word.begun, word.hands, word.callers),
            word.turn,
        )

    # -- calls ---------------------------------------------------------------------------------------------------------

    def send(self, run: str, now: int, sizes: Iterable[int], *, session: str = "", at: int | None = None) -> list[int]:
        head = bytes([1, 2, len(session)]) + session.encode() if session else b""
        listed = [max(LEAST + len(head) + DIGITS, size) for size in sizes]
        model, names = super().send, list[int]()

        def known() -> list[int]:
            names.extend(model(run, now, listed, session=session, at=at))
            return names

        def script() -> list[int]:
            ends = [_digits(name) if at is None else b"x" * DIGITS for name in names]
            fill = [b"x" * (size - LEAST - DIGITS - len(head)) for size in listed]
            messages = [Outgoing(head + part + end, due=at) for part, end in zip(fill, ends, strict=True)]
            sent = self.scripts.on.run(self.scripts.partition.send(CallId("", 0, now), messages), run)
            return [*range(sent.first, sent.first + len(listed))]

        self._both(known, script)
        return names

    def configure(self, run: str, now: int, closed: str) -> None:
        self.touch(run, now)  # settings change only when no due work is left
        model = super().configure
        self._both(lambda: model(run, now, closed), lambda: self.scripts.configure(run, now, closed))

    def touch(self, run: str, now: int) -> None:
        model = super().touch
        self._both(lambda: model(run, now), lambda: self.scripts.touch(run, now))

    def execute(self, run: str, now: int, call: CreditCall) -> tuple[bool, list[CreditReply[int]]]:
        self.channels.add(call.channel)
        model, answers = super().execute, []

        def of_model() -> object:
            settled, replies = model(run, now, call)
            answers.append((settled, replies))
            return settled, [_answer(reply) for reply in replies]

        self._both(of_model, lambda: self._script(run, now, call))
        answer: tuple[bool, list[CreditReply[int]]] = answers[0]
        return answer

    def _script(self, run: str, now: int, call: CreditCall) -> object:
        on, partition, call_id = self.scripts.on, self.scripts.partition, CallId("", 0, now)
        grants = [self._sent(call.channel, given) for given in call.grants]
        if call.token is None:
            return True, _read_answers(on.run(partition.grant(grants, call_id), run).credits)
        token = token_of(call.token)
        request = self._settlement(call_id, token, call)
        try:
            if not grants:
                return _settled(on.run(request, run)), []
            carried = on.run(carrying(request, grants), run)
        except Refused:
            return False, []
        return _settled(carried.result), _read_answers(carried.credits)

    def _settlement(self, call_id: CallId, token: str, call: CreditCall) -> Request[Any]:
        partition = self.scripts.partition
        if any(name < 0 for name in call.released):
            return partition.release_session(call_id, token)
        locks = [Lock(token, str(name)) for name in (*call.completed, *call.released)]
        return partition.abandon(call_id, locks, counted=False) if call.released else partition.complete(call_id, locks)

    def _sent(self, channel: str, given: CallGrant) -> SentGrant:
        grant = given.grant
        retired = tuple((long(prefix), seen, begun) for prefix, seen, begun in grant.retired)
        grant = grant._replace(prefix=long(grant.prefix), retired=retired)
        receiver = given.receiver
        if given.source.startswith("="):
            prefix, _, serial = receiver.rpartition(".")
            receiver = token_of((prefix, int(serial)))
        return SentGrant(receiver, self.scripts.channel(channel), given.source, grant)


def _settled(result: Any) -> bool:
    """Return whether a settlement has settled all messages, or a session was released."""
    return not (isinstance(result, Settled) and result.lost)


def _gift(gift: CreditGift[int], prefix: str) -> tuple[object, ...]:
    place = tuple(gift.place) if gift.prefix == prefix else gift.place.serial
    session = None
    if gift.session is not None:
        firsts: list[tuple[object, ...]] = [_gift(first, "") for first in gift.session.gifts]
        session = gift.session.name, firsts
    return gift.prefix, place, gift.until, tuple(gift.messages), session


def _digits(number: int) -> bytes:
    return b"%04d" % (number % 10**DIGITS)


def _numbered(gift: CreditGift[Delivery]) -> CreditGift[int]:
    """Return a gift with the numbers of the messages, and of the session, as the model has them."""
    names = tuple(int(message.name) for message in gift.messages)
    for name, message in zip(names, gift.messages, strict=True):
        end = message.record[-DIGITS:]
        require(end in {_digits(name), b"x" * DIGITS}, "the record of another message", name, end)
    session: SessionGift[int] | None = None
    if gift.session is not None:
        names = (-int(gift.session.name[1:]),)
        firsts: list[CreditGift[int]] = [_numbered(first) for first in gift.session.gifts]
        session = SessionGift(gift.session.name, firsts)
    return CreditGift(short(gift.prefix), gift.place, gift.until, names, session=session)


def _read(gift: CreditGift[Delivery], prefix: str) -> tuple[object, ...]:
    return _gift(_numbered(gift), short(prefix))


def _answer(reply: CreditReply[int]) -> tuple[object, ...]:
    gifts = [_gift(gift, reply.prefix) for gift in reply.gifts]
    known = reply.run, reply.clock, reply.answer, reply.prefix, tuple(reply.last), reply.limit
    return (*known, gifts, reply.again, reply.there, reply.suspects, reply.due, reply.keeps, reply.others_wait)


def _read_answers(replies: Iterable[CreditReply[Delivery]]) -> list[tuple[object, ...]]:
    read = [{**reply._asdict(), "gifts": [_numbered(gift) for gift in reply.gifts]} for reply in replies]
    return [_answer(CreditReply(**{**reply, "prefix": short(reply["prefix"])})) for reply in read]


class TwinMachine(CreditMachine):
    """The machine of credit with a twin of the partition on a server."""

    def __init__(self, seed: int, on: Host, cases: Counter[str] | None = None) -> None:
        self.on = on
        super().__init__(seed, cases)

    def new_partition(self, now: int) -> CreditPartition:
        self.scripts = Scripts(self.on, self.server.run, now, sessions=self.sessions)
        return TwinPartition(
            self.server.run,
            now,
            self.publish,
            scripts=self.scripts,
            hears=self.hears,
            lock=LOCK,
            seen=self.cases,
            sessions=self.sessions,
        )

    def save(self) -> dict[str, Any]:
        kept = vars(self.partition).items()
        state = {name: value for name, value in kept if name not in {"publish", "cases", "scripts", "hears", "pushed"}}
        return {"model": copy.deepcopy(state), "scripts": (self.scripts.partition, self.scripts.save())}

    def restore(self) -> None:
        vars(self.partition).update(copy.deepcopy(self.saved["model"]))
        self.scripts.partition, keys = self.saved["scripts"]
        self.scripts.restore(keys)

    def step_clock(self) -> None:
        """Keep the clock of the server."""


def prove(seeds: Iterable[int], on: Host, seen: Counter[str] | None = None) -> Counter[str]:
    """Run the machine with each of these seeds. Return how often each case has happened."""
    seen = Counter() if seen is None else seen
    for seed in seeds:
        machine = TwinMachine(seed, on, seen)
        try:
            for _ in range(STEPS):
                machine.step()
            machine.step_calm()
        except (AssertionError, Refused) as error:
            raise BrokenPromiseError(f"seed {seed}: {error}") from error
        finally:
            machine.scripts.close()
    return seen


def main() -> int:
    with host(USUAL, unhurried(source_at_start)) as on:
        return run_until(
            __doc__,
            CASES,
            lambda number, seen: prove(range(5 * number, 5 * (number + 1)), on, seen),
            steps=50_000,
            times=1,
        )


if __name__ == "__main__":
    sys.exit(main())
