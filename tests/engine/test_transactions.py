"""Transactions: operations on partitions of one slot that happen together, or not at all."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sbredis.engine import (
    NO_CALL_ID,
    Copy,
    Lock,
    Operation,
    Outgoing,
    Partition,
    PartRefusedError,
    SessionLock,
    advance,
    once,
    transact,
    transact_together,
    transfer,
)
from sbredis.engine._transaction import TransactionStep
from sbredis.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.transport import forget_memory
from tests.engine.opening import open_with_scripts
from tests.engine.transactions import ELSEWHERE, SETTINGS, World, of_session

ONE, TWO, NOBODY = "one-one-AAB", "two-two-AAB", "nobody-lock"


Locks = dict[str, list[Lock]]


def _settle(what: str, name: str, changes: bytes = b"") -> Callable[[World, Locks, SessionLock], Operation | None]:
    """Return a function that settles the next locked message of an entity, if there is one."""

    def settle(world: World, locks: Locks, _: SessionLock) -> Operation | None:
        return world.settling(what, name, locks[name].pop()._replace(changes=changes)) if locks[name] else None

    return settle


def _renew(name: str) -> Callable[[World, Locks, SessionLock], Operation | None]:
    """Return a function that renews the next locked message of an entity, if there is one."""

    def renew(world: World, locks: Locks, _: SessionLock) -> Operation | None:
        of = world.of[name]
        return Operation(of, of.renew(world.call_id(), [locks[name].pop()])) if locks[name] else None

    return renew


def _remember(name: str) -> Callable[[World, Locks, SessionLock], Operation]:
    return lambda world, *_: once(world.of[name], {world.call_id().lane.encode(): 60_000})


def _advance(name: str) -> Callable[[World, Locks, SessionLock], Operation]:
    return lambda world, *_: advance(world.of[name], world.call_id().lane.encode(), None, "1")


def _transfer(name: str) -> Callable[[World, Locks, SessionLock], Operation]:
    return lambda world, *_: transfer(world.of[name], [Outgoing(b"x", 1000, 3), Outgoing(b"y")], ELSEWHERE, 9, "e")


def _send(world: World, *_: object) -> Operation:
    return world.sending("a", Outgoing(b"x", 1000, 3), Outgoing(b"y", due=world.now + 50))


Change = Callable[[World, Locks, SessionLock], Operation | None]

ADVANCE = _advance("a")
CHANGES: list[Change] = [
    *(_settle(what, name) for what in ("complete", "abandon", "defer", "dead_letter") for name in "asc"),
    *(_settle("abandon", name, b"changed") for name in "asc"),
    *(_renew(name) for name in "asc"),
    _send,
    lambda world, *_: world.sending("b", Outgoing(b"x", message_id=b"1"), Outgoing(b"y", message_id=b"1")),
    lambda world, *_: world.sending("c", Outgoing(of_session("x", b"x")), Outgoing(of_session("y", b"y"))),
    lambda world, *_: world.publishing((Outgoing(b"x"), (Copy(0), Copy(0, b"changed"))), (Outgoing(b"y"), ())),
    lambda world, *_: world.publishing((Outgoing(b"z", due=world.now + 50), (Copy(0, b"why", dead=True),))),
    lambda world, *_: world.publishing((Outgoing(b"z", 70), (Copy(0, b"why", dead=True),))),
    lambda world, _, session: Operation(world.of["c"], world.of["c"].set_state(world.call_id(), session, b"state")),
    *(_remember(name) for name in "acst"),
    ADVANCE,
    *(_advance(name) for name in "cst"),
    *(_transfer(name) for name in "acst"),
]


# -- what happens together ---------------------------------------------------------------------------------------------


How = Literal["together", "in turn", "alone"]
Watermarks = dict[tuple[str, bytes], bytes]


async def each_alone(world: World, work: Sequence[Operation]) -> Watermarks:
    """Run each operation alone. Return the watermarks that one transaction would store, by entity and field: each has
    the number of the last message that an earlier operation has sent to the same partition.
    """
    names = {partition: name for name, partition in world.of.items()}
    sent: dict[str, bytes] = {}
    watermarks: Watermarks = {}
    for operation in work:
        await world.alone(operation)
        name, request = names[operation.partition], operation.request
        if not isinstance(request, TransactionStep):
            if request.script.name == "send":
                sent[name] = (await world.data())[f"{name}:store"][1][b"seq"]
        elif request.name == "advance":
            mark = request.arguments[0]
            assert isinstance(mark, bytes)
            watermarks[name, b"w:" + mark] = sent.get(name, b"0") + b" 1"
    return watermarks


async def stored_by(chosen: list[Change], order: Sequence[int], how: How) -> tuple[dict[str, Any], Watermarks]:
    """Return what these operations store: together in one transaction, in turn in transactions of one call, each of
    which comes after a refused one with the same operation, or each alone. If each is alone, also return the watermarks
    that they would store together.
    """
    watermarks: Watermarks = {}
    name = uuid4().hex
    async with await open_with_scripts(f"memory://{name}") as transport:
        world = await World(transport).create()
        await world.send("a", b"0", b"1", b"2", b"3")
        for body in (b"0", b"1", b"2", b"3"):
            await world.alone(world.publishing((Outgoing(body), (Copy(0), Copy(0)))))
        await world.send("c", *(of_session("x", b"%d" % number) for number in range(4)))
        session = await world.accept("x", TWO)
        locks = {
            "a": await world.lock("a", ONE, 4),
            "s": await world.lock("s", ONE, 4),
            "c": await world.lock("c", TWO, 4, session="x"),
        }
        for of in locks.values():
            of[:] = [of[place] for place in order]
        work = [operation for one in chosen if (operation := one(world, locks, session)) is not None]
        if how == "together" and work:
            await world.transact(*work)
        elif how == "in turn" and work:
            wrong = world.settling("complete", "a", Lock(NOBODY, "1"))
            calls = [each for operation in work for each in ([operation, wrong], [operation])]
            done = await world.tell(transact_together(world.call_id(), calls))
            assert [isinstance(each, PartRefusedError) for each in done.outcomes] == [True, False] * len(work)
        elif how == "alone":
            watermarks = await each_alone(world, work)
        forget_memory(name)
        stored = await world.data()
        for key, (kind, fields) in stored.items():
            if kind == "hash" and b"run_id" in fields:
                stored[key] = kind, {**fields, b"run_id": b"?"}  # each way has a server of its own
        return stored, watermarks


@pytest.fixture
def opened() -> None:
    """Import what a transport in memory needs. Python 3.11 may fail to compile a module below Hypothesis's frames."""
    asyncio.run(stored_by([], range(4), "together"))


