"""Judge the messages of a sender by the rules of a topic. The rules are compiled once, and updated when they change.

Compiling all rules of a topic may take a tenth of a second or more. That is too long to repeat for every change of one
rule. So changed subscriptions get a small rule book beside the large one. When the changed part has grown large, all
rules are compiled again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sbredis.registry import JUDGING_PROPERTY, EntityRecord, Routed, Routes
from sbredis.rules import Complaints, JudgedCopy, MessageView, Rule, RuleBook

__all__ = ["Judge"]

_SMALL_BOOK = 32
"""All rules are compiled again only if more subscriptions than this have changed or were deleted."""
_SMALL_PART = 4
"""That limit grows by one for every four subscriptions of the topic."""


class Judge:
    """Finds the subscriptions for a message. Each subscription has a place (an index) as long as it exists."""

    def __init__(self, routes: Routes, complaints: Complaints | None = None) -> None:
        self.routes = routes
        self._complaints = Complaints() if complaints is None else complaints
        """The logged complaints about unusable rules. They are kept so that another change does not log them again."""
        self.records: list[EntityRecord] = [routed.record for routed in routes.subscriptions]
        """The subscriptions. A subscription's place is its index in this list."""
        self._places = {routed.record.incarnation: place for place, routed in enumerate(routes.subscriptions)}
        self._large_book = _book(routes.subscriptions, self._complaints)
        self._outdated: frozenset[int] = frozenset()
        """The places for which the large book is out of date."""
        self._changed: dict[int, Routed] = {}
        self._small_book: RuleBook | None = None
        self._small_places: list[int] = []

    def after(self, routes: Routes) -> Judge:
        """Return a judge for a newer version of the same topic's routes. This judge is not changed."""
        known = {routed.record.incarnation: routed for routed in self.routes.subscriptions}
        changed = {place: routed for place, routed in self._changed.items() if routed.record.incarnation in known}
        records, places = list(self.records), dict(self._places)
        gone = known.keys() - {routed.record.incarnation for routed in routes.subscriptions}
        for routed in routes.subscriptions:
            incarnation = routed.record.incarnation
            place = places.get(incarnation)
            if place is None:
                place = places[incarnation] = len(records)
                records.append(routed.record)
                changed[place] = routed
            else:
                records[place] = routed.record
                before = known.get(incarnation)
                if before is None or _judged_by(before) != _judged_by(routed):
                    changed[place] = routed
        lost = {places[incarnation] for incarnation in gone}
        for place in lost:
            changed.pop(place, None)
        outdated = self._outdated | changed.keys() | lost
        if len(outdated) > _SMALL_BOOK + len(routes.subscriptions) // _SMALL_PART:
            return Judge(routes, self._complaints)
        next_one = Judge.__new__(Judge)
        next_one.routes, next_one.records, next_one._places = routes, records, places
        next_one._large_book, next_one._outdated, next_one._changed = self._large_book, frozenset(outdated), changed
        next_one._complaints = self._complaints
        next_one._small_book = _book([*changed.values()], self._complaints) if changed else None
        next_one._small_places = list(changed)
        return next_one

    def judge(self, facts: MessageView) -> Sequence[JudgedCopy]:
        """Return the copies of a message for the subscriptions, in the order of places."""
        copies = self._large_book.judge(facts)
        outdated = self._outdated
        if not outdated:
            return copies
        found = [copy for copy in copies if copy.subscription not in outdated]
        if self._small_book is not None:
            of = self._small_places
            beside = [copy._replace(subscription=of[copy.subscription]) for copy in self._small_book.judge(facts)]
            if beside:
                found = sorted(found + beside, key=_place)
        return found


def _place(copy: JudgedCopy) -> int:
    return copy.subscription


def _book(subscriptions: Sequence[Routed], complaints: Complaints) -> RuleBook:
    return RuleBook(
        [_rules(routed) for routed in subscriptions], [routed.record.path for routed in subscriptions], complaints
    )


def _rules(routed: Routed) -> tuple[Sequence[Rule], bool]:
    return routed.rules, _dead_letters(routed)


def _dead_letters(routed: Routed) -> bool:
    return routed.record.properties.get(JUDGING_PROPERTY, True) is not False


def _judged_by(routed: Routed) -> tuple[str, bool]:
    return routed.mark, _dead_letters(routed)
