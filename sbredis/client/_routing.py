"""Route the messages of a topic: find the subscriptions for each message, and make the copies that their rules demand.

A sender judges its messages by the rules of one version of the topic, and names that version in its call. A partition
that knows a newer version refuses the messages, and the sender judges them again. So a message is never judged by a
part of a change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import UUID

from sbredis import rules
from sbredis._threads import in_thread
from sbredis.client._spreading import AT_ONCE, MOST_WORK, most_messages, next_subscriptions, work_of
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_COPIES,
    MAXIMUM_CHANGES_BYTES,
    NEVER,
    CallId,
    Changes,
    Content,
    Copy,
    Outgoing,
    Partition,
    Request,
    Sent,
    Value,
    encode_changes,
)
from sbredis.exceptions import MessageSizeExceededError, Outcome
from sbredis.model import MAXIMUM_PROPERTY_BYTES, comparable_id, moment
from sbredis.registry import JUDGING_PROPERTY, EntityRecord, Namespace, RoutedSubscription, Routes
from sbredis.rules import MessageView

if TYPE_CHECKING:
    from sbredis.rules import Complaints, Constant, JudgedCopy, Rule, RuleBook

__all__ = ["Judge", "RoutedCopies", "Routing", "SpreadCall", "facts_of", "routing_for", "some_wait"]

_SMALL_BOOK = 32
"""All rules are compiled again only if more subscriptions than this have changed or were deleted."""
_SMALL_PART = 4
"""That limit grows by one for every four subscriptions of the topic."""


class Judge:
    """Finds the subscriptions for a message. Each subscription has a place (an index) as long as it exists."""

    def __init__(self, routes: Routes, complaints: Complaints | None = None) -> None:
        self.routes = routes
        self._complaints = rules.Complaints() if complaints is None else complaints
        """The logged complaints about unusable rules. They are kept so that another change does not log them again."""
        self.records: list[EntityRecord] = [routed.record for routed in routes.subscriptions]
        """The subscriptions. A subscription's place is its index in this list."""
        self._places = {routed.record.incarnation: place for place, routed in enumerate(routes.subscriptions)}
        self._large_book = _book(routes.subscriptions, self._complaints)
        self._outdated: frozenset[int] = frozenset()
        """The places for which the large book is out of date."""
        self._changed: dict[int, RoutedSubscription] = {}
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


def _book(subscriptions: Sequence[RoutedSubscription], complaints: Complaints) -> RuleBook:
    return rules.RuleBook(
        [_rules(routed) for routed in subscriptions], [routed.record.path for routed in subscriptions], complaints
    )


def _rules(routed: RoutedSubscription) -> tuple[Sequence[Rule], bool]:
    return routed.rules, _dead_letters(routed)


def _dead_letters(routed: RoutedSubscription) -> bool:
    return routed.record.properties.get(JUDGING_PROPERTY, True) is not False


def _judged_by(routed: RoutedSubscription) -> tuple[str, bool]:
    return routed.edition, _dead_letters(routed)


_MANY_RULES = 200
_LONG_JUDGING = 4 * 1024 * 1024
"""If the product of message bytes and subscriptions reaches this limit, judging may take 10 ms or more."""
_MOST_BYTES = 16 * MAXIMUM_CALL_BYTES
"""The bytes that actions may add to all copies of a message that is sent by itself.

For several messages, the limit is ``MAXIMUM_CALL_BYTES``.
"""
_FAILED = "Filter evaluation failed."
_FEWER = "Send fewer messages at once, or each message by itself, for instance with send_stream()."
_UNCHANGING = frozenset({str, int, float, bool, bytes, Decimal, UUID, type(None)})
_FIELDS = {
    "contenttype": "content_type",
    "correlationid": "correlation_id",
    "label": "subject",
    "messageid": "message_id",
    "partitionkey": "partition_key",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_session_id",
    "scheduledenqueuetimeutc": "scheduled",
    "sessionid": "session_id",
    "timetolive": "time_to_live",
    "to": "to",
}
"""The system properties that rules can use, each with the name of its field in a message."""
_IDS = {"correlation_id", "message_id"}
_TEXTS = tuple((name, field) for name, field in _FIELDS.items() if field not in {"scheduled", "time_to_live", *_IDS})


