"""The steps that make a namespace as a file declares it. Pure.

The planner gets the declared entities and the existing ones. It refuses a plan that cannot be carried out as a whole.
Otherwise it orders the steps so that each of them is legal when its turn comes: an entity is created after those that
it names, a destination of forwarding is set when no circle arises with the destinations of that moment, and what is not
declared is deleted last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import yaml

from sbredis._counting import counted
from sbredis._nearest import nearest_name
from sbredis.engine import USUAL_PARTITIONS, PartitionSettings, name_key
from sbredis.model import entity_created
from sbredis.operating._declared import DeclaredEntity, Mistake, MistakesError
from sbredis.operating._kinds import (
    KINDS,
    QUEUE,
    RULE,
    SUBSCRIPTION,
    TOPIC,
    EntityKind,
    Existing,
    Key,
    Names,
    key_of,
    path_of,
)
from sbredis.operating._properties import same_value, written
from sbredis.registry import DESTINATIONS, Hop, judge_destination, require_properties, split_path

__all__ = [
    "ChangePlan",
    "PlanStep",
    "PropertyChange",
    "Spared",
    "make_plan",
    "plan_json",
    "plan_lines",
    "plan_summary",
    "undeclared",
]

_NEIGHBOUR, _PARTITIONED, _PARTITIONS = "colocate_with", "enable_partitioning", "partition_count"
_RELATED = (*DESTINATIONS, _NEIGHBOUR, _PARTITIONS, _PARTITIONED, "requires_session")
"""The properties that must fit each other."""
_SIGNS = {"create": "+", "update": "~", "delete": "-"}


class PropertyChange(NamedTuple):
    """A new value of a property. For a new entity, ``before`` is the default."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One call of the administration client."""

    action: Literal["create", "update", "delete"]
    kind: EntityKind
    names: Names
    changes: tuple[PropertyChange, ...] = ()
    rules: tuple[DeclaredEntity, ...] | None = None
    """The rules with which a subscription is created; ``None`` for the rule that matches all messages."""

    @property
    def path(self) -> str:
        """The path of the entity."""
        return path_of(self.names)

    @property
    def values(self) -> dict[str, Any]:
        """The new values of the properties."""
        return {change.name: change.after for change in self.changes}


