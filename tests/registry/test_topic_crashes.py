"""Tests of changes to subscriptions and rules by a client that ends after any step, or that is slower than others."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbredis.engine import ScriptCaller
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.registry import JUDGING_PROPERTY, EntityChangedError, EntityRecord, Namespace, Routes, path_of
from sbredis.rules import Rule, SqlFilter
from sbredis.transport import Argument, Script, Transport
from tests.engine.opening import open_with_scripts
from tests.plugins.parts import first
from tests.plugins.targets import SHAPES, partitioned_on
from tests.registry.cuts import Cuts, Operation, opened, settled
from tests.registry.keys import keys_of, snapshot
from tests.registry.topics import (
    ANY,
    CORRELATED,
    OF_SUBSCRIPTION,
    SQL,
    State,
    decode,
    judged_by,
    kept_of,
    make_topic,
    require_whole,
    routes_say,
)
from tests.registry.turns import Crowd, Cut, Turns

pytestmark = [
    pytest.mark.slow,
    pytest.mark.everywhere("a creation cut off in the middle has reached some slots and not others"),
]

SUB = path_of("Topic", "Sub")
OTHER = Rule("Sql", SqlFilter("b = 2"))

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)


def ways(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test with several ways and both shapes: a topic with one partition in memory, a partitioned topic
    on a real server, and the first way with a partitioned topic on a cluster.
    """
    cases = [(target, name, partitioned_on(target)) for target in ("memory", "server") for name in names]
    cases.append(("cluster", names[0], True))
    values = [pytest.param(*case, id=f"{case[0]}-{case[1]}-{SHAPES[case[2]]}") for case in cases]
    given = first(1, values, "each way goes through all steps of a change")
    return pytest.mark.parametrize(("target", "way", "partitioned"), given, indirect=["target"])


def with_a_topic(*, partitioned: bool, subscribed: bool = False) -> Operation:
    async def made(namespace: Namespace) -> None:
        await make_topic(namespace, partitioned=partitioned)
        if subscribed:
            await subscribing(namespace)
            await namespace.create_subscription("Topic", "Another", OF_SUBSCRIPTION, rules=[ANY])

    return made


async def subscribing(namespace: Namespace) -> EntityRecord:
    return await namespace.create_subscription("Topic", "Sub", OF_SUBSCRIPTION, rules=[ANY, SQL])


async def unsubscribing(namespace: Namespace) -> None:
    await namespace.delete_entity(SUB)


async def deleting(namespace: Namespace) -> None:
    await namespace.delete_entity("Topic")


async def judging(namespace: Namespace) -> None:
    record = await namespace.get_entity(SUB)
    flag = not record.properties.get(JUDGING_PROPERTY)
    await namespace.update_entity(record, OF_SUBSCRIPTION, properties={JUDGING_PROPERTY: flag})


RULE_OPERATIONS: dict[str, Operation] = {
    "create": lambda namespace: namespace.create_rule("Topic", "Sub", CORRELATED),
    "update": lambda namespace: namespace.update_rule("Topic", "Sub", OTHER),
    "delete": lambda namespace: namespace.delete_rule("Topic", "Sub", "Sql"),
}


# -- interrupted clients -----------------------------------------------------------------------------------------------


@ways("looked for", "created again", "topic looked for", "listed by routes")
async def test_an_interrupted_creation_of_a_subscription_is_finished_by_the_next_caller(
    transport: Transport, way: str, *, partitioned: bool
) -> None:
    cuts = Cuts(transport, with_a_topic(partitioned=partitioned), subscribing)
    async for namespace, steps in cuts.all():
        registered = steps > 1
        if not registered:
            with pytest.raises(MessagingEntityNotFoundError):
                await namespace.get_entity(SUB)
            await subscribing(namespace)
        elif way == "created again":
            with pytest.raises(MessagingEntityAlreadyExistsError):
                await subscribing(namespace)
        else:
            if way == "topic looked for":
                await namespace.get_entity("Topic")
            elif way == "listed by routes":
                states = [routed.record.state for routed in (await namespace.routes("Topic")).subscriptions]
                assert states in ([], ["active"])
            record = await namespace.get_entity(SUB)
            assert (record.name, record.state, record.settings) == ("Sub", "active", OF_SUBSCRIPTION)
        assert {kept.rule for kept in await namespace.list_rules("Topic", "Sub")} == {ANY, SQL}
        await cuts.as_if_nothing_had_happened(namespace)