def facts_of(content: Content) -> MessageView:
    """Return the view of a message that the rules judge."""
    system: dict[str, Constant] = {}
    for name, field in _TEXTS:
        value = getattr(content, field)
        if value is not None:
            system[name] = value
    if content.message_id is not None:
        system["messageid"] = comparable_id(content.message_id)
    if content.correlation_id is not None:
        system["correlationid"] = comparable_id(content.correlation_id)
    if content.time_to_live is not None:
        system["timetolive"] = timedelta(milliseconds=content.time_to_live)
    if content.scheduled is not None:
        system["scheduledenqueuetimeutc"] = moment(content.scheduled)
    return MessageView(system, _as_sent(content.properties) if content.properties else {})


def _as_sent(properties: Mapping[str, Value]) -> dict[str, Value]:
    """Return a copy of the application properties. The sender may change its own dictionary later.

    Each value has the form in which a receiver gets it. For example, a time is in UTC, which has no daylight saving
    time.
    """
    values = dict(properties)
    for name, value in properties.items():
        if type(value) not in _UNCHANGING:
            values[name] = _value_as_sent(value)
    return values


def _value_as_sent(value: Any) -> Any:
    if isinstance(value, datetime):
        return value if value.tzinfo is None or value.tzinfo is UTC else value.astimezone(UTC)
    if isinstance(value, bytearray):
        return bytes(value)
    return deepcopy(cast("Any", value)) if isinstance(value, (list, tuple, dict)) else value


class RoutedCopies(NamedTuple):
    """The copies of some messages in the subscriptions of a topic."""

    places: Sequence[int]
    """The index of each subscription in the judge's records."""
    routes: Sequence[Sequence[Copy] | None]
    """The copies of each message; ``None`` for a message that is scheduled and judged later."""


class PublishCall(NamedTuple):
    """A call that publishes messages."""

    request: Request[Sent]
    widths: Sequence[int]
    """The count of sequence numbers that each message takes."""
    work: float
    """The µs for which the copies hold the server, as estimated."""


class SpreadCall(NamedTuple):
    """A call that makes copies of messages that wait."""

    request: Request[Sent]
    widths: Sequence[int]
    """The count of sequence numbers that each message takes."""
    to: str
    """The incarnation up to which subscriptions have their copies then; empty if all have them."""