class Spared(NamedTuple):
    """An entity that is not declared and not deleted either, and why."""

    kind: EntityKind
    names: Names
    reason: str


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The steps, in their order."""

    steps: tuple[PlanStep, ...] = ()
    spared: tuple[Spared, ...] = ()


def undeclared(declared: Sequence[DeclaredEntity], existing: Iterable[Existing]) -> list[Existing]:
    """Return the existing entities that are not declared, in the order of deletion.

    The content of such an entity is left out. The rules of a subscription count only if the file has its rules.
    """
    wanted = {each.key: each for each in declared}
    found: list[Existing] = []
    for each in existing:
        parent = wanted.get((("", "topic", "subscription")[len(each.names) - 1], key_of(each.names[:-1])))
        if each.key in wanted or (each.kind.parents and parent is None):
            continue
        if each.kind is not RULE or (parent is not None and parent.with_rules):
            found.append(each)
    return sorted(found, key=lambda each: (-KINDS.index(each.kind), each.key))


def make_plan(
    file: str,
    declared: Sequence[DeclaredEntity],
    existing: Iterable[Existing],
    *,
    prune: bool = False,
    prune_nonempty: bool = False,
    held: Mapping[Key, int | None] | None = None,
    slots: int | None = None,
) -> ChangePlan:
    """Return the plan. Raises :class:`~sbredis.operating.MistakesError` if it would not be legal as a whole.

    ``slots`` is the number of slots of the namespace, if it is known.

    With ``prune``, entities that are not declared are deleted; ``held`` has the number of messages of each, or ``None``
    if it is not known. Those that have or may have messages are spared, unless ``prune_nonempty`` is set. Those that
    are protected are spared too, and so are those to which a spared one forwards.
    """
    planner = _Planner(declared, {each.key: each for each in existing}, slots)
    if prune:
        planner.prune(held or {}, prune_nonempty=prune_nonempty)
    planner.check()
    if planner.mistakes:
        raise MistakesError(file, planner.mistakes)
    planner.create()
    planner.update()
    return ChangePlan((*planner.steps, *planner.deletions), tuple(planner.spared))


@dataclass
class _Planner:
    declared: Sequence[DeclaredEntity]
    existing: Mapping[Key, Existing]
    slots: int | None
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    steps: list[PlanStep] = field(default_factory=list[PlanStep])
    deletions: list[PlanStep] = field(default_factory=list[PlanStep])
    spared: list[Spared] = field(default_factory=list[Spared])

    def __post_init__(self) -> None:
        self._gone: set[Key] = set()
        self._now = {key: dict(each.properties) for key, each in self.existing.items()}
        """The properties of all entities after the steps that were planned."""
        self._graph = _Graph()
        for each in self.existing.values():
            self._graph.set(each.names, each.properties)

    # -- deleting ------------------------------------------------------------------------------------------------------

    def prune(self, held: Mapping[Key, int | None], *, prune_nonempty: bool) -> None:
        doomed: dict[Key, Existing] = {}
        for each in undeclared(self.declared, self.existing.values()):
            reason = self._reason_to_keep(each, held.get(each.key, 0), prune_nonempty=prune_nonempty)
            if reason is None:
                doomed[each.key] = each
            else:
                self.spared.append(Spared(each.kind, each.names, reason))
        while (needed := self._needed(doomed)) is not None:
            each, reason = needed
            del doomed[each.key]
            self.spared.append(Spared(each.kind, each.names, reason))
        for each in doomed.values():
            self._gone.update(self._inside(each))
            self.deletions.append(PlanStep("delete", each.kind, each.names))

    def _inside(self, each: Existing) -> list[Key]:
        """Return the keys of an entity and of all that is deleted with it."""
        return [key for key in self.existing if key[1][: len(each.names)] == each.key[1]]

    def _reason_to_keep(self, each: Existing, messages: int | None, *, prune_nonempty: bool) -> str | None:
        inside = (self.existing[key] for key in self._inside(each))
        guarded = next((other for other in inside if other.properties.get("protected")), None)
        if each.kind is not RULE and guarded is not None:
            return f"{'it' if guarded is each else f'{guarded.kind.word} {path_of(guarded.names)}'} is protected"
        if messages is None and not prune_nonempty:
            return "some of its partitions do not answer, so it may have messages"
        if messages and not prune_nonempty:
            return f"it has {messages:,} message{'' if messages == 1 else 's'}"
        return None

    def _needed(self, doomed: Mapping[Key, Existing]) -> tuple[Existing, str] | None:
        """Return an entity to which one that is spared forwards, and this as the reason to spare it too."""
        gone = {key for each in doomed.values() for key in self._inside(each)}
        declared = {each.key for each in self.declared}
        for each in self.existing.values():
            if each.key in gone or each.key in declared:
                continue  # if a declared one forwards to it, the plan is not legal
            for name, what in zip(DESTINATIONS, ("messages", "dead letters"), strict=True):
                for key in _destination_keys(each.properties.get(name)):
                    if key in doomed:
                        return doomed[key], f"{each.kind.word} {path_of(each.names)} forwards {what} to it"
        return None

    # -- checking ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Note what is not legal in the namespace as it will be."""
        final = _Graph()
        for key, left in self.existing.items():
            if key not in self._gone:
                final.set(left.names, left.properties)
        for each in self.declared:
            final.set(each.names, self._after(each))
        for each in self.declared:
            self._check_kind(each)
            if each.kind is not RULE:
                self._check_properties(each)
                self._check_others(each)
                self._check_chains(each, final)

    def _after(self, each: DeclaredEntity) -> dict[str, Any]:
        before = self.existing.get(each.key)
        return {**({} if before is None else before.properties), **each.properties}

    def _wrong(self, each: DeclaredEntity, name: str, text: str) -> None:
        self.mistakes.append(Mistake(each.line_of(name), f"{each.kind.word} {each.path}: {text}"))

    def _check_kind(self, each: DeclaredEntity) -> None:
        other = {QUEUE: TOPIC, TOPIC: QUEUE}.get(each.kind)
        if other is None or (other.word, each.key[1]) not in self.existing:
            return
        if (other.word, each.key[1]) in self._gone:
            text = f"there is a {other.word} of this name; delete it in a step of its own first"
        else:
            text = f"there is a {other.word} of this name"
        self._wrong(each, "", text)

    def _check_properties(self, each: DeclaredEntity) -> None:
        before, fields = self.existing.get(each.key), each.kind.properties.fields()
        for name, value in each.properties.items():
            if before is not None and fields[name].fixed and not fields[name].same(before.properties[name], value):
                now = before.properties[name]
                self._wrong(each, name, f"{name} cannot be changed: it is {written(now)}, and not {written(value)}")
        count = each.properties.get(_PARTITIONS)
        if before is None and self.slots is not None and count is not None and count > self.slots:
            have = f"the namespace has {counted(self.slots, 'slot')}, and each partition needs a slot of its own"
            self._wrong(each, _PARTITIONS, f"{_PARTITIONS}: {count} partitions are too many: {have}")
        related = {name: value for name, value in self._after(each).items() if name in _RELATED}
        try:
            kept = entity_created(each.kind.properties, {**each.properties, **related}, PartitionSettings())
            require_properties(kept.properties)
        except ValueError as error:
            name = next((name for name in _RELATED if name in each.properties and name in str(error)), "")
            self._wrong(each, name, str(error))

    def _check_others(self, each: DeclaredEntity) -> None:
        """Note destinations and neighbours that will not exist, also a destination that the file does not name."""
        there = {key for key in (*self.existing, *(other.key for other in self.declared)) if key not in self._gone}
        after = self._after(each)
        for name in (*DESTINATIONS, _NEIGHBOUR):
            value = after.get(name)
            keys = _destination_keys(value)
            is_gone, is_declared = any(key in self._gone for key in keys), name in each.properties
            if value is None or not (is_declared or (is_gone and name in DESTINATIONS)):
                continue
            if not any(key in there for key in keys):
                gone = " that is left" if is_gone else ""
                near = nearest_name(value, self._destinations(there - {each.key}))
                hint = f". Did you mean {near!r}?" if near else ""
                self._wrong(each, name, f"{name}: there is no queue or topic {value!r}{gone}{hint}")
            elif name == _NEIGHBOUR and each.key not in self.existing:
                self._check_neighbour(each, value)

    def _destinations(self, keys: AbstractSet[Key]) -> list[str]:
        """Return the names of the queues and topics with these keys."""
        found: list[Existing | DeclaredEntity] = [*self.existing.values(), *self.declared]
        return [path_of(each.names) for each in found if each.kind in (QUEUE, TOPIC) and each.key in keys]

    def _check_neighbour(self, each: DeclaredEntity, value: str) -> None:
        """Note a neighbour that has other partitions, and neighbours that name each other."""
        by_name = {other.key[1][0]: other for other in self.declared if other.kind in (QUEUE, TOPIC)}
        seen, at = [each.key[1][0]], name_key(value)
        while at in by_name and at not in seen:
            seen.append(at)
            at = name_key(by_name[at].properties.get(_NEIGHBOUR) or "")
        if at in seen:
            self._wrong(each, _NEIGHBOUR, f"{_NEIGHBOUR}: these entities name each other: {' > '.join([*seen, at])}")
            return
        kinds = (kind.word for kind in (QUEUE, TOPIC))
        known = next((found for kind in kinds if (found := self.existing.get((kind, (name_key(value),))))), None)
        wanted = by_name.get(name_key(value))
        if known is None and wanted is None:
            return
        after = {**(known.properties if known else {}), **(wanted.properties if wanted else {})}
        count, own = after.get(_PARTITIONS), each.properties.get(_PARTITIONS)
        if known is None and count is None and after.get(_NEIGHBOUR) is None and self.slots is not None:
            count = min(USUAL_PARTITIONS, self.slots)
        if bool(after.get(_PARTITIONED)) != bool(each.properties.get(_PARTITIONED)):
            is_ = "is" if after.get(_PARTITIONED) else "is not"
            text = f"{value!r} {is_} partitioned; either both are partitioned, or neither is"
            self._wrong(each, _NEIGHBOUR, f"{_NEIGHBOUR}: {text}")
        elif count is not None and own is not None and count != own:
            self._wrong(each, _NEIGHBOUR, f"{_NEIGHBOUR}: {value!r} has {counted(count, 'partition')}, and not {own}")

    def _check_chains(self, each: DeclaredEntity, final: _Graph) -> None:
        for name in DESTINATIONS:
            value = each.properties.get(name)
            if value is not None:
                text = final.judge(each.path, name, value)
                if text is not None:
                    self._wrong(each, name, text)

    # -- creating and changing -----------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create what is missing. A destination that cannot be set yet is set by :meth:`update`."""
        waiting = [each for kind in KINDS for each in self.declared if each.kind is kind and each.key not in self._now]
        with_new = {each.key for each in waiting if each.kind is SUBSCRIPTION}
        rules = [each for each in waiting if each.kind is RULE]
        waiting = [each for each in waiting if each.kind is not RULE]
        while waiting:
            each = next((each for each in waiting if self._has_neighbour(each) and self._has_destinations(each)), None)
            each = each or next(each for each in waiting if self._has_neighbour(each))
            waiting.remove(each)
            inside = tuple(rule for rule in rules if rule.key[1][:-1] == each.key[1])
            values = {name: value for name, value in each.properties.items() if self._can_be_set(each, name, value)}
            self._step("create", each, values, inside if each.with_rules else None)
        for rule in rules:
            if ("subscription", rule.key[1][:-1]) not in with_new:
                self._step("create", rule, rule.properties)

    def _has_neighbour(self, each: DeclaredEntity) -> bool:
        value = each.properties.get(_NEIGHBOUR)
        return value is None or self._exists(value)

    def _has_destinations(self, each: DeclaredEntity) -> bool:
        return all(self._can_be_set(each, name, each.properties.get(name)) for name in DESTINATIONS)

    def _can_be_set(self, each: DeclaredEntity, name: str, value: Any) -> bool:
        """Return whether a property can be set now. Only destinations may have to wait."""
        if name not in DESTINATIONS or value is None:
            return True
        return self._exists(value) and self._graph.judge(each.path, name, value) is None

    def _exists(self, name: str) -> bool:
        return any(key in self._now for key in _destination_keys(name))

    def update(self) -> None:
        """Change what differs. A destination that would make a circle now waits until others have changed."""
        waiting = [each for kind in KINDS for each in self.declared if each.kind is kind and self._left(each)]
        while waiting:
            each = next((each for each in waiting if self._can_change(each)), None)
            if each is not None:
                self._step("update", each, self._left(each))
                waiting.remove(each)
                continue
            each = next(each for each in waiting if any(self._graph.of(each.path, name) for name in DESTINATIONS))
            self._step("update", each, {name: None for name in DESTINATIONS if self._graph.of(each.path, name)})

    def _can_change(self, each: DeclaredEntity) -> bool:
        return all(self._can_be_set(each, name, value) for name, value in self._left(each).items())

    def _left(self, each: DeclaredEntity) -> dict[str, Any]:
        """Return the properties that differ from those of the entity after the steps that were planned."""
        fields, now = each.kind.properties.fields(), self._now[each.key]
        return {
            name: value for name, value in each.properties.items() if not same_value(fields[name], now[name], value)
        }

    def _step(
        self,
        action: Literal["create", "update"],
        each: DeclaredEntity,
        values: Mapping[str, Any],
        rules: tuple[DeclaredEntity, ...] | None = None,
    ) -> None:
        for new in (each, *(rules or ())):
            self._now.setdefault(new.key, {name: of.default for name, of in new.kind.properties.fields().items()})
        changes = tuple(PropertyChange(name, self._now[each.key][name], value) for name, value in values.items())
        self.steps.append(PlanStep(action, each.kind, each.names, changes, rules))
        self._now[each.key].update(values)
        for rule in rules or ():
            self._now[rule.key].update(rule.properties)
        self._graph.set(each.names, values)