@pytest.mark.both_shapes
async def test_a_half_created_subscription_is_deleted_with_its_topic(
    transport: Transport, *, partitioned: bool
) -> None:
    async for namespace, _ in Cuts(transport, with_a_topic(partitioned=partitioned), subscribing).all():
        await namespace.delete_entity("Topic")
        assert set(settled(await snapshot(transport, namespace.name), namespace.name)) == {"{registry}:namespace"}


@ways("delete", "get", "create")
async def test_an_interrupted_deletion_of_a_subscription_is_finished(
    transport: Transport, way: str, *, partitioned: bool
) -> None:
    cuts = Cuts(transport, with_a_topic(partitioned=partitioned, subscribed=True), unsubscribing)
    async for namespace, steps in cuts.all():
        there = [record.state for record in await namespace.list_subscriptions("Topic")]
        if steps < 2:
            await namespace.delete_entity(SUB)
        elif way == "create":
            record = await subscribing(namespace)
            assert record.state == "active"
            require_whole(await kept_of(transport, namespace.name), 3)
            continue
        elif way == "delete" and len(there) == 2:
            await namespace.delete_entity(SUB)
        else:
            with pytest.raises(MessagingEntityNotFoundError):
                await namespace.get_entity(SUB)
        await cuts.as_if_nothing_had_happened(namespace)


@ways("subscription", "delete", "get", "create")
async def test_an_interrupted_deletion_of_a_topic_is_finished(
    transport: Transport, way: str, *, partitioned: bool
) -> None:
    cuts = Cuts(transport, with_a_topic(partitioned=partitioned, subscribed=True), deleting)
    async for namespace, steps in cuts.all():
        await kept_of(transport, namespace.name)
        there = await namespace.list_entities()
        subscriptions = any("subscriptions" in path for path in (await kept_of(transport, namespace.name)).entities)
        # The first two calls read the topic, and whether a subscription is reserved.
        if steps < 3 or (way == "delete" and there):
            await namespace.delete_entity("Topic")
        elif way == "create":
            await make_topic(namespace, partitioned=partitioned)
            require_whole(await kept_of(transport, namespace.name), 3)
            continue
        else:
            if way == "subscription" and subscriptions:
                with pytest.raises(MessagingEntityNotFoundError):
                    await namespace.create_rule("Topic", "Another", SQL)
            with pytest.raises(MessagingEntityNotFoundError):
                await namespace.get_entity("Topic")
        await cuts.as_if_nothing_had_happened(namespace)


@ways("judging", "create", "update", "delete")
async def test_an_interrupted_change_is_finished_by_the_next_caller_or_has_left_nothing(
    transport: Transport, way: str, *, partitioned: bool
) -> None:
    operation = judging if way == "judging" else RULE_OPERATIONS[way]
    cuts = Cuts(transport, with_a_topic(partitioned=partitioned, subscribed=True), operation)
    async for namespace, steps in cuts.all():
        if steps < 2:
            await operation(namespace)
        elif way == "judging":
            record = await namespace.get_entity(SUB)
            assert record.properties == {JUDGING_PROPERTY: True}
            # The partitions of the subscription learn the change when a client calls them.
            await namespace.restore_entity(record)
        elif way == "create":
            with pytest.raises(MessagingEntityAlreadyExistsError):
                await operation(namespace)
        elif way == "delete":
            with pytest.raises(MessagingEntityNotFoundError):
                await operation(namespace)
        else:
            assert (await namespace.get_rule("Topic", "Sub", "SQL")).rule == OTHER
        await cuts.as_if_nothing_had_happened(namespace)
        require_whole(await kept_of(transport, namespace.name), 3)


# -- slow clients ------------------------------------------------------------------------------------------------------


async def slowly(transport: Transport, operation: Operation, calls: int) -> tuple[asyncio.Future[Any], Turns]:
    """Start an operation, and let this number of its calls through."""
    turns = Turns(transport)
    slow = asyncio.ensure_future(operation(Namespace(turns.client(0), "ns", 2, 0)))
    await turns.quiet()
    for _ in range(calls):
        await turns.let_through(turns.waiting[0])
    return slow, turns


