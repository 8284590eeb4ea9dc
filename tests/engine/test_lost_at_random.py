"""Random operations on a partition whose records are damaged at random: no call fails, and no other message is lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from typing import TypeVar

import pytest

from sbredis.engine import NEVER, Delivery, Lock, Outgoing, Partition, Request, SessionLock
from sbredis.engine._expansion import expand
from sbredis.exceptions import ServiceBusError, SessionLockLostError
from sbredis.servers import LocalServer
from sbredis.transport import Script
from tests.engine.bench import ENTITY, INCARNATION, KEYS, NAMESPACE, SALT, SETTINGS, Bench, everything
from tests.engine.holding import Holder, accept_next, body, holder, listed, of_session
from tests.engine.losing import DAMAGE
from tests.engine.opening import open_with_scripts
from tests.engine.proof.hosts import with_texts_replaced
from tests.engine.taking import first_token
from tests.plugins.parts import first

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SESSIONS = ("a", "b", "c")
STEPS, SEEDS = 80, 12
T = TypeVar("T")


class Storm:
    """A partition, and the messages that the test knows of, by their bodies."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = Random(seed)
        self.sessions = bench.partition.settings.sessions
        self.sent: set[str] = set()
        self.damaged: set[str] = set()
        self.done: set[str] = set()
        """The messages that were completed or cancelled, and those that may have expired."""
        self.held: list[tuple[Lock, str]] = []
        self.holders: list[Holder] = []

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        messages: list[Outgoing] = []
        for _ in range(self.random.randint(1, 6)):
            text = f"m{len(self.sent)}"
            self.sent.add(text)
            time_to_live = self.random.choice([None, None, None, 2000, 5000])
            self.done |= {text} if time_to_live else set()
            messages.append(
                Outgoing(
                    of_session(self.random.choice(SESSIONS), text.encode()),
                    time_to_live,
                    0 if self.sessions else self.random.choice([0, 0, 3]),
                    due=self.random.choice([None, None, self.bench.now + 700]),
                )
            )
        await self.bench.send_all(*messages)

    async def damage(self) -> None:
        """Damage some records, whatever the states of their messages are."""
        stored = await everything(self.bench.transport, KEYS[10:26])
        records = {(key, number): record for key, (_, held) in stored.items() for number, record in held.items()}
        whole = sorted(at for at, record in records.items() if record not in DAMAGE.values())
        for key, number in self.random.sample(whole, min(len(whole), self.random.randint(0, 3))):
            self.damaged.add(text_of(Delivery("1", records[key, number])))
            content = DAMAGE[self.random.choice(sorted(DAMAGE))]
            if content is None:
                await self.bench.transport.command("HDEL", key, number, key=key.encode())
            else:
                await self.bench.transport.command("HSET", key, number, content, key=key.encode())

    async def receive(self) -> None:
        if not self.sessions:
            got = await self.bench.receive(self.random.randint(1, 4))
            self.take([(one.lock(), one.delivery) for one in got])
            return
        token = first_token()
        accepted = await accept_next(self.bench, token)
        if accepted is not None:
            self.holders.append(Holder(self.bench, SessionLock(accepted.session, token)))
        for mine in list(self.holders):
            try:
                found = await mine.receive(self.random.randint(1, 4))
            except SessionLockLostError:
                self.holders.remove(mine)
            else:
                self.take(list(zip(mine.locks(*found), found, strict=True)))

    def take(self, found: list[tuple[Lock, Delivery]]) -> None:
        """Keep messages that were received; each has its content."""
        assert not [message for _, message in found if message.reason != "-"]
        self.held += [(lock, text_of(message)) for lock, message in found]

    async def settle(self) -> None:
        self.random.shuffle(self.held)
        some, self.held = self.held[:3], self.held[3:]
        if not some:
            return
        locks, partition, call_id = [lock for lock, _ in some], self.bench.partition, self.bench.call_id()
        how = self.random.choice(["complete", "abandon", "delay", "defer", "dead_letter"])
        if how == "complete":
            lost = (await self.bench.tell(partition.complete(call_id, locks))).lost
            self.done |= {text for lock, text in some if lock.name not in lost}
        elif how in {"abandon", "delay"}:
            delayed = [lock._replace(delay=300 if how == "delay" else 0) for lock in locks]
            await self.bench.tell(partition.abandon(call_id, delayed))
        elif how == "defer":
            await self.bench.tell(partition.defer(call_id, locks))
        else:
            await self.bench.tell(partition.dead_letter(call_id, locks))

    async def receive_by_number(self) -> None:
        deferred = await self.bench.peek(states="f")
        if deferred and not self.sessions:
            found, _ = await self.bench.receive_deferred(self.random.choice(deferred).name)
            self.take([(one.lock(), one.delivery) for one in found])

    async def administer(self) -> None:
        what = self.random.choice(["peek", "count", "due", "cancel", "purge", "redrive", "dead", "bury"])
        if what == "peek":
            await self.bench.peek(wanted=self.random.randint(1, 50))
        elif what == "count":
            await self.bench.count()
        elif what == "due":
            await self.bench.due()
        elif what == "purge":
            there = await self.bench.peek(states="awf", wanted=1000)
            if (await self.bench.purge(self.bench.now - 5000)).count:
                self.done |= {text_of(one) for one in there if one.reason == "-"}
        elif what == "cancel":
            scheduled = await self.bench.peek(states="s", wanted=2)
            if scheduled and await self.bench.cancel(*[one.name for one in scheduled]) == ():
                self.done |= {text_of(one) for one in scheduled}
        elif what == "redrive":
            dead = await self.bench.peek(side="d", wanted=3)
            await self.bench.redrive(*[one.name for one in dead])
        elif what == "dead":
            held = await self.bench.receive(2, side="d")
            if held:
                await self.bench.abandon(*held)
        elif self.holders:
            await self.bury()

    async def bury(self) -> None:
        mine = self.holders.pop()
        with suppress(SessionLockLostError):
            await self.bench.tell(self.bench.partition.bury_session(self.bench.call_id(), mine.lock, share=2))

    async def wait(self) -> None:
        self.bench.later(self.random.choice([1, 300, 1000, SETTINGS.lock_duration]))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def drain(self) -> list[str]:
        """Receive and complete everything. Return the messages that had their content, deferred ones included."""
        self.bench.later(10 * SETTINGS.lock_duration)
        while (await self.bench.due()).more:
            pass
        left = [text_of(one) for one in await self.bench.peek(states="f", wanted=1000) if one.reason == "-"]
        for name in SESSIONS if self.sessions else ():
            mine = await holder(self.bench, name)
            received = await mine.receive_more(1000)
            while received.messages or received.more:
                left += [text_of(one) for one in received.messages]
                assert await mine.complete(*received.messages) == ()
                received = await mine.receive_more(1000)
            await mine.release()
        while not self.sessions:
            found, received = await self.bench.receive_more(1000)
            left += [text_of(one.delivery) for one in found]
            if found:
                assert (await self.bench.complete(*found)).lost == ()
            elif not received.more:
                break
        dead = await self.bench.receive(1000, side="d")
        left += [text_of(one.delivery) for one in dead if one.reason != "R"]
        assert sum(one.reason == "R" for one in dead) <= len(self.damaged), "a damaged message died twice"
        if dead:
            assert (await self.bench.complete(*dead)).lost == ()
        return left


