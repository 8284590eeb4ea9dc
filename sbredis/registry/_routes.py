"""Reads the rules of a topic's subscriptions in pages. All returned rules were valid at the same moment.

Every page contains the version that the topic had when the page was read. If all pages have the same version, nothing
has changed while they were read (``_steps.py`` says why). Otherwise the pages are read again, except for rules that
have been read and have not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

from sbredis import rules
from sbredis.engine import name_key
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError
from sbredis.registry._entity import EntityRecord
from sbredis.registry._pages import SubscriptionPages
from sbredis.registry._registry import JudgedRecord
from sbredis.registry._rulebook import Rulebook
from sbredis.registry._rules import KeptRule, rule_name_at
from sbredis.registry._steps import TOPIC, Steps
from sbredis.registry._unreadable import Unreadable

if TYPE_CHECKING:
    from sbredis.rules import Rule

__all__ = ["RoutedSubscription", "Routes", "read_routes"]

_Known: TypeAlias = "dict[tuple[str, str], tuple[Rule, ...]]"
_Broken = dict[tuple[str, str], str]
"""The ends of the marks of subscriptions with rules that cannot be read."""


class RoutedSubscription(NamedTuple):
    """A subscription and the rules that choose its messages."""

    record: EntityRecord
    rules: tuple[Rule, ...]
    """The rules, in the order of their names in lower case."""
    edition: str = ""
    """A text that is different after each change of the rules. It has a blank if some rules cannot be read."""

    @property
    def is_whole(self) -> bool:
        """Whether all rules can be read. Otherwise they may be repaired without a change of the topic's version."""
        return " " not in self.edition


class Routes(NamedTuple):
    """The subscriptions and rules by which a topic's messages are judged, at one version of the topic."""

    topic: EntityRecord
    subscriptions: tuple[RoutedSubscription, ...]
    """The active subscriptions, in the order of their names in lower case."""

    @property
    def has_unreadable_rules(self) -> bool:
        """Whether a rule could not be read, so that its filter fails on every message."""
        return not all(routed.is_whole for routed in self.subscriptions)


async def read_routes(steps: Steps, rulebook: Rulebook, topic: str, known: Routes | None, until: float) -> Routes:
    """Read the routes of a topic as they were at one moment after the call began."""
    rules: _Known = {}
    broken: _Broken = {}
    for routed in known.subscriptions if known is not None else ():
        if routed.is_whole:
            rules[routed.record.incarnation, routed.edition] = routed.rules
    while True:
        record = await steps.existing(topic, until, TOPIC)
        reader = _RoutesReader(steps, rulebook, record, (rules, broken), until)
        try:
            return Routes(record, await reader.subscriptions())
        except (_TornError, MessagingEntityNotFoundError):
            # the topic has changed: read it again. If the topic was deleted, the next attempt raises the error
            continue


class _TornError(Exception):
    """The topic has changed since the reading began."""


class _RoutesReader:
    """One attempt to read the routes. If it fails, the rules that it has read stay in ``known``."""

    def __init__(
        self, steps: Steps, rulebook: Rulebook, topic: EntityRecord, known: tuple[_Known, _Broken], until: float
    ) -> None:
        self._steps = steps
        self._rulebook = rulebook
        self._topic = topic
        self._edition = f"{topic.incarnation} {topic.version}"
        self._known, self._broken = known
        self._until = until

    async def subscriptions(self) -> tuple[RoutedSubscription, ...]:
        """Read the active subscriptions with their rules."""
        active = await self._active()
        for stretch in _unknown(active, self._known):
            await self._read(stretch)
        return tuple(
            RoutedSubscription(each.record, self._known[_key(each)], each.edition + self._broken.get(_key(each), ""))
            for each in active
        )

    async def _active(self) -> list[JudgedRecord]:
        found: list[JudgedRecord] = []
        pages = SubscriptionPages(self._steps, self._topic.path, self._until)
        while pages.more:
            page = await pages.next()
            self._require_untorn(page.topic)
            for each, edition in page.unreadable:
                if edition:  # otherwise it is being deleted, and gets no messages any more
                    raise _unsendable(self._topic.path, each)
            found += page.subscriptions
        return [each for each in found if each.record.state in ("active", "removing")]

    async def _read(self, stretch: Sequence[JudgedRecord]) -> None:
        """Read the rules of adjacent subscriptions."""
        by_path: dict[str, list[Rule]] = {name_key(each.record.path): [] for each in stretch}
        broken: dict[str, bytes] = {}
        left = list(stretch)
        after: str | None = None
        while left:
            first, last = stretch[0].record.path, stretch[-1].record.path
            request = self._rulebook.between(self._topic.path, first, last, after)
            page = await self._steps.ask(request, self._until, self._topic.path)
            self._require_untorn(page.topic)
            for path, kept in page.rules:
                if path in by_path:  # rules of subscriptions that are not active are skipped
                    by_path[path].append(_judged(kept))
                    if isinstance(kept, Unreadable):
                        broken[path] = broken.get(path, b"") + kept.path.encode() + kept.text
            after = page.last
            until = None if after is None else after.partition(" ")[0]
            while left and (until is None or name_key(left[0].record.path) < until):
                done = left.pop(0)
                path = name_key(done.record.path)
                self._known[_key(done)] = tuple(by_path[path])
                if path in broken:
                    self._broken[_key(done)] = f" {crc32(broken[path]):x}"

    def _require_untorn(self, edition: str) -> None:
        if edition != self._edition:
            raise _TornError


def _judged(kept: KeptRule | Unreadable) -> Rule:
    """Return a rule by which messages are judged. The filter of a rule that cannot be read fails on every message."""
    if isinstance(kept, Unreadable):
        return rules.Rule(rule_name_at(kept.path), rules.UnreadableFilter(kept.error.message))
    return kept.rule


def _unsendable(topic: str, subscription: Unreadable) -> DataLayoutError:
    """Return the error that no message can be sent to a topic, because a subscription would not get its copy."""
    error = subscription.error.twin()
    error.message = (
        f"No message can be sent to the topic '{topic}', because a subscription would not get its copy. {error.message}"
    )
    return error


def _key(subscription: JudgedRecord) -> tuple[str, str]:
    return subscription.record.incarnation, subscription.edition


def _unknown(subscriptions: Sequence[JudgedRecord], known: _Known) -> list[list[JudgedRecord]]:
    """Return the subscriptions whose rules are not known, in runs of adjacent ones that can be read together."""
    stretches: list[list[JudgedRecord]] = []
    joined = False
    for each in subscriptions:
        if _key(each) in known:
            joined = False
        elif joined:
            stretches[-1].append(each)
        else:
            stretches.append([each])
            joined = True
    return stretches
