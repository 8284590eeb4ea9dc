"""What a file declares: queues, topics, subscriptions and rules, with the line of each. Pure.

A file is YAML, or the JSON configuration of Azure's emulator, which is read as YAML too. It is read as a tree of nodes
that know their lines. All mistakes of a file are collected, so that its author sees them together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import yaml

from sbredis.exceptions import RuleSyntaxError
from sbredis.model import RuleProperties, rule_created
from sbredis.operating._filters import read_action, read_filter, under_mistake
from sbredis.operating._kinds import NESTED, QUEUE, RULE, SUBSCRIPTION, TOPIC, EntityKind, Key, Names, key_of, path_of
from sbredis.operating._properties import read_value

__all__ = ["LONGEST_FILE", "DeclaredEntity", "Mistake", "MistakesError", "read_declarations"]

LONGEST_FILE = 16_000_000
"""The longest file that is read, in characters. A namespace with 10,000 entities and all their defaults takes 8 MB."""
_DEEPEST = 64
"""The deepest nesting. The properties of a rule's filter are nested ten deep."""
_REPEATED = 100_000
"""The number of nodes that aliases may add to those in the file."""
_PREFIX, _STANDARD = "x-", "tag:yaml.org,2002:"
_EMULATOR = "UserConfig"


class Mistake(NamedTuple):
    """A mistake in a file."""

    line: int
    text: str


class MistakesError(ValueError):
    """A file has mistakes. Nothing was changed."""

    def __init__(self, file: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(f"{file}:{line}: {text}" for line, text in sorted(set(mistakes))))


@dataclass(frozen=True, slots=True)
class DeclaredEntity:
    """An entity in a file."""

    kind: EntityKind
    names: Names
    properties: Mapping[str, Any]
    line: int
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    """The line of each property."""
    with_rules: bool = False
    """Whether the file says which rules a subscription has."""

    @property
    def key(self) -> Key:
        """What identifies the entity."""
        return self.kind.word, key_of(self.names)

    @property
    def path(self) -> str:
        """The path of the entity in the namespace."""
        return path_of(self.names)

    def line_of(self, name: str) -> int:
        """Return the line of a property, or of the entity."""
        return self.lines.get(name, self.line)


