"""Actions: statements that change only the copy of a message that their rule makes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeAlias, cast
from uuid import UUID

from sbredis._quoting import shortened
from sbredis.rules._arithmetic import EvaluationError
from sbredis.rules._checks import read_action
from sbredis.rules._compile import Compiler
from sbredis.rules._message_view import SETTABLE, MessageView, canonical
from sbredis.rules._rules import SqlAction
from sbredis.rules._syntax import Remove, Statement
from sbredis.rules._values import LARGEST, SMALLEST, Constant, Kind, Value, kind_of, on_calendar, storable

__all__ = ["RULE_NAME", "Action", "ActionResult", "compile_action"]

RULE_NAME = "RuleName"
"""The application property that contains the name of the rule that made a copy."""

_LONGEST_ID = 128
_LONGEST_NAME = 64
"""The number of characters of a name that an error shows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = timedelta(milliseconds=9_999_999_999_998)
"""The latest time at which a message can be due, as a duration since 1970."""
_IDS = {"messageid", "partitionkey", "replytosessionid", "sessionid"}
_MAY_NOT_BE_EMPTY = {"messageid", "partitionkey"}
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
    r"|(?:(?P<d>\d+)\.)?(?P<h>\d{1,2}):(?P<m>[0-5]\d):(?P<s>[0-5]\d(?:\.\d+)?)",
    re.ASCII,
)


class ActionResult(NamedTuple):
    """The result of an action on a message."""

    system: dict[str, Constant]
    user: dict[str, Value]


class _Draft(MessageView):
    """A copy of a message that is being changed. Each statement sees the changes of the statements before it."""

    __slots__ = ("changed", "properties")

    def __init__(self, original: MessageView) -> None:
        self.properties = dict(original.user)
        self.changed: dict[str, Constant] = {}
        super().__init__(original.system, self.properties)

    def set_user(self, name: str, value: Value) -> None:
        """Give a property a value. If the property exists, the spelling of its name does not change."""
        key = name.lower()
        spelled = [known for known in self.properties if known.lower() == key] if key in self.names else [name]
        self.properties[spelled[-1]] = value
        self.names = {**self.names, key: value}

    def remove_user(self, name: str) -> None:
        key = name.lower()
        if key in self.names:
            for known in [known for known in self.properties if known.lower() == key]:
                del self.properties[known]
            self.names = {known: value for known, value in self.names.items() if known != key}

    def set_system(self, name: str, value: Constant) -> None:
        self.changed[name] = value
        self.system = {**self.system, name: value}


_Step: TypeAlias = Callable[[_Draft], None]
Action: TypeAlias = Callable[[MessageView], ActionResult]


def compile_action(given: SqlAction, rule: str) -> Action:
    """Return the function that makes a rule's copies. It raises :class:`EvaluationError` if the action fails."""
    statements, parameters = read_action(given)
    compiler = Compiler(given.text, parameters)
    steps = [_step(statement, compiler) for statement in statements]

    def act(facts: MessageView) -> ActionResult:
        draft = _Draft(facts)
        draft.remove_user(RULE_NAME)
        draft.set_user(RULE_NAME, rule)
        for step in steps:
            step(draft)
        return ActionResult(draft.changed, draft.properties)

    return act


def _step(statement: Statement, compiler: Compiler) -> _Step:
    target = statement.target
    name = target.name
    system = canonical(name) if target.system else None
    if isinstance(statement, Remove):
        if system is not None:
            return lambda draft: draft.set_system(system, None)
        return lambda draft: draft.remove_user(name)
    getter = compiler.value(statement.value)
    if system is not None:
        return lambda draft: draft.set_system(system, _as_system(system, getter(draft)))
    key = name.lower()
    return lambda draft: draft.set_user(name, _as_user(name, getter(draft), draft.names.get(key)))


# -- values of the application's properties ----------------------------------------------------------------------------


