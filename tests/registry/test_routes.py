"""Tests that routes are read as one consistent state even during changes, and that no unchanged data is read again."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import PartitionSettings
from sbredis.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, ServiceBusCommunicationError
from sbredis.registry import JUDGING_PROPERTY, Namespace, Routes, path_of
from sbredis.registry import _rulebook as rulebook_module
from sbredis.rules import CorrelationFilter, Rule, SqlFilter
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts
from tests.registry.topics import (
    ANY,
    CORRELATED,
    OF_SUBSCRIPTION,
    SQL,
    State,
    judged_by,
    kept_of,
    make_topic,
    routes_say,
)
from tests.registry.turns import Cut, RecordingTransport, Turns

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)


@pytest.fixture
async def namespace(transport: Transport) -> Namespace:
    """A namespace that has a topic with five subscriptions."""
    namespace = await Namespace.open(transport, "ns", 1)
    await make_topic(namespace)
    for name in ("A", "b", "a-1", "a.2", "C"):
        await namespace.create_subscription("Topic", name, OF_SUBSCRIPTION, rules=[ANY, Rule(f"of-{name}", SQL.filter)])
    return namespace


async def read_recorded(transport: Transport, known: Routes | None) -> tuple[Routes, list[str]]:
    """Return the routes, and the names of the scripts that were called to read them."""
    recorder = RecordingTransport(transport)
    routes = await Namespace(recorder, "ns", 1, 0).routes("topic", known)
    return routes, [name for name, _ in recorder.calls]


READ = ["read_entity", "list_subscriptions"]


async def test_routes_are_the_active_subscriptions_with_their_rules(namespace: Namespace) -> None:
    routes = await namespace.routes("TOPIC")
    assert routes.topic == await namespace.get_entity("Topic")
    assert [routed.record.name for routed in routes.subscriptions] == ["A", "a-1", "a.2", "b", "C"]
    for routed in routes.subscriptions:
        assert routed.record == await namespace.get_entity(routed.record.path)
        assert routed.rules == (ANY, Rule(f"of-{routed.record.name}", SQL.filter))


async def test_a_topic_without_subscriptions_has_empty_routes(namespace: Namespace) -> None:
    topic = await make_topic(namespace, "Topic-2")
    assert await namespace.routes("Topic-2") == (topic, ())
    await namespace.create_subscription("Topic-2", "s", OF_SUBSCRIPTION, rules=[])
    assert (await namespace.routes("Topic-2")).subscriptions[0].rules == ()


@pytest.mark.slow
async def test_only_the_rules_that_have_changed_are_read_again(transport: Transport, namespace: Namespace) -> None:
    routes, scripts = await read_recorded(transport, None)
    assert scripts == [*READ, "list_rules"]

    async def changed(stretches: int) -> None:
        nonlocal routes
        delta, scripts = await read_recorded(transport, routes)
        assert scripts == [*READ, *["list_rules"] * stretches]
        assert delta == await namespace.routes("Topic")
        assert routes_say(delta) == judged_by(await kept_of(transport))
        routes = delta

    await changed(0)
    await namespace.create_rule("Topic", "a.2", CORRELATED)
    await changed(1)
    await namespace.update_rule("Topic", "A", Rule("of-A", CORRELATED.filter))
    await namespace.delete_rule("Topic", "a-1", "$default")
    await changed(1)  # these two subscriptions are neighbours
    await namespace.delete_rule("Topic", "A", "of-a")
    await namespace.create_rule("Topic", "b", SQL)
    await changed(2)
    await namespace.delete_entity(path_of("Topic", "a-1"))
    await changed(0)
    await namespace.create_subscription("Topic", "a-1", OF_SUBSCRIPTION, rules=[SQL])
    await changed(1)
    record = await namespace.get_entity(path_of("Topic", "b"))
    await namespace.update_entity(
        record, PartitionSettings(shared=True, lock_duration=9), properties={JUDGING_PROPERTY: 1}
    )
    await changed(0)
    assert routes.subscriptions[3].record.settings.lock_duration == 9
    await namespace.delete_entity("Topic")
    await make_topic(namespace)
    await changed(0)


async def test_routes_of_an_earlier_topic_of_the_same_name_are_not_used(
    transport: Transport, namespace: Namespace
) -> None:
    known = await namespace.routes("Topic")
    await namespace.delete_entity("Topic")
    with pytest.raises(MessagingEntityNotFoundError, match="There is no topic 'Topic'"):
        await namespace.routes("Topic", known)
    await make_topic(namespace)
    await namespace.create_subscription("Topic", "A", OF_SUBSCRIPTION, rules=[CORRELATED])
    routes, scripts = await read_recorded(transport, known)
    assert scripts == [*READ, "list_rules"]
    assert routes.subscriptions[0].rules == (CORRELATED,)


async def test_a_half_made_or_half_deleted_subscription_matches_no_message(
    transport: Transport, namespace: Namespace
) -> None:
    steps, until = namespace._steps, asyncio.get_running_loop().time() + 60
    record = await namespace.get_entity(path_of("Topic", "a.2"))
    await steps.deleting(record, until)
    owner = await namespace.get_entity("Topic")
    description = replace(record, name="a-2", state="creating")
    request = steps.registry.register_subscription(owner, description, "incarnation_", [SQL, CORRELATED])
    await steps.ask(request, until)
    routes = await namespace.routes("Topic")
    assert [routed.record.name for routed in routes.subscriptions] == ["A", "a-1", "b", "C"]
    assert all(len(routed.rules) == 2 for routed in routes.subscriptions)
    assert routes_say(routes) == judged_by(await kept_of(transport))


@pytest.mark.slow
async def test_large_rules_are_read_page_by_page(transport: Transport, namespace: Namespace) -> None:
    big = {f"p{number}": "x" * 700 for number in range(80)}
    for name in ("b", "C"):
        for number in range(13):
            rule = Rule(f"r{number:02}", CorrelationFilter(properties={**big, "n": number}))
            await namespace.create_rule("Topic", name, rule)
    routes, scripts = await read_recorded(transport, None)
    assert scripts == [*READ, *["list_rules"] * 2]
    assert [len(routed.rules) for routed in routes.subscriptions] == [2, 2, 2, 15, 15]
    assert routes_say(routes) == judged_by(await kept_of(transport))
    listed = await namespace.list_rules("Topic", "b")
    assert len(listed) == 15


@pytest.mark.slow
@in_memory
async def test_a_thousand_rules_and_more_are_read(transport: Transport, namespace: Namespace) -> None:
    for name in ("x", "y"):
        rules = [Rule(f"r{number}", SqlFilter(f"a = {number}")) for number in range(999 if name == "x" else 1)]
        await namespace.create_subscription("Topic", name, OF_SUBSCRIPTION, rules=rules)
    routes, scripts = await read_recorded(transport, None)
    assert scripts == [*READ, *["list_rules"] * 2]
    assert [len(routed.rules) for routed in routes.subscriptions] == [2, 2, 2, 2, 2, 999, 1]


# -- concurrent changes ------------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_reader_notices_a_change_between_two_pages(
    transport: Transport, namespace: Namespace, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The reader starts again, but does not read unchanged rules a second time."""
    monkeypatch.setattr(rulebook_module, "LONGEST_PAGE", 4)
    turns = Turns(transport)
    reading = asyncio.ensure_future(Namespace(turns.client(0), "ns", 1, 0).routes("Topic"))
    await turns.quiet()
    scripts: list[str] = []
    while turns.waiting:
        if len(scripts) == at:
            await namespace.create_rule("Topic", "C", CORRELATED)
        scripts.append(turns.waiting[0].script.name)
        await turns.let_through(turns.waiting[0])
    routes = await reading
    assert routes.topic == await namespace.get_entity("Topic")
    assert routes_say(routes) == judged_by(await kept_of(transport))
    assert scripts.count("read_entity") == 2
    assert scripts.count("list_rules") <= 5


