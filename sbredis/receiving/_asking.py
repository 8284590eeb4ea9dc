"""The sources that the callers of an inbox wait for: whether they may be asked, were asked, or are late. Pure.

A source is a partition (its driver), or the search for partitions that have something. It *rests* and may be asked, it
was *asked* and has not answered, its answer is *late*, or there is a *pause* before it may be asked, for example after
a failure. A receiver that has *left* a source never asks it again:

======= ========= =======================================
state   event     next state
======= ========= =======================================
resting ask       asked
asked   on time   late, if the time for an answer is over
asked   end       resting
late    end       resting
resting pause     paused
paused  on time   resting, if the pause is over
paused  end pause resting
any     leave     left
======= ========= =======================================

Anything else changes nothing: a source that is asked again keeps the time at which it was asked first.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import auto
from typing import TYPE_CHECKING, Final

from sbredis._quick_enum import QuickEnum

if TYPE_CHECKING:
    from sbredis.client import PartitionClient

__all__ = ["AskedSource", "AskingState"]

_HURRIED: Final = 0.2
"""The part of the time for an answer after which it is late for a caller whose time is over."""


class AskingState(QuickEnum):
    """Whether a source may be asked, was asked, or is late with its answer."""

    RESTING = auto()
    ASKED = auto()
    LATE = auto()
    PAUSED = auto()
    LEFT = auto()


class AskedSource(ABC):
    """A source of messages for callers. Its owner tells the time, which is that of the event loop."""

    def __init__(self, partition_client: PartitionClient, lateness: float) -> None:
        """An answer is late after ``lateness`` seconds."""
        self.partition_client = partition_client
        self.calls: int = 0
        """The number of calls that were made, or searches that have begun to read, including the one under way."""
        self.state = AskingState.RESTING
        self.asked_at = 0.0
        """The time at which the source was asked last."""
        self.changes_at = math.inf
        """The time at which the answer is late, or the pause is over."""
        self._lateness = lateness

    @property
    def under_way(self) -> bool:
        """Whether the source was asked and has not answered."""
        return self.state is AskingState.ASKED or self.state is AskingState.LATE

    @property
    def prompt(self) -> bool:
        """Whether the source answers in time if it is asked, as far as is known."""
        return self.state is AskingState.RESTING or self.state is AskingState.ASKED

    @property
    def late(self) -> bool:
        """Whether the answer is late."""
        return self.state is AskingState.LATE

    @property
    @abstractmethod
    def troubled(self) -> bool:
        """Whether the source does not answer, as far as is known."""

    @property
    @abstractmethod
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as is known."""

    def ask_now(self) -> None:
        """Ask for what there is now."""
        self.look_again()

    @abstractmethod
    def look_again(self) -> None:
        """Ask again: something may have changed."""

    def begin_asking(self, now: float) -> None:
        """Note that the source is asked."""
        if self.state is AskingState.RESTING:
            self.state, self.asked_at, self.changes_at = AskingState.ASKED, now, now + self._lateness

    def hurry(self) -> None:
        """Let the answer be late sooner, because the time of a caller is over."""
        if self.state is AskingState.ASKED:
            self.changes_at = min(self.changes_at, self.asked_at + self._lateness * _HURRIED)

    def end_asking(self) -> None:
        """Note the answer, or that nobody waits for it any more."""
        if self.state is not AskingState.LEFT:
            self.state, self.changes_at = AskingState.RESTING, math.inf

    def pause(self, until: float) -> None:
        """Let nobody ask a source that rests before this time."""
        if self.state is AskingState.RESTING:
            self.state, self.changes_at = AskingState.PAUSED, until

    def end_pause(self) -> None:
        """Let the source be asked now."""
        if self.state is AskingState.PAUSED:
            self.state, self.changes_at = AskingState.RESTING, math.inf

    def pass_time(self, now: float) -> None:
        """Note whether the answer is late now, or the pause is over."""
        if now >= self.changes_at:
            asked = self.state is AskingState.ASKED
            self.state, self.changes_at = AskingState.LATE if asked else AskingState.RESTING, math.inf

    def leave(self) -> None:
        """Never ask the source again."""
        self.state, self.changes_at = AskingState.LEFT, math.inf