class Routing:
    """The subscriptions of a topic and their rules, at one version of the topic."""

    def __init__(self, namespace: Namespace, judge: Judge, *, spreads: bool = True) -> None:
        """``spreads`` says whether messages with very many copies wait on the topic until a client spreads them."""
        self.judge = judge
        self.spreads = spreads
        self.forwards = any(routed.record.settings.forwards for routed in judge.routes.subscriptions)
        """Whether a subscription forwards its messages."""
        self._namespace = namespace
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._copies = 1.0

    @property
    def most(self) -> int:
        """The number of messages that one call should contain, estimated from the copies of the last messages."""
        return most_messages(self._copies, len(self.judge.routes.subscriptions))

    def published(
        self,
        topic: Partition,
        number: int,
        call_id: CallId,
        messages: Sequence[Outgoing],
        facts: Sequence[MessageView | None],
        *,
        room: float = MOST_WORK,
        divisible: bool = False,
    ) -> PublishCall:
        """Return the call that publishes these messages.

        If the call would hold the server for more than ``room`` µs, its messages wait on the topic instead, and are
        spread. But if the call is ``divisible``, because several callers share it, an error says that it must be
        divided.
        """
        try:
            routed = self.routed(messages, facts)
        except MessageSizeExceededError:
            if divisible or len(messages) == 1 or not self.spreads:
                raise
            routed = None
        work = math.inf if routed is None else _work(routed)
        if routed is None or (self.spreads and work > room):
            if divisible:
                raise self._too_large(f"The {len(messages)} messages would have too many copies for one call. {_FEWER}")
            waiting = [one if one.due is not None else one._replace(due=AT_ONCE) for one in messages]
            return PublishCall(topic.publish(call_id, waiting, [None] * len(messages), []), [1] * len(messages), 0.0)
        request = topic.publish(call_id, messages, routed.routes, self._targets(routed.places, number))
        return PublishCall(request, [_width(route or ()) for route in routed.routes], work)

    def spread(  # noqa: PLR0917 -- the messages, their partition, and the parts of the call
        self,
        topic: Partition,
        number: int,
        call_id: CallId,
        messages: Sequence[Outgoing],
        routed: RoutedCopies,
        reached: str,
        fence: int | None,
    ) -> SpreadCall:
        """Return the next call for messages that wait. The subscriptions up to ``reached`` have their copies already.

        Messages with several copies in one subscription are spread one after the other, because further copies get
        later numbers.
        """
        places, routes = routed
        incarnations = [self.judge.records[place].incarnation for place in places]
        chosen, to = next_subscriptions(dict(zip(incarnations, _loads(routed), strict=True)), reached)
        widths = [_width(route or ()) for route in routes]
        if (to or reached) and len(messages) > 1 and max(widths) > 1:
            raise self._too_large(f"The {len(messages)} messages cannot be spread together. {_FEWER}")
        taken = set(chosen)
        of = {at: nth for nth, at in enumerate(at for at, each in enumerate(incarnations) if each in taken)}
        part = [[copy._replace(place=of[copy.place]) for copy in route or () if copy.place in of] for route in routes]
        targets = self._targets([places[at] for at in of], number)
        bounds = (reached, to) if reached or to else None
        return SpreadCall(topic.publish(call_id, messages, part, targets, fence=fence, bounds=bounds), widths, to)

    def _targets(self, places: Sequence[int], number: int) -> list[Partition]:
        return [self._partition(place, number) for place in places]

    def takes_long(self, size: int) -> bool:
        """Return whether judging messages of ``size`` bytes may hold up the event loop for too long."""
        return size * len(self.judge.routes.subscriptions) > _LONG_JUDGING

    def routed(self, messages: Sequence[Outgoing], facts: Sequence[MessageView | None]) -> RoutedCopies:
        """Judge messages. A thread may call this."""
        judged: list[Sequence[JudgedCopy]] = []
        total = 0
        for each in facts:
            copies: Sequence[JudgedCopy] = () if each is None else self.judge.judge(each)
            judged.append(copies)
            total += len(copies)
            if total > MAXIMUM_CALL_COPIES and len(facts) > 1:
                self._copies = max(self._copies, total / len(judged))
                raise self._too_large(
                    f"The {len(facts)} messages would have more than {MAXIMUM_CALL_COPIES} copies in the "
                    f"subscriptions of the topic, and one call makes at most that number of copies. {_FEWER}"
                )
        places = sorted({copy.subscription for copies in judged for copy in copies})
        of = {place: at for at, place in enumerate(places)}
        routes: list[list[Copy] | None] = []
        size = 0
        for each, copies, message in zip(facts, judged, messages, strict=True):
            made = [one for copy in copies if (one := self._copy(of[copy.subscription], copy)) is not None]
            routes.append(None if each is None and message.due is not None else made)
            size += sum([len(copy.changes) for copy in made])
            if size > (_MOST_BYTES if len(facts) == 1 else MAXIMUM_CALL_BYTES):
                raise self._too_large(
                    "The actions of the topic's rules would add too much to the message, in all its copies: at most "
                    f"{_MOST_BYTES >> 20} MB are allowed."
                    if len(facts) == 1
                    else f"The actions of the topic's rules would add more to the {len(facts)} messages than the "
                    f"{MAXIMUM_CALL_BYTES >> 20} MB that one call takes. {_FEWER}"
                )
        self._copies += (total / len(messages) - self._copies) * 0.3
        return RoutedCopies(places, routes)

    def _copy(self, place: int, judged: JudgedCopy) -> Copy | None:
        """Return a copy to store, or ``None`` if its rule failed and the subscription does not keep such failures."""
        _, rule, system, user, error = judged
        encoded = b""
        if error is None:
            if rule is None:
                return Copy(place)
            properties = None if user is None else dict(user)
            encoded = encode_changes(Changes(properties=properties, system=_stored_system(system) if system else None))
            error = _size_problem(rule, encoded, user)
            if error is not None and not self._keeps_failures(judged.subscription):
                return None
        if error is not None:
            return Copy(place, encode_changes(Changes(reason=_FAILED, description=error)), dead=True)
        if "timetolive" not in system:
            return Copy(place, encoded)
        lives = system["timetolive"]
        return Copy(place, encoded, time_to_live=_milliseconds(lives) if isinstance(lives, timedelta) else NEVER)

    def _keeps_failures(self, place: int) -> bool:
        return self.judge.records[place].properties.get(JUDGING_PROPERTY, True) is not False

    def _too_large(self, text: str) -> MessageSizeExceededError:
        error = MessageSizeExceededError(text, outcome=Outcome.NEVER_SENT)
        error.entity = self.judge.routes.topic.path
        return error

    def _partition(self, place: int, number: int) -> Partition:
        found = self._partitions.get((place, number))
        if found is None:
            found = self._partitions[place, number] = self._namespace.partition(self.judge.records[place], number)
        return found

    @property
    def records(self) -> list[EntityRecord]:
        """The records of the subscriptions."""
        return [routed.record for routed in self.judge.routes.subscriptions]

    def partitions(self, number: int) -> list[tuple[EntityRecord, Partition]]:
        """Return the record of each subscription, and the subscription's partition with this number."""
        return [(record, self._namespace.partition(record, number)) for record in self.records]