@in_memory
@pytest.mark.parametrize("gone", [SUB, "Topic"])
async def test_a_partition_made_for_a_deleted_entity_is_removed_again(transport: Transport, gone: str) -> None:
    others = await opened(transport, "ns", 2)
    await make_topic(others)
    slow, turns = await slowly(transport, subscribing, 2)
    assert [call.script.name for call in turns.waiting] == ["configure", "configure"]
    await others.delete_entity(gone)
    await turns.let_all_through()
    with pytest.raises(MessagingEntityNotFoundError, match="There is no subscription 'Sub'"):
        await slow
    require_whole(await kept_of(transport), 2)


@in_memory
async def test_a_slow_creation_returns_the_entity_as_others_changed_it(transport: Transport) -> None:
    others = await opened(transport, "ns", 2)
    await make_topic(others)
    slow, turns = await slowly(transport, subscribing, 2)
    changed = await others.update_entity(await others.get_entity(SUB), OF_SUBSCRIPTION, properties={"a": 1})
    await turns.let_all_through()
    assert await slow == changed == await others.get_entity(SUB)
    require_whole(await kept_of(transport), 2)


@in_memory
async def test_a_slowly_created_subscription_belongs_to_the_topic_that_has_the_name_at_that_time(
    transport: Transport,
) -> None:
    others = await opened(transport, "ns", 2)
    await make_topic(others)
    slow, turns = await slowly(transport, subscribing, 1)
    assert [call.script.name for call in turns.waiting] == ["register_subscription"]
    await others.delete_entity("Topic")
    topic = await make_topic(others)
    await turns.let_all_through()
    assert (await slow).store == topic.id
    require_whole(await kept_of(transport), 2)


@in_memory
async def test_a_slow_rule_change_applies_to_the_subscription_that_has_the_name_at_that_time(
    transport: Transport,
) -> None:
    others = await opened(transport, "ns", 2)
    await make_topic(others)
    await subscribing(others)
    slow, turns = await slowly(transport, RULE_OPERATIONS["create"], 1)
    await others.delete_entity("Topic")
    await make_topic(others)
    await subscribing(others)
    await turns.let_all_through()
    await slow
    assert {kept.rule for kept in await others.list_rules("Topic", "Sub")} == {ANY, SQL, CORRELATED}
    require_whole(await kept_of(transport), 2)


@in_memory
@pytest.mark.parametrize("calls", [6, 1000], ids=["half deleted", "deleted"])
async def test_a_slow_restoration_of_a_deleted_entity_is_undone(transport: Transport, calls: int) -> None:
    others = await opened(transport, "ns", 2)
    await make_topic(others)
    record = await subscribing(others)
    slow, turns = await slowly(transport, lambda namespace: namespace.restore_entity(record), 1)
    assert [call.script.name for call in turns.waiting] == ["configure", "configure"]
    with suppress(ServiceBusError):  # the deletion may end after its first partition
        await Namespace(Cut(transport, calls, before=True), "ns", 2, 0).delete_entity(SUB)
    await turns.let_all_through()
    with pytest.raises(MessagingEntityNotFoundError):
        await slow
    require_whole(await kept_of(transport), 2)


# -- random order of calls ---------------------------------------------------------------------------------------------


async def judged(namespace: Namespace) -> Routes:
    return await namespace.routes("Topic")


EXPECTED = (MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError, EntityChangedError)
OPERATIONS: dict[str, Operation] = {
    "topic": make_topic,
    "subscribe": subscribing,
    "another": lambda namespace: namespace.create_subscription("Topic", "Two", OF_SUBSCRIPTION, rules=[ANY]),
    "judging": judging,
    "create rule": RULE_OPERATIONS["create"],
    "update rule": RULE_OPERATIONS["update"],
    "delete rule": RULE_OPERATIONS["delete"],
    "routes": judged,
    "get": lambda namespace: namespace.get_entity(SUB),
    "unsubscribe": unsubscribing,
    "delete": deleting,
}
RAISING = {"create_rule", "update_rule", "revise_subscription", "delete_rule"}
EXAMPLES = 25  # an example makes up to a few hundred calls, and checks all contents after each call