def _as_user(name: str, value: Constant, before: Value) -> Value:
    """Convert a value to the type of the property's former value, if that is possible."""
    if isinstance(value, timedelta):
        shown = shortened(name, _LONGEST_NAME)
        raise EvaluationError(f"the property {shown} cannot be a duration")
    if isinstance(value, str):
        reader = _READERS.get(type(before))
        if reader is not None:
            try:
                return reader(value)
            except ValueError:
                return value
    if type(value) is int and type(before) is float:
        try:
            return float(value)
        except OverflowError:
            raise EvaluationError("the number does not fit into a floating-point number") from None
    if type(value) is int and type(before) is Decimal:
        return Decimal(value)
    if isinstance(value, datetime) and kind_of(value) is Kind.TIME:
        return _storable(value)
    return value


def _storable(time: datetime) -> datetime:
    """Return a time that can be stored; raise :class:`EvaluationError` if it is outside the years 1 to 9999 in UTC."""
    if not on_calendar(time):
        raise EvaluationError("the time is outside the years 1 to 9999 in UTC")
    return time


def _read_bool(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


def _read_time(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return _storable(value) if value.tzinfo is not None else value.replace(tzinfo=UTC)


_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")


def _read_int(text: str) -> int:
    if not _INTEGER.fullmatch(text) or not SMALLEST <= int(text) <= LARGEST:
        raise ValueError(text)
    return int(text)


def _read_float(text: str) -> float:
    if not _FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")


def _read_decimal(text: str) -> Decimal:
    if not _DECIMAL.fullmatch(text) or not storable(value := Decimal(text)):
        raise ValueError(text)
    return value


_READERS: dict[type, Callable[[str], Value]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    Decimal: _read_decimal,
    datetime: _read_time,
    UUID: UUID,
}


# -- values of system properties ---------------------------------------------------------------------------------------


def _as_system(name: str, value: Constant) -> Constant:
    """Convert a value for a system property. Raises :class:`EvaluationError` if the property cannot have it."""
    if value is None:
        return None
    if name == "timetolive":
        return _lifetime(value)
    if name == "scheduledenqueuetimeutc":
        return _due(value)
    if type(value) is int and not SMALLEST <= value <= LARGEST:
        raise EvaluationError(f"sys.{SETTABLE[name]} cannot be a number that does not fit into 64 bits")
    if isinstance(value, UUID) or type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise _unfit(name, value, "text")
    if name in _IDS and len(value) > _LONGEST_ID:
        raise EvaluationError(f"sys.{SETTABLE[name]} may have {_LONGEST_ID} characters, not {len(value):,}")
    if name in _MAY_NOT_BE_EMPTY and not value:
        raise EvaluationError(f"sys.{SETTABLE[name]} cannot be empty")
    return value


def _unfit(name: str, value: Constant, wanted: str) -> EvaluationError:
    return EvaluationError(f"sys.{SETTABLE[name]} must be {wanted}, not {kind_of(value).value}")


def _lifetime(value: Constant) -> timedelta:
    if isinstance(value, str):
        value = _duration(value)
    if not isinstance(value, timedelta):
        raise _unfit("timetolive", value, "a positive duration, such as 1.02:30:00 or P1DT2H30M")
    if value <= timedelta(0):
        raise EvaluationError("sys.TimeToLive must be longer than 0")
    return value


def _duration(text: str) -> timedelta | str:
    """Convert text such as ``1.02:30:00`` or ``P1DT2H30M`` to a duration; return other text unchanged."""
    found = _DURATION.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        return text
    part = {name: float(value) for name, value in found.groupdict(default="0").items()}
    try:
        return timedelta(
            days=part["days"] + part["d"],
            hours=part["hours"] + part["h"],
            minutes=part["minutes"] + part["m"],
            seconds=part["seconds"] + part["s"],
        )
    except OverflowError:
        raise EvaluationError("sys.TimeToLive is too long") from None


def _due(value: Constant) -> datetime:
    if isinstance(value, str):
        try:
            value = _read_time(value)
        except ValueError:
            raise EvaluationError("sys.ScheduledEnqueueTimeUtc must be a time, but this text is not one") from None
    if kind_of(value) is not Kind.TIME:
        raise _unfit("scheduledenqueuetimeutc", value, "a time")
    due = cast("datetime", value)
    if not timedelta(0) <= due - _EPOCH <= _LATEST:
        last = _EPOCH + _LATEST
        raise EvaluationError(f"sys.ScheduledEnqueueTimeUtc must be between {_EPOCH:%Y-%m-%d} and {last:%Y-%m-%d}")
    return due