def read_declarations(text: str, file: str, namespace: str | None = None) -> list[DeclaredEntity]:
    """Return the entities that a file declares. Raises :class:`MistakesError`.

    ``file`` is its name in errors. ``namespace`` chooses from the namespaces of a configuration of Azure's emulator.
    """
    reader = _Reader()
    if len(text) > LONGEST_FILE:
        raise MistakesError(file, [Mistake(1, f"the file is too long: it may have {LONGEST_FILE:,} characters")])
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            reader.wrong(1, "the file is empty")
        elif (excess := _excess(root)) is not None:
            reader.wrong(1, excess)
        else:
            reader.read(root, loader, namespace)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reader.wrong(1 if mark is None else mark.line + 1, f"this is not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        reader.wrong(1, f"this is not YAML: {' '.join(str(error).split())}")
    except RecursionError:
        reader.wrong(1, _TOO_DEEP)
    if reader.mistakes:
        raise MistakesError(file, reader.mistakes)
    return reader.found


_TOO_DEEP = f"the file is nested too deeply: {_DEEPEST} levels are read"


def _excess(root: yaml.Node) -> str | None:
    """Return why a file is not read although it is YAML: its aliases repeat too much, or it is nested too deeply.

    Some hundred bytes can have aliases of aliases that stand for billions of nodes.
    """
    known: dict[yaml.Node, tuple[int, int] | None] = {}
    """The number of nodes in each node without aliases, and its height; ``None`` while it is being looked at."""

    def look(node: yaml.Node, depth: int) -> tuple[int, int]:
        if node in known:
            found = known[node]
            if found is None:
                raise ValueError("the file contains itself by an alias")
        elif depth > _DEEPEST:
            raise ValueError(_TOO_DEEP)
        else:
            known[node] = None
            inner = [look(each, depth + 1) for each in _inner(node)]
            found = known[node] = (
                1 + sum(size for size, _ in inner),
                1 + max((height for _, height in inner), default=0),
            )
        if depth + found[1] > _DEEPEST + 1:
            raise ValueError(_TOO_DEEP)
        return found

    try:
        size, _ = look(root, 1)
    except ValueError as error:
        return str(error)
    return None if size <= len(known) + _REPEATED else f"the aliases of the file stand for {size:,} values, too many"


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _YamlPair(NamedTuple):
    """A key of a mapping, and its value."""

    name: str
    line: int
    value: yaml.Node


class _Reader:
    """Reads nodes, and collects what they declare and the mistakes."""

    def __init__(self) -> None:
        self.found: list[DeclaredEntity] = []
        self.mistakes: list[Mistake] = []
        self._lines: dict[Key, int] = {}
        self._flattened: set[yaml.Node] = set()
        self._loader: yaml.SafeLoader

    def wrong(self, place: int | yaml.Node, text: str) -> None:
        """Note a mistake at a line or at a node."""
        line = place if isinstance(place, int) else place.start_mark.line + 1
        self.mistakes.append(Mistake(line, text))

    def read(self, root: yaml.Node, loader: yaml.SafeLoader, namespace: str | None) -> None:
        """Read a whole file."""
        self._loader = loader
        pairs = self._pairs(root, "the file")
        for pair in pairs:
            if pair.name == _EMULATOR:
                self._emulator(pair.value, namespace)
                return
        for pair in pairs:
            kind = next((kind for kind in (QUEUE, TOPIC) if kind.plural == pair.name), None)
            if kind is not None:
                self._entities(kind, (), pair.value)
            elif not pair.name.startswith(_PREFIX):
                self._unknown(pair, "a file", ["queues", "topics"])

    # -- our own form --------------------------------------------------------------------------------------------------

    def _entities(self, kind: EntityKind, parents: Names, node: yaml.Node) -> None:
        for pair in self._pairs(node, kind.plural):
            self._entity(kind, (*parents, pair.name), pair.line, self._pairs(pair.value, kind.word))

    def _entity(self, kind: EntityKind, names: Names, line: int, pairs: Sequence[_YamlPair]) -> None:
        nested = NESTED.get(kind)
        inside = [pair for pair in pairs if nested is not None and pair.name == nested.plural]
        own = [pair for pair in pairs if pair not in inside]
        self._declare(kind, names, line, self._properties(kind, own), own, with_rules=nested is RULE and bool(inside))
        for pair in inside:
            assert nested is not None
            self._entities(nested, names, pair.value)

    def _properties(self, kind: EntityKind, pairs: Sequence[_YamlPair]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        known = ["filter", "action"] if kind is RULE else list(kind.settable(new=True))
        for pair in pairs:
            if pair.name not in known:
                nested = [NESTED[kind].plural] if kind in NESTED else []
                self._unknown(pair, f"a {kind.word}", known + nested)
                continue
            try:
                values[pair.name] = self._value(kind, pair.name, self._plain(pair.value))
            except (ValueError, TypeError) as error:
                self.wrong(pair.value, str(error))
        return values

    def _value(self, kind: EntityKind, name: str, plain: Any) -> Any:
        if kind is RULE:
            return read_filter(plain) if name == "filter" else read_action(plain)
        return read_value(kind.properties.fields()[name], plain)

    def _declare(
        self,
        kind: EntityKind,
        names: Names,
        line: int,
        properties: Mapping[str, Any],
        pairs: Sequence[_YamlPair],
        *,
        with_rules: bool = False,
    ) -> None:
        lines = {pair.name: pair.value.start_mark.line + 1 for pair in pairs}
        declared = DeclaredEntity(kind, names, properties, line, lines, with_rules)
        try:
            kind.check(names[-1])
        except ValueError as error:
            self.wrong(line, str(error))
        place = ("queue" if kind is TOPIC else kind.word, declared.key[1])  # a queue and a topic share their names
        if place in self._lines:
            self.wrong(line, f"the {kind.word} {declared.path} is declared twice, first in line {self._lines[place]}")
        self._lines.setdefault(place, line)
        if kind is RULE:
            self._check_rule(declared)
        self.found.append(declared)

    def _check_rule(self, rule: DeclaredEntity) -> None:
        for name in rule.properties:
            try:
                rule_created(RuleProperties(rule.names[-1], **{name: rule.properties[name]}))
            except RuleSyntaxError as error:
                caret = under_mistake(error.text, error.line, error.column)
                self.wrong(rule.line_of(name), f"{name}: {error.message}\n{caret}")
            except (ValueError, TypeError) as error:
                self.wrong(rule.line_of(name), f"{name}: {error}")

    # -- the configuration of Azure's emulator -------------------------------------------------------------------------

    def _emulator(self, node: yaml.Node, namespace: str | None) -> None:
        settings = {pair.name: pair.value for pair in self._pairs(node, _EMULATOR)}
        if "Namespaces" not in settings:
            self.wrong(node, f"{_EMULATOR} has no Namespaces")
            return
        found = [self._named(each, "a namespace") for each in self._items(settings["Namespaces"], "Namespaces")]
        chosen = [each for name, _, each in found if len(found) == 1 or name.lower() == (namespace or "").lower()]
        if len(chosen) != 1:
            names = ", ".join(name for name, _, _ in found) or "none"
            self.wrong(settings["Namespaces"], f"choose one of the namespaces with --namespace: {names}")
            return
        for kind in (QUEUE, TOPIC):
            self._emulated(kind, (), chosen[0])

    def _emulated(self, kind: EntityKind, parents: Names, pairs: Mapping[str, _YamlPair]) -> None:
        plural = kind.plural.capitalize()
        listed = self._items(pairs[plural].value, plural) if plural in pairs else []
        for node in listed:
            name, line, inside = self._named(node, f"a {kind.word}")
            properties = inside.get("Properties")
            own = [] if properties is None else self._pairs(properties.value, "Properties")
            renamed = [pair._replace(name=_snake(pair.name)) for pair in own]
            values = self._emulated_rule(renamed) if kind is RULE else self._properties(kind, renamed)
            names, nested = (*parents, name), NESTED.get(kind)
            with_rules = (
                kind is SUBSCRIPTION and "Rules" in inside and bool(self._items(inside["Rules"].value, "Rules"))
            )
            self._declare(kind, names, line, values, renamed, with_rules=with_rules)
            if nested is not None:
                self._emulated(nested, names, inside)

    def _emulated_rule(self, pairs: Sequence[_YamlPair]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for pair in pairs:
            try:
                if pair.name == "filter_type":
                    continue  # the filter itself shows its type
                plain = _renamed(self._plain(pair.value))
                if pair.name == "correlation_filter":
                    values["filter"] = read_filter(plain)
                elif pair.name in {"sql_filter", "action"}:
                    sql = {"sql": plain.get("sql_expression"), "parameters": plain.get("parameters")}
                    name = "action" if pair.name == "action" else "filter"
                    values[name] = (read_action if name == "action" else read_filter)(sql)
                else:
                    self._unknown(pair, "a rule", ["filter_type", "sql_filter", "correlation_filter", "action"])
            except (ValueError, TypeError) as error:
                self.wrong(pair.value, str(error))
        return values

    def _named(self, node: yaml.Node, what: str) -> tuple[str, int, Mapping[str, _YamlPair]]:
        pairs = {pair.name: pair for pair in self._pairs(node, what)}
        named = pairs.get("Name")
        if named is None or not isinstance(named.value, yaml.ScalarNode):
            self.wrong(node, f"{what} has no Name")
            return "unnamed", node.start_mark.line + 1, pairs
        return str(named.value.value), named.line, pairs

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _pairs(self, node: yaml.Node, what: str) -> list[_YamlPair]:
        """Return the keys and values of a mapping. Nothing at all is an empty mapping."""
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_STANDARD}null":
            return []
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{what} must be a mapping of names")
            return []
        if node not in self._flattened:
            self._flattened.add(node)
            self._require_different([key for key, _ in node.value if key.tag != f"{_STANDARD}merge"])
            self._loader.flatten_mapping(node)  # what is merged comes first, so that the mapping's own values win
        pairs: dict[str, _YamlPair] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                pairs[key.value] = _YamlPair(key.value, key.start_mark.line + 1, value)
            else:
                self.wrong(key, "a name must be text")
        return list(pairs.values())

    def _require_different(self, keys: Sequence[yaml.Node]) -> None:
        seen: set[str] = set()
        for key in keys:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                self.wrong(key, f"{key.value!r} is given twice")
            seen.add(str(key.value))

    def _items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.wrong(node, f"{what} must be a list")
        return []

    def _plain(self, node: yaml.Node) -> Any:
        """Return the value of a node with the types of JSON."""
        if isinstance(node, yaml.MappingNode):
            return {pair.name: self._plain(pair.value) for pair in self._pairs(node, "this")}
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(each) for each in node.value]
        kind = node.tag.removeprefix(_STANDARD)
        if kind in {"null", "bool", "int", "float"}:
            return cast("Any", self._loader).construct_object(node)
        if kind in {"str", "timestamp"}:
            return node.value
        raise ValueError(f"{node.tag} is not a type of a value here")

    def _unknown(self, pair: _YamlPair, what: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(pair.name, known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(known)}."
        self.wrong(pair.line, f"{what} has no {pair.name!r}. {hint}")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _renamed(plain: Any) -> dict[str, Any]:
    """Return a mapping of the emulator with our names. Names of application properties stay."""
    if not isinstance(plain, dict):
        raise TypeError("this must be a mapping of names")
    return {_snake(name): value for name, value in cast("dict[str, Any]", plain).items()}