def text_of(message: Delivery) -> str:
    return body(message).decode()


FAULTS = {
    "a session keeps a message that was set aside": ("includes/set_aside", "p, session, letter,", "p, session, 'x',"),
    "the expiry event of a message that was set aside stays": (
        "includes/set_aside",
        "p.unawaited[#p.unawaited + 1] = due_name('e', member)",
        "p.unawaited[#p.unawaited + 1] = due_name('a', member)",
    ),
    "a scheduled message needs its record": (
        "includes/activate",
        "  if record == LOST_RECORD then",
        "  if false then",
    ),
    "a receiver gets a message without content": ("includes/choose_messages", "record == LOST_RECORD", "false"),
    "a malformed record counts as whole": ("includes/readable", "if record and (", "if record and (#record > 14 or "),
    "a purge needs all records": ("purge", " or '' -- damaged data may name no session", ""),
    "a redrive makes an empty message": ("redrive", "if found[i] == LOST_RECORD then", "if false then"),
}
"""Faults that are planted in the scripts, one at a time: a file, a text, and its replacement."""


class FaultyBench(Bench):
    """A bench whose scripts have a fault."""

    fault = ""

    async def tell(self, request: Request[T]) -> T:
        return await super().tell(request._replace(script=faulty(request.script, self.fault)))


@cache
def faulty(script: Script, fault: str) -> Script:
    file, right, wrong = FAULTS[fault]
    source = expand(script.name, with_texts_replaced({file: [(right, wrong)]}))
    return Script(script.name, source, script.takes_run_id)


async def rage(bench: Bench, seed: int) -> None:
    """Run random operations on a new partition, and check that no message is lost, and that nothing is left."""
    storm = Storm(bench, seed)
    steps = [*[storm.send, storm.receive, storm.settle] * 4, *[storm.damage, storm.administer] * 2]
    steps += [storm.receive_by_number, storm.wait]
    for _ in range(STEPS):
        await storm.random.choice(steps)()
    left = await storm.drain()
    assert len(left) == len(set(left)), "a message is there twice"
    assert not storm.damaged & set(left), "a damaged message has its content"
    assert storm.sent <= {*left, *storm.damaged, *storm.done}, "a message is lost"

    for name in SESSIONS if storm.sessions else ():
        await bench.tell(bench.partition.purge(bench.call_id(), NEVER, session=name))
    await bench.purge()
    counts = (await bench.count())._asdict()
    assert not {name for name in counts.keys() - {"bytes", "last", "used", "due"} if counts[name]}
    whole = {key.rpartition(":")[2]: held for key, (_, held) in (await bench.whole()).items()}
    assert len(whole["order"]) == len(whole["entries"]) == 1, "only the sentinel is left"
    assert not whole.keys() & {"due", "leases", "locks", *(f"m{at}" for at in range(16))}
    if storm.sessions:
        assert (await listed(bench)).names == ()


KINDS = {
    "queue": SETTINGS,
    "keeps expired": replace(SETTINGS, dead_letter_expired=True),
    "sessions": replace(SETTINGS, sessions=True),
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", first(3, range(SEEDS), "each seed is one more search"))
async def test_no_call_fails_and_no_other_message_is_lost(bench: Bench, seed: int) -> None:
    await rage(bench, seed)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(shared_server: LocalServer, fault: str) -> None:
    found = False
    async with await open_with_scripts(shared_server.url) as transport:
        for seed, settings in product(range(SEEDS), KINDS.values()):
            await transport.command("DEL", *KEYS, key=KEYS[0])
            bench = FaultyBench(transport, Partition(NAMESPACE, SALT, ENTITY, INCARNATION, 1, settings))
            bench.fault = fault
            await bench.tell(bench.partition.configure(create=True))
            try:
                await rage(bench, seed)
            except (AssertionError, ServiceBusError):
                found = True
            if found:
                break
        await transport.command("DEL", *KEYS, key=KEYS[0])
    assert found