def _loads(routed: RoutedCopies) -> list[tuple[int, int]]:
    """Return for each place the number of copies, and the bytes of their changed properties."""
    copies, sizes = [0] * len(routed.places), [0] * len(routed.places)
    for route in routed.routes:
        for copy in route or ():
            copies[copy.place] += 1
            sizes[copy.place] += len(copy.changes)
    return list(zip(copies, sizes, strict=True))


def _work(routed: RoutedCopies) -> float:
    loads = _loads(routed)
    return work_of(len(loads), sum(copies for copies, _ in loads), sum(size for _, size in loads))


async def routing_for(namespace: Namespace, routes: Routes, known: Routing | None, *, spreads: bool) -> Routing:
    """Return the routing for these routes. ``known`` is the routing of an older version of the same topic, if any.

    A thread compiles the rules, because this takes some time if there are many.
    """
    if known is not None and known.judge.routes.topic.incarnation == routes.topic.incarnation:
        make: Callable[[Routes], Judge] = known.judge.after
    else:
        make = Judge
    if sum(len(routed.rules) for routed in routes.subscriptions) > _MANY_RULES:
        return Routing(namespace, await in_thread(lambda: make(routes)), spreads=spreads)
    return Routing(namespace, make(routes), spreads=spreads)


def _size_problem(rule: str, encoded: bytes, user: Mapping[str, Any] | None) -> str | None:
    """Return an error text if an action has made properties that are too large."""
    if len(encoded) > MAXIMUM_CHANGES_BYTES:
        return f"The action of rule {rule!r} failed: the properties would have {len(encoded)} bytes."
    if len(encoded) > MAXIMUM_PROPERTY_BYTES:
        for name, value in (user or {}).items():
            size = len(encode_changes(Changes(properties={name: value})))
            if size > MAXIMUM_PROPERTY_BYTES:
                return f"The action of rule {rule!r} failed: the property {name[:50]!r} would have {size} bytes."
    return None


def _stored_system(system: Mapping[str, Constant]) -> dict[str, Value]:
    kept: dict[str, Value] = {}
    for name, value in system.items():
        if isinstance(value, timedelta):
            value = _milliseconds(value)
        elif isinstance(value, datetime):
            value = round(value.timestamp() * 1000)
        kept[_FIELDS[name]] = cast("Value", value)
    return kept


def _milliseconds(span: timedelta) -> int:
    return min(max(0, round(span / timedelta(milliseconds=1))), NEVER)


def some_wait(
    messages: Sequence[Outgoing], widths: Sequence[int], first: int, waiting: Collection[int], utc: float
) -> bool:
    """Return whether messages wait on their topic to be spread, and not because they are for a later time.

    ``first`` is the number of the first message, and ``waiting`` are the numbers of all that wait. ``utc`` is the
    time in seconds since 1970.
    """
    numbers = accumulate(widths[:-1], initial=first)
    return any(
        number in waiting and (message.due is None or message.due <= utc * 1000)
        for message, number in zip(messages, numbers, strict=True)
    )


def _width(route: Sequence[Copy]) -> int:
    """Return how many sequence numbers a message takes: the most copies for one subscription, but at least one."""
    most = same = 1
    for before, copy in pairwise(route):
        same = same + 1 if copy.place == before.place else 1
        most = max(most, same)
    return most