def _destination_keys(name: str | None) -> list[Key]:
    """Return the keys that the queue or topic of this name can have."""
    return [] if name is None else [(kind.word, (name_key(name),)) for kind in (QUEUE, TOPIC)]


class _Graph:
    """The destinations of forwarding in a namespace."""

    def __init__(self) -> None:
        self._hops: dict[str, dict[str, dict[str, Hop]]] = {}

    def set(self, names: Names, properties: Mapping[str, Any]) -> None:
        """Set the destinations of an entity that are among these properties."""
        hops = self._hops.setdefault(name_key(names[0]), {}).setdefault(name_key(path_of(names)), {})
        for name in DESTINATIONS:
            if name in properties:
                hops.pop(name, None)
                if properties[name] is not None:
                    hops[name] = Hop(path_of(names), name == DESTINATIONS[1], properties[name])

    def of(self, path: str, name: str) -> Hop | None:
        """Return the hop of an entity in a property."""
        return self._hops.get(name_key(split_path(path)[0]), {}).get(name_key(path), {}).get(name)

    def judge(self, path: str, name: str, destination: str) -> str | None:
        """Return why an entity must not have this destination, or ``None`` if it may."""
        judging = judge_destination(path, name, destination)
        try:
            with suppress(StopIteration):
                key = next(judging)
                while True:
                    found = self._hops.get(key, {}).values()
                    key = judging.send([hop for hops in found for hop in hops.values()])
        except ValueError as error:
            return str(error)
        return None


