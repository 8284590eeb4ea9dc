"""Conversion of rules to JSON values and back, without loss.

Text, truth values and null are written unchanged. Every other value has a tag: ``{"int": "7"}``. Whole numbers are
written as text, because not every JSON reader keeps 64 bits.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, cast
from uuid import UUID

from sbredis.rules._checks import check_action, check_filter
from sbredis.rules._rules import (
    CORRELATED,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from sbredis.rules._values import Constant, Value, storable

__all__ = ["rule_from_json", "rule_to_json"]

_MICROSECOND = timedelta(microseconds=1)


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON values. Raises the errors of :func:`check_filter` if the rule cannot be used."""
    name = cast("object", rule.name)
    if not isinstance(name, str):
        raise TypeError(f"the name of a rule must be str, not {type(name).__name__}")
    check_filter(rule.filter)
    written: dict[str, Any] = {"name": name, "filter": _filter(rule.filter)}
    if rule.action is not None:
        check_action(rule.action)
        written["action"] = _sql(rule.action)
    return written


def rule_from_json(mapping: Mapping[str, Any]) -> Rule:
    """Return the rule that :func:`rule_to_json` wrote. Raises :class:`ValueError` for anything else.

    The text of a filter is not parsed here, so a release can list rules that another release has stored.
    """
    fields = _fields(mapping, "a rule", {"name", "filter"}, {"action"})
    action = None
    if "action" in fields:
        read = _fields(fields["action"], "an action", {"text"}, {"parameters"})
        action = SqlAction(_str(read["text"], "text"), _read_values(read.get("parameters", {})))
    return Rule(_str(fields["name"], "name"), _read_filter(fields["filter"]), action)


# -- writing -----------------------------------------------------------------------------------------------------------


def _filter(given: Filter) -> dict[str, Any]:
    if isinstance(given, SqlFilter):
        return {"kind": "sql", **_sql(given)}
    if isinstance(given, CorrelationFilter):
        written: dict[str, Any] = {"kind": "correlation"}
        written |= {name: value for name in CORRELATED if (value := getattr(given, name)) is not None}
        if given.properties:
            written["properties"] = {name: _value(value) for name, value in given.properties.items()}
        return written
    return {"kind": "true" if isinstance(given, TrueFilter) else "false"}


def _sql(given: SqlFilter | SqlAction) -> dict[str, Any]:
    written: dict[str, Any] = {"text": given.text}
    if given.parameters:
        written["parameters"] = {name: _value(value) for name, value in given.parameters.items()}
    return written


def _value(value: Constant) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return {"int": str(int(value))}
        case Decimal():
            return {"decimal": str(value)}
        case float():
            return {"float": repr(float(value))}
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case datetime():
            return {"time": value.astimezone(UTC).isoformat()}
        case timedelta():
            return {"span": str(value // _MICROSECOND)}
        case UUID():
            return {"uuid": str(value)}
        case _:
            raise TypeError(f"a rule cannot hold a value of type {type(value).__name__}")


# -- reading -----------------------------------------------------------------------------------------------------------


def _fields(mapping: object, what: str, needed: set[str], possible: set[str]) -> Mapping[str, Any]:
    if not isinstance(mapping, Mapping):
        raise ValueError(f"{what} must be an object, not {type(mapping).__name__}")  # noqa: TRY004 -- bad data
    names = set(cast("Mapping[str, Any]", mapping))
    if not needed <= names <= needed | possible:
        raise ValueError(f"{what} has the fields {sorted(map(str, names))}, which this release does not know")
    return cast("Mapping[str, Any]", mapping)


def _str(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the {what} of a rule must be text, not {type(value).__name__}")  # noqa: TRY004 -- bad data
    return value


def _read_filter(given: object) -> Filter:
    mapping = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else dict[str, Any]()
    kind = mapping.get("kind")
    if kind == "true":
        _fields(mapping, "a filter", {"kind"}, set())
        return TrueFilter()
    if kind == "false":
        _fields(mapping, "a filter", {"kind"}, set())
        return FalseFilter()
    if kind == "sql":
        fields = _fields(mapping, "a filter", {"kind", "text"}, {"parameters"})
        return SqlFilter(_str(fields["text"], "text"), _read_values(fields.get("parameters", {})))
    if kind == "correlation":
        fields = _fields(mapping, "a filter", {"kind"}, {*CORRELATED, "properties"})
        texts = {name: _str(fields[name], name) for name in CORRELATED if name in fields}
        properties = cast("dict[str, Value]", _read_values(fields.get("properties", {})))
        return CorrelationFilter(**texts, properties=properties)
    raise ValueError(f"the filter has the kind {kind!r}, which this release does not know")


def _read_values(mapping: object) -> dict[str, Constant]:
    if not isinstance(mapping, Mapping):
        raise ValueError(f"values must be an object, not {type(mapping).__name__}")  # noqa: TRY004 -- bad data
    values = cast("Mapping[object, object]", mapping)
    return {_str(name, "name of a value"): _read_value(value) for name, value in values.items()}


def _read_value(value: object) -> Constant:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping) and len(cast("Mapping[object, object]", value)) == 1:
        ((tag, text),) = cast("Mapping[object, object]", value).items()
        reader = _READERS.get(tag) if isinstance(tag, str) else None
        if reader is not None and isinstance(text, str):
            try:
                return reader(text)
            except (ValueError, OverflowError, binascii.Error) as error:
                raise ValueError(f"a value cannot be read: {tag} {text!r}") from error
    raise ValueError(f"a value has a form that this release does not know: {value!r}")


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _read_decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a decimal") from None
    if not value.is_finite() or not storable(value):
        raise ValueError("not a finite decimal of 128 bits")
    return value


def _read_time(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.utcoffset() is None:
        raise ValueError("no time zone")
    return value


_READERS: dict[str, Callable[[str], Constant]] = {
    "int": int,
    "float": _read_float,
    "decimal": _read_decimal,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "time": _read_time,
    "span": lambda text: int(text) * _MICROSECOND,
    "uuid": UUID,
}