@in_memory
async def test_a_reader_of_many_pages_does_not_start_over(
    transport: Transport, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rulebook_module, "LONGEST_PAGE", 1)
    turns = Turns(transport)
    reading = asyncio.ensure_future(Namespace(turns.client(0), "ns", 1, 0).routes("Topic"))
    await turns.quiet()
    scripts: list[str] = []
    for number in range(100):
        if not turns.waiting:
            break
        if number % 12 == 11:  # a change before the reader can finish
            await namespace.update_rule("Topic", "A", Rule("$Default", SqlFilter(f"a = {number}")))
        scripts.append(turns.waiting[0].script.name)
        await turns.let_through(turns.waiting[0])
    assert reading.done()
    assert routes_say(await reading) == judged_by(await kept_of(transport))
    assert scripts.count("read_entity") > 1


@in_memory
async def test_a_topic_under_deletion_is_not_read_as_one_without_subscriptions(
    transport: Transport, namespace: Namespace
) -> None:
    turns = Turns(transport)
    reading = asyncio.ensure_future(Namespace(turns.client(0), "ns", 1, 0).routes("Topic"))
    await turns.quiet()
    await turns.let_through(turns.waiting[0])
    cut = Namespace(
        Cut(transport, 4 + 3 * len(await namespace.list_subscriptions("Topic")) + 2, before=True), "ns", 1, 0
    )
    with pytest.raises(ServiceBusCommunicationError):
        await cut.delete_entity("Topic")
    assert list((await kept_of(transport)).entities) == ["topic"], "only its record is left"
    while turns.waiting:
        await turns.let_through(turns.waiting[0])
    with pytest.raises(MessagingEntityNotFoundError):
        await reading