# -- the text of a plan ------------------------------------------------------------------------------------------------


def plan_lines(plan: ChangePlan) -> Iterator[str]:
    """Return the lines of a plan: each step with its changes, and what is spared."""
    for step in plan.steps:
        yield f"{_SIGNS[step.action]} {step.kind.word} {step.path}"
        for change in step.changes:
            before = "" if step.action == "create" else f"{_change_text(change.before)} -> "
            yield f"    {change.name}: {before}{_change_text(change.after)}"
        for rule in step.rules or ():
            values = "; ".join(f"{name}: {_change_text(value)}" for name, value in rule.properties.items())
            yield f"    rule {rule.names[-1]}" + (f" ({values})" if values else "")
    for spared in plan.spared:
        yield f"! {spared.kind.word} {path_of(spared.names)} is kept: {spared.reason}"
    yield plan_summary(plan)


def plan_summary(plan: ChangePlan) -> str:
    """Return one line with the number of steps."""
    if not plan.steps:
        return "no changes"
    counts = [(sum(step.action == action for step in plan.steps), action) for action in _SIGNS]
    return f"{counted(len(plan.steps), 'change')}: " + ", ".join(f"{count} to {action}" for count, action in counts)


def plan_json(plan: ChangePlan) -> dict[str, Any]:
    """Return a plan for programs."""
    spared = [{"kind": each.kind.word, "name": path_of(each.names), "reason": each.reason} for each in plan.spared]
    return {"changes": [_step_json(step) for step in plan.steps], "kept": spared}


def _step_json(step: PlanStep) -> dict[str, Any]:
    found: dict[str, Any] = {"action": step.action, "kind": step.kind.word, "name": step.path}
    if step.action != "delete":
        found["properties"] = {
            change.name: {"before": written(change.before), "after": written(change.after)} for change in step.changes
        }
    if step.rules is not None:
        found["rules"] = {rule.names[-1]: _rule_json(rule) for rule in step.rules}
    return found


def _rule_json(rule: DeclaredEntity) -> dict[str, Any]:
    return {name: written(value) for name, value in rule.properties.items()}


def _change_text(value: object) -> str:
    plain = written(value)
    if plain is None or plain == []:
        return "nothing"
    if isinstance(plain, dict | list):
        return yaml.safe_dump(
            plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=sys.maxsize
        ).rstrip("\n")
    return {True: "true", False: "false"}[plain] if isinstance(plain, bool) else str(plain)