@pytest.mark.slow
@pytest.mark.usefixtures("opened")
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(chosen=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=8), order=st.permutations(range(4)))
@example(chosen=[_send, ADVANCE, _send], order=[0, 1, 2, 3])
def test_a_transaction_stores_the_same_bytes_as_its_operations_alone(chosen: list[Change], order: list[int]) -> None:
    """Random operations on locked messages of three entities: in a transaction, in several of one call, and alone.

    Only the number of a watermark differs: it is that of the last message of the same transaction.
    """
    ways: tuple[How, ...] = ("together", "in turn", "alone")
    (together, _), (in_turn, _), (alone, watermarks) = (asyncio.run(stored_by(chosen, order, how)) for how in ways)
    gc.collect()  # an in-memory server ends as a reference cycle, and an example makes three
    assert in_turn == alone
    for (name, field), watermark in watermarks.items():
        alone[f"{name}:lasting"][1][field] = watermark
    assert together == alone


# -- refusals ----------------------------------------------------------------------------------------------------------

Refused = Callable[[World], Operation]


async def _filled(world: World) -> None:
    """Leave no room in the queue b."""
    partition = world.of["b"]
    full = Partition("world", "abc", "b", "the-b", 2, replace(SETTINGS, quota=5))
    await world.tell(full.configure(now=world.now))
    world.of["b"] = full
    assert partition.keys == full.keys


async def _deleted(world: World) -> None:
    while await world.tell(world.of["b"].destroy()):
        pass


async def _nothing(_: World) -> None:
    pass


REFUSALS: dict[str, tuple[Callable[[World], Any], Refused, type[ServiceBusError], str]] = {
    "a lock that is lost": (
        _nothing,
        lambda world: world.settling("complete", "b", Lock(NOBODY, "1")),
        MessageLockLostError,
        r"have ended, so other receivers may have the messages: 1\.",
    ),
    "a queue that is full with the messages of the transaction": (
        _filled,
        lambda world: world.sending("b", Outgoing(b"12345")),
        ServiceBusQuotaExceededError,
        "^The transaction was refused and has changed nothing",
    ),
    "a deleted queue": (
        _deleted,
        lambda world: world.sending("b", Outgoing(b"x")),
        MessagingEntityNotFoundError,
        "^The transaction was refused and has changed nothing",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_refusal_of_the_last_operation_changes_no_byte(world: World, what: str) -> None:
    prepare, refused, kind, text = REFUSALS[what]
    await world.send("a", b"input")
    await world.alone(world.publishing((Outgoing(b"copy"), (Copy(0),))))
    locks, copies = await world.lock("a", ONE), await world.lock("s", TWO)
    await prepare(world)
    work = (
        world.settling("complete", "a", *locks),
        world.settling("dead_letter", "s", *copies),
        world.sending("b", Outgoing(b"1")),
        refused(world),
    )
    before = await world.everything()
    with pytest.raises(kind, match=text):
        await world.transact(*work)
    assert await world.everything() == before


async def test_a_message_that_is_too_large_for_an_entity_is_refused_before_the_call(world: World) -> None:
    with pytest.raises(MessageSizeExceededError):
        world.sending("a", Outgoing(b"x" * (SETTINGS.largest_message + 1)))


async def test_partitions_of_two_slots_are_refused_before_the_call(world: World) -> None:
    with pytest.raises(ValueError, match="must be in one slot"):
        transact(
            world.call_id(),
            [world.sending("a", Outgoing(b"x")), Operation(ELSEWHERE, ELSEWHERE.send(NO_CALL_ID, [Outgoing(b"y")]))],
        )


async def test_more_than_eight_partitions_are_refused_before_the_call(world: World) -> None:
    many = [Partition("world", "abc", f"e{number}", "the-e", 1, SETTINGS) for number in range(9)]
    with pytest.raises(ValueError, match="up to 8 partitions of entities, not 9"):
        transact(world.call_id(), [Operation(each, each.send(NO_CALL_ID, [Outgoing(b"y")])) for each in many])


async def test_a_transaction_has_at_least_one_operation_and_at_most_a_hundred(world: World) -> None:
    for count in (0, 101):
        with pytest.raises(ValueError, match=f"takes 1 to 100 operations, not {count}"):
            transact(world.call_id(), [world.sending("a", Outgoing(b"x"))] * count)


async def test_a_request_of_another_partition_is_refused_before_the_call(world: World) -> None:
    with pytest.raises(ValueError, match="'send' is a request of another partition"):
        transact(world.call_id(), [Operation(world.of["a"], world.of["b"].send(NO_CALL_ID, [Outgoing(b"x")]))])
