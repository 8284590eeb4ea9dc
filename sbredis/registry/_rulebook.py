"""The rules of a topic's subscriptions: every operation on them as a request. See ``_registry.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis.engine import Request, name_key
from sbredis.registry._entity import EntityRecord, decode
from sbredis.registry._registry import LIMITS, LONGEST_PAGE, Registry, require_bounds
from sbredis.registry._rules import KeptRule, decode_rule, encode_rule, kind_of, place_of
from sbredis.registry._unreadable import Unreadable, read_all

if TYPE_CHECKING:
    from sbredis.rules import Rule

__all__ = ["ChangedRule", "RulePage", "Rulebook"]


class ChangedRule(NamedTuple):
    """The topic with its new version, and the time when the rule was created."""

    topic: EntityRecord
    created_at: int


class RulePage(NamedTuple):
    """A page of a topic's rules, each with the path of its subscription in lower case."""

    topic: str
    """Incarnation and version of the topic, or an empty text if it is being deleted."""
    last: str | None
    """The place of the last rule, if there may be more rules after it."""
    rules: tuple[tuple[str, KeptRule | Unreadable], ...]


class Rulebook:
    """The rules in a registry. The caller passes subscriptions as it has read them. Each change has a random stamp."""

    __slots__ = ("_registry",)

    def __init__(self, namespace: str, slots: int) -> None:
        self._registry = Registry(namespace, slots)

    def create(self, subscription: EntityRecord, rule: Rule, stamp: str) -> Request[ChangedRule]:
        """Add a rule to a subscription."""
        return self._changed("create_rule", subscription, rule, stamp)

    def update(self, subscription: EntityRecord, rule: Rule, stamp: str, seen: str = "") -> Request[ChangedRule]:
        """Replace the rule of this name. If ``seen`` is not empty, the rule must have this stamp."""
        return self._changed("update_rule", subscription, rule, stamp, seen)

    def delete(self, subscription: EntityRecord, name: str, stamp: str) -> Request[EntityRecord]:
        """Delete a rule of a subscription; the result is the topic."""
        arguments = (*self._of(subscription, stamp), place_of(subscription.path, name))
        return Request.of("delete_rule", self._registry.keys(subscription.path), arguments, decode)

    def read(self, subscription: EntityRecord, name: str) -> Request[KeptRule | None]:
        """Read the rule of this name, if it exists."""

        def read(reply: bytes | None) -> KeptRule | None:
            return None if reply is None else decode_rule(reply, place)

        place = place_of(subscription.path, name)
        return Request.of("read_rule", self._registry.keys(subscription.path), (self._registry.slots, place), read)

    def listed(self, subscription: EntityRecord, after: str, limit: int) -> Request[RulePage]:
        """List rules of a subscription after the name ``after``, in the order of their names in lower case."""
        require_bounds("a rule", after, limit)
        path = name_key(subscription.path)
        return self._page(subscription.parent or "", f"{path} {name_key(after)}", f"{path}!", limit)

    def between(self, topic: str, first: str, last: str, after: str | None = None) -> Request[RulePage]:
        """List rules of all subscriptions from the path ``first`` to the path ``last``; begin after a place, if given.

        The rules are ordered by subscription, and then by name.
        """
        # The byte "!" follows the blank, so the range ends after the last rule of the last subscription.
        return self._page(topic, after or f"{name_key(first)} ", f"{name_key(last)}!", LONGEST_PAGE)

    def _of(self, subscription: EntityRecord, stamp: str) -> tuple[str | int, ...]:
        topic = name_key(subscription.parent or "")
        return (self._registry.slots, topic, name_key(subscription.path), subscription.incarnation, stamp)

    def _changed(
        self, name: str, subscription: EntityRecord, rule: Rule, stamp: str, *more: str
    ) -> Request[ChangedRule]:
        def read(reply: list[Any]) -> ChangedRule:
            return ChangedRule(decode(reply[0]), reply[1])

        arguments = (
            *self._of(subscription, stamp),
            place_of(subscription.path, rule.name),
            kind_of(rule),
            encode_rule(rule),
            LIMITS.sql_filters,
            LIMITS.correlation_filters,
            *more,
        )
        return Request.of(name, self._registry.keys(subscription.path), arguments, read)

    def _page(self, topic: str, after: str, before: str, limit: int) -> Request[RulePage]:
        def read(reply: list[Any]) -> RulePage:
            edition, more, *rest = reply
            places = [place.decode() for place in rest[::2]]
            rules = read_all(rest, lambda place, text: decode_rule(text, place))
            pairs = tuple((place.partition(" ")[0], rule) for place, rule in zip(places, rules, strict=True))
            return RulePage(edition.decode(), places[-1] if more and places else None, pairs)

        arguments = (self._registry.slots, name_key(topic), after, before, limit)
        return Request.of("list_rules", self._registry.keys(topic), arguments, read)
