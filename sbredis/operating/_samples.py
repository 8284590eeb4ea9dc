"""Samples of entities, and the rates that two samples tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from sbredis.model import PartitionRuntimeProperties, RuleProperties
    from sbredis.operating._kinds import Names

__all__ = ["Sample", "SampledEntity", "Sight", "gets_all", "row_of", "sample_of"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of an entity, read at one moment."""

    path: str
    at: float
    """In seconds, by a clock that never goes back."""
    counts: Mapping[str, int]
    """The number of messages in each state."""
    dead: int
    oldest: float | None
    """The age of the oldest message that can be received, in seconds."""
    consumers: int
    """The number of receivers that wait."""
    arrived: int | None
    """How many messages have come so far; ``None`` if that is not known, as for a subscription with filters."""
    unavailable: int = 0
    """The number of partitions that did not answer."""

    @property
    def depth(self) -> int:
        """The number of messages, without dead letters."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Sight:
    """The last two samples of an entity, which tell its rates."""

    now: Sample
    before: Sample | None = None

    def then(self, sample: Sample) -> Sight:
        """Return the sight after the next sample. Of an entity that was made again, nothing earlier counts."""
        again = None not in {sample.arrived, self.now.arrived} and (sample.arrived or 0) < (self.now.arrived or 0)
        return Sight(sample, None if again or sample.unavailable or self.now.unavailable else self.now)

    @property
    def rates_are_least(self) -> bool:
        """Whether the rates are the least that explains the change of the depth, because arrivals are not known."""
        return self.before is not None and None in {self.now.arrived, self.before.arrived}

    @property
    def incoming(self) -> float | None:
        """The number of messages that came in a second."""
        return None if self.before is None else self._arrived(self.before) / self._seconds(self.before)

    @property
    def outgoing(self) -> float | None:
        """The number of messages that left in a second: completed, expired, moved or dead-lettered."""
        if self.before is None:
            return None
        left = self._arrived(self.before) + self.before.depth - self.now.depth
        return max(0, left) / self._seconds(self.before)

    def _arrived(self, before: Sample) -> int:
        if self.now.arrived is not None and before.arrived is not None:
            return self.now.arrived - before.arrived
        return max(0, self.now.depth + self.now.dead - before.depth - before.dead)

    def _seconds(self, before: Sample) -> float:
        return max(self.now.at - before.at, 1e-6)


@dataclass
class SampledEntity:
    """An entity to read."""

    path: str
    subscription: Names | None = None
    """The names of the topic and of the subscription, if it is one."""
    gets_all: bool | None = None
    """Whether a subscription gets each message of its topic once; ``None`` before its rules are read."""


def gets_all(rules: Sequence[RuleProperties]) -> bool:
    """Return whether a subscription with these rules gets each message of its topic once.

    A rule with an action makes a copy of its own, beside the one of the rules without an action.
    """
    from sbredis.model import TrueRuleFilter

    return any(isinstance(rule.filter, TrueRuleFilter) for rule in rules) and (
        len(rules) == 1 or all(rule.action is None for rule in rules)
    )


def sample_of(
    entity: SampledEntity, partitions: Sequence[PartitionRuntimeProperties], at: float, now: datetime
) -> Sample:
    """Return the sample of an entity. The numbers of a subscription are those of its topic.

    ``at`` is the time of a clock that never goes back, and ``now`` that of this machine.
    """
    is_known = entity.subscription is None or entity.gets_all
    oldest = [each.oldest_enqueued_at_utc for each in partitions if each.oldest_enqueued_at_utc is not None]
    states = ("active", "locked", "delayed", "deferred", "scheduled")
    return Sample(
        path=entity.path,
        at=at,
        counts={state: sum(getattr(each, f"{state}_message_count") for each in partitions) for state in states},
        dead=sum(each.dead_letter_message_count for each in partitions),
        oldest=max(0.0, (now - min(oldest)).total_seconds()) if oldest else None,
        consumers=sum(each.waiting_receiver_count for each in partitions),
        arrived=sum(each.numbers_given_out for each in partitions) if is_known else None,
        unavailable=sum(not each.available for each in partitions),
    )


def row_of(sight: Sight) -> dict[str, object]:
    """Return a sight as JSON has it."""
    now = sight.now
    return {
        "entity": now.path,
        "depth": now.depth,
        **now.counts,
        "dead": now.dead,
        "in_per_second": sight.incoming,
        "out_per_second": sight.outgoing,
        "rates_are_least": sight.rates_are_least,
        "oldest_age_seconds": now.oldest,
        "waiting_receivers": now.consumers,
        "unavailable_partitions": now.unavailable,
    }