class Watched:
    """Passes calls to another transport, and records the last version to which the client raised a topic."""

    def __init__(self, transport: ScriptCaller) -> None:
        self._transport = transport
        self.raised: tuple[str, int] | None = None

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **how: Any) -> Any:
        reply = await self._transport.call(script, keys, arguments, **how)
        if script.name in RAISING:
            text = reply if script.name == "delete_rule" else reply[script.name == "revise_subscription"]
            topic = decode(text) if text else None
            self.raised = None if topic is None else (topic.incarnation, topic.version)
        return reply


class Subscribers(Crowd):
    """Clients that perform operations on one topic.

    After each call a check compares the routing state with the topic's version: the state may change only with the
    version.
    """

    def __init__(self, transport: Transport, operations: list[str], chance: random.Random, dying: int = 0) -> None:
        super().__init__(transport, operations, chance, dying)
        self._transport = transport
        self._states: dict[tuple[str, int], State] = {}

    async def look(self) -> None:
        kept = await kept_of(self._transport)
        topic = kept.entities.get("topic")
        if topic is not None and topic.state == "active":
            state = judged_by(kept)
            assert self._states.setdefault((topic.incarnation, topic.version), state) == state

    async def perform(self, what: str, client: ScriptCaller) -> None:
        watched = Watched(client)
        try:
            result = await OPERATIONS[what](Namespace(watched, "ns", 2, 0))
        except EXPECTED:
            return
        if isinstance(result, Routes):
            assert routes_say(result) == self._states[result.topic.incarnation, result.topic.version]
        kept = await kept_of(self._transport)
        topic = kept.entities.get("topic")
        if watched.raised is not None and topic is not None and topic.state == "active":
            incarnation, version = watched.raised
            if topic.incarnation == incarnation:
                assert min(kept.versions[topic.id]) >= version, "the call returned before a partition got the version"


operations_of_several = st.lists(st.sampled_from(list(OPERATIONS)), min_size=2, max_size=6)
chances = st.randoms(use_true_random=True)  # only the seed is drawn, so no example ends between its calls


@pytest.mark.long("it tries many orders of calls")
@settings(deadline=None, max_examples=EXAMPLES)
@given(operations_of_several, chances)
def test_a_topic_is_complete_and_has_one_version_for_any_order_of_calls(
    operations: list[str], chance: random.Random
) -> None:
    async def act() -> None:
        async with await open_with_scripts(f"memory://{uuid.uuid4().hex}") as transport:
            namespace = await opened(transport, "ns", 2)
            await make_topic(namespace)
            await subscribing(namespace)
            await Subscribers(transport, operations, chance).act()
            require_whole(await kept_of(transport), 2)

    asyncio.run(act())


@pytest.mark.long("it tries many orders of calls")
@settings(deadline=None, max_examples=EXAMPLES)
@given(operations_of_several, chances, st.integers(1, 3))
def test_after_clients_end_in_mid_operation_a_topic_is_complete_or_missing(
    operations: list[str], chance: random.Random, dying: int
) -> None:
    async def act() -> None:
        async with await open_with_scripts(f"memory://{uuid.uuid4().hex}") as transport:
            namespace = await opened(transport, "ns", 2)
            await make_topic(namespace)
            await subscribing(namespace)
            await Subscribers(transport, operations, chance, dying).act()
            with suppress(MessagingEntityNotFoundError):
                for record in await namespace.list_subscriptions("Topic"):
                    with suppress(MessagingEntityNotFoundError):
                        await namespace.update_entity(await namespace.get_entity(record.path), OF_SUBSCRIPTION)
                assert routes_say(await namespace.routes("Topic")) == judged_by(await kept_of(transport))
                ids = {record.id for record in (await kept_of(transport)).entities.values()}
                kept = await kept_of(transport)
                assert all(kept.versions[id_] for id_ in ids)
                assert set(kept.versions[kept.entities["topic"].id]) == {kept.entities["topic"].version}
                await namespace.delete_entity("Topic")
                left = [key for key in keys_of(await snapshot(transport), "ns") if key.split(":")[1] in ids]
                assert left == []
            kept = await kept_of(transport)
            assert (kept.entities, kept.rules, kept.tallies) == ({}, {}, {})
            await make_topic(namespace)
            assert (await subscribing(namespace)).state == "active"

    asyncio.run(act())
