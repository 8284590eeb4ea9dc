"""The text of a file that declares what exists. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import yaml

from sbredis._visible import visible
from sbredis.model import DEFAULT_RULE, TrueRuleFilter
from sbredis.operating._kinds import NESTED, QUEUE, RULE, TOPIC, EntityKind, Existing, Names
from sbredis.operating._properties import written

__all__ = ["export_text"]

_HEADING = "# Written by 'sbredis export'. 'sbredis apply' creates or updates what this file declares.\n"


def export_text(existing: Iterable[Existing], *, defaults: bool = False, as_json: bool = False) -> str:
    """Return a file that declares these entities, in YAML or in JSON.

    Values that are defaults are left out, unless ``defaults`` is set.
    """
    found = declarations(existing, defaults=defaults)
    if as_json:
        return json_text(found) + "\n"
    text = yaml.dump(found, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return _HEADING + visible(text, lines=True)  # what is not printable is in quotation marks, where escapes are read


def json_text(value: Any, indent: str = "") -> str:
    """Return a value as JSON that is also YAML 1.1 with the same meaning."""
    if isinstance(value, dict) and value:
        inner = indent + "  "
        pairs = cast("dict[str, Any]", value).items()
        lines = [f"{inner}{json_text(name)}: {json_text(each, inner)}" for name, each in pairs]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return f"[{', '.join(json_text(each, indent) for each in cast('Iterable[Any]', value))}]"
    if isinstance(value, float):
        text = json.dumps(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML reads 1e+20 as text
    # YAML refuses some characters, and reads others as ends of lines
    return "".join(each if each.isprintable() else _escaped(each) for each in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) < 0x10000 else character


class _Dumper(yaml.SafeDumper):
    """Writes text with line breaks of any kind in quotation marks: without them some are read as spaces."""


def _write_text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _write_text)


def declarations(existing: Iterable[Existing], *, defaults: bool = False) -> dict[str, Any]:
    """Return what the file declares, with the types of JSON."""
    listed = sorted(existing, key=lambda each: each.key)
    return {kind.plural: _entities(kind, (), listed, defaults=defaults) for kind in (QUEUE, TOPIC)}


def _entities(kind: EntityKind, parents: Names, existing: list[Existing], *, defaults: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in existing:
        if each.kind is not kind or each.names[:-1] != parents:
            continue
        values = _values(kind, each.properties, defaults=defaults)
        if kind in NESTED:
            inside = _entities(NESTED[kind], each.names, existing, defaults=defaults)
            if inside and (defaults or NESTED[kind] is not RULE or not _is_usual(each, existing)):
                values[NESTED[kind].plural] = inside
            elif NESTED[kind] is RULE and not inside:
                values[RULE.plural] = {}
        found[each.names[-1]] = values
    return found


def _values(kind: EntityKind, properties: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
    fields = kind.settable(new=True)
    kept = {name: properties[name] for name in fields if _can_be_declared(fields[name], properties[name])}
    return {
        name: written(value)
        for name, value in kept.items()
        if defaults or not fields[name].same(value, fields[name].default)
    }


def _can_be_declared(field: Any, value: Any) -> bool:
    """Return whether a file may have the value. A state such as ``Creating`` is only shown."""
    try:
        field.check(value)
    except (ValueError, TypeError):
        return False
    return True


def _is_usual(subscription: Existing, existing: list[Existing]) -> bool:
    """Return whether a subscription has only the rule that a new subscription has."""
    rules = [each for each in existing if each.kind is RULE and each.names[:-1] == subscription.names]
    return [each.names[-1] for each in rules] == [DEFAULT_RULE] and (
        isinstance(rules[0].properties["filter"], TrueRuleFilter) and rules[0].properties["action"] is None
    )
