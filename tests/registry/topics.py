"""Topics for tests: the parsed contents of their registry, with checks of the counts and other invariants."""

from __future__ import annotations

from typing import NamedTuple

from sbredis.engine import PartitionSettings, registry_salt
from sbredis.registry import JUDGING_PROPERTY, EntityRecord, Namespace, Routes
from sbredis.registry._entity import decode
from sbredis.registry._rules import encode_rule
from sbredis.rules import CorrelationFilter, FalseFilter, Rule, SqlFilter
from sbredis.transport import Transport
from tests.registry.keys import keys_of, members, require_consistent, snapshot
from tests.stored_settings import settings_of

__all__ = [
    "ANY",
    "CORRELATED",
    "NONE",
    "OF_SUBSCRIPTION",
    "OF_TOPIC",
    "SQL",
    "Kept",
    "State",
    "decode",
    "judged_by",
    "kept_of",
    "make_topic",
    "require_whole",
    "routes_say",
    "subscribe",
]

OF_TOPIC = PartitionSettings(topic=True)
OF_SUBSCRIPTION = PartitionSettings(shared=True, lock_duration=1234)
ANY, NONE = Rule("$Default"), Rule("none", FalseFilter())
SQL, CORRELATED = Rule("Sql", SqlFilter("a = 1")), Rule("Correlated", CorrelationFilter(subject="x"))

State = frozenset[tuple[str, bool, frozenset[str]]]
"""The routing state of a topic: the incarnation, treatment of errors, and rules of each active subscription."""


class Kept(NamedTuple):
    """The contents of the registry and the partitions of a namespace."""

    entities: dict[str, EntityRecord]
    rules: dict[str, dict[str, bytes]]
    """The stored texts of rules by subscription path and rule name, including the part before the description."""
    tallies: dict[str, list[str]]
    versions: dict[str, list[int]]
    """The versions of the partitions of each entity, by the id of the entity."""
    keys: list[str]


async def make_topic(namespace: Namespace, name: str = "Topic", *, partitioned: bool = True) -> EntityRecord:
    return await namespace.create_entity(name, OF_TOPIC, kind="topic", partitioned=partitioned)


async def subscribe(namespace: Namespace, name: str = "Sub", *rules: Rule, topic: str = "Topic") -> EntityRecord:
    return await namespace.create_subscription(topic, name, OF_SUBSCRIPTION, rules=rules or [ANY])


async def kept_of(transport: Transport, name: str = "ns") -> Kept:
    """Return the contents, after a check that the sorted sets have the same entries as the hashes."""
    found = keys_of(await snapshot(transport, name), name)
    require_consistent(found)
    assert registry_salt("ns") == "027h"

    def listed(kind: str) -> set[str]:
        return {each.decode() for key, value in found.items() if _kind(key) == kind for each in members(value)}

    def fields(kind: str) -> dict[bytes, bytes]:
        return {name: text for key, value in found.items() if _kind(key) == kind for name, text in value.items()}

    entities = {path.decode(): decode(text) for path, text in fields("entities").items()}
    rules: dict[str, dict[str, bytes]] = {}
    for place, text in fields("rules").items():
        path, _, rule = place.decode().partition(" ")
        rules.setdefault(path, {})[rule] = text
    assert listed("names") | listed("subscriptions") == set(entities)
    assert listed("subscriptions") == {path for path in entities if "/subscriptions/" in path}
    assert listed("places") == {f"{path} {rule}" for path, named in rules.items() for rule in named}
    versions: dict[str, list[int]] = {}
    for key, value in found.items():
        if key.endswith(":state"):
            versions.setdefault(key.split(":")[1], []).append(int(settings_of(value[b"settings"])["version"]))
    tallies = {path.decode(): text.decode().split()[1:] for path, text in fields("tallies").items()}
    kept = Kept(entities, rules, tallies, versions, list(found))
    _require_counted(kept)
    return kept


def _kind(key: str) -> str | None:
    """Return the kind of a key of a bucket; ``None`` for other keys."""
    _, kind, *rest = key.split(":")
    return None if rest else kind


def _require_counted(kept: Kept) -> None:
    """Check that the stored counts match the contents."""
    counts: dict[str, list[int]] = {}
    for path, record in kept.entities.items():
        if record.kind == "queue" or record.state == "deleting":
            assert path not in kept.tallies
        elif record.kind == "topic":
            counts.setdefault(path, [0, 0, 0])
    for path, record in kept.entities.items():
        if record.kind != "subscription" or record.state == "deleting":
            continue
        assert record.parent is not None
        kinds = [text.split()[1] for text in kept.rules.get(path, {}).values()]
        counts[path] = [0, kinds.count(b"s"), kinds.count(b"c")]
        of_topic = counts.get(record.parent.lower())
        if of_topic is not None:
            counts[record.parent.lower()] = [
                one + two for one, two in zip(of_topic, [1, *counts[path][1:]], strict=True)
            ]
    assert {path: [int(count) for count in words[2:]] for path, words in kept.tallies.items()} == counts
    for path in kept.tallies:
        assert kept.tallies[path][0] == kept.entities[path].incarnation
        if kept.entities[path].kind == "topic":
            assert int(kept.tallies[path][1]) <= kept.entities[path].version
    assert set(kept.rules) <= set(kept.entities), "rules of a subscription that is gone"


def judged_by(kept: Kept, topic: str = "topic") -> State:
    """Return the routing state of a topic, from the registry's contents."""
    return frozenset(
        (
            record.incarnation,
            bool(record.properties.get(JUDGING_PROPERTY)),
            frozenset(text.split(b" ", 4)[4].decode() for text in kept.rules.get(path, {}).values()),
        )
        for path, record in kept.entities.items()
        if record.parent is not None and record.parent.lower() == topic and record.state == "active"
    )


def routes_say(routes: Routes) -> State:
    """Return the routing state of a topic, from routes that a client has read."""
    for routed in routes.subscriptions:
        assert [rule.name.lower() for rule in routed.rules] == sorted(rule.name.lower() for rule in routed.rules)
    names = [routed.record.name.lower() for routed in routes.subscriptions]
    assert names == sorted(names)
    return frozenset(
        (
            routed.record.incarnation,
            bool(routed.record.properties.get(JUDGING_PROPERTY)),
            frozenset(map(encode_rule, routed.rules)),
        )
        for routed in routes.subscriptions
    )


def require_whole(kept: Kept, partitions: int) -> None:
    """Check that every entity in the registry has all its partitions, active and up to date, and no others."""
    assert set(kept.versions) == {record.id for record in kept.entities.values()}
    for path, record in kept.entities.items():
        assert record.state == "active"
        assert kept.versions[record.id] == [record.version] * (partitions if record.partitioned else 1)
        if record.kind == "topic":
            assert int(kept.tallies[path][1]) == record.version
        if record.parent is not None:
            assert record.store == kept.entities[record.parent.lower()].id
    ids = {record.id for record in kept.entities.values()}
    assert {key.split(":")[1] for key in kept.keys if _kind(key) is None} == ids
