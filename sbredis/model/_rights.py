"""Authorisation rules: kept for programs that set them, without an effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, cast

from sbredis._quoting import quoted
from sbredis.model._enums import AccessRights

__all__ = ["AuthorizationRule", "read_rule", "rule_as_kept"]

_TIMES = ("created_at_utc", "modified_at_utc")


@dataclass(kw_only=True, slots=True)
class AuthorizationRule:
    """A rule by which Azure permits a client to use an entity.

    sbredis keeps and shows rules as they were given, including the keys. They have **no effect**: the users of the
    Redis or Valkey server (ACL) decide who may do what.
    """

    type: str | None = None
    claim_type: str | None = None
    claim_value: str | None = None
    rights: list[AccessRights] | None = None
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)


_NAMES = tuple(each.name for each in fields(AuthorizationRule))


def read_rule(given: object) -> AuthorizationRule:
    """Read a rule, or a mapping of the fields of a rule. Raises an error that says what is wrong with the rule."""
    if isinstance(given, AuthorizationRule):
        values: dict[str, Any] = {name: getattr(given, name) for name in _NAMES}
    elif isinstance(given, Mapping):
        values = dict(cast("Mapping[str, Any]", given))
        unknown = values.keys() - set(_NAMES)
        if unknown:
            raise TypeError(f"an AuthorizationRule has no {', '.join(sorted(map(str, unknown)))}")
    else:
        raise TypeError(f"authorization_rules must be AuthorizationRules, not {type(given).__name__}")
    return AuthorizationRule(**{name: _read(name, value) for name, value in values.items()})


def _read(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "rights":
        try:
            return [AccessRights(right) for right in value]
        except (ValueError, TypeError):
            raise ValueError(
                f"rights of an AuthorizationRule must be some of {', '.join(AccessRights)}, not {quoted(value)}"
            ) from None
    if name in _TIMES:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if not isinstance(value, datetime):
            raise TypeError(f"{name} of an AuthorizationRule must be a datetime, not {type(value).__name__}")
    elif not isinstance(value, str):
        raise TypeError(f"{name} of an AuthorizationRule must be str, not {type(value).__name__}")
    return value


def rule_as_kept(rule: AuthorizationRule) -> dict[str, Any]:
    """Return a rule for JSON, without the fields that are not set."""
    kept: dict[str, Any] = {}
    for name in _NAMES:
        value = getattr(rule, name)
        if name == "rights" and value is not None:
            value = [right.value for right in value]
        if isinstance(value, datetime):
            value = value.isoformat()
        if value is not None:
            kept[name] = value
    return kept