@pytest.mark.slow
@in_memory
async def test_a_reader_that_is_always_too_late_gives_up_at_its_deadline(
    transport: Transport, namespace: Namespace
) -> None:
    class Restless:
        """Passes calls to another transport, and changes a rule before each call that lists rules."""

        async def call(self, script: Any, keys: Any, arguments: Any = (), **how: Any) -> Any:
            if script.name == "list_rules":
                await namespace.update_rule("Topic", "A", ANY)
            return await transport.call(script, keys, arguments, **how)

    with pytest.raises(OperationTimeoutError):
        await Namespace(Restless(), "ns", 1, 0).routes("Topic", timeout=0.3)


@pytest.mark.long("it changes rules many times")
@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_every_snapshot_is_the_state_at_one_version(
    url: str, transport: Transport, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several clients change rules and subscriptions while several others read the whole state or only its changes."""
    monkeypatch.setattr(rulebook_module, "LONGEST_PAGE", 3)
    states: dict[int, State] = {}
    read: list[Routes] = []
    changing = True
    chance = random.Random(7)

    async def noted() -> None:
        """Allow one change at a time, so that the state of each version can be recorded."""
        kept = await kept_of(transport)
        state = judged_by(kept)
        assert states.setdefault(kept.entities["topic"].version, state) == state

    async def change() -> None:
        nonlocal changing
        await noted()
        try:
            for number in range(24):
                await change_something(number)
                await noted()
        finally:
            changing = False

    async def change_something(number: int) -> None:
        name = chance.choice(["A", "b", "a-1", "C"])
        match number % 4:
            case 0:
                await namespace.create_rule("Topic", name, Rule(f"new{number}", SqlFilter(f"a = {number}")))
            case 1:
                await namespace.update_rule("Topic", name, Rule("$Default", SqlFilter(f"b = {number}")))
            case 2:
                await namespace.create_subscription("Topic", f"s{number}", OF_SUBSCRIPTION, rules=[SQL, ANY])
            case _:
                await namespace.delete_entity(path_of("Topic", f"s{number - 1}"))

    async def look(where: Transport, *, whole: bool) -> None:
        known: Routes | None = None
        client = await Namespace.open(where, "ns")
        while changing:
            known = await client.routes("Topic", None if whole else known)
            read.append(known)

    async with await open_with_scripts(url) as another:
        await asyncio.gather(change(), *(look(another, whole=whole) for whole in (True, False, False)))
    assert len({routes.topic.version for routes in read}) > 3
    for routes in read:
        assert routes_say(routes) == states[routes.topic.version]
