"""The settings of an entity as its partitions keep them, checked before they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sbredis._quoting import quoted
from sbredis.engine._results import NEVER

__all__ = ["MAXIMUM_MESSAGE_BYTES", "Clock", "PartitionSettings", "Status"]

Status = Literal["Active", "Disabled", "SendDisabled", "ReceiveDisabled"]
Clock = Literal["server", "test"]

MAXIMUM_MESSAGE_BYTES = 100 * 1024 * 1024
"""What the largest message may be set to."""


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What a partition knows of its entity. Durations are in ms."""

    status: Status = "Active"
    lock_duration: int = 60_000
    max_delivery_count: int = 10
    time_to_live: int = NEVER
    """The longest that a message may live, and what it lives if it says nothing."""
    dead_letter_expired: bool = False
    duplicate_window: int | None = None
    """``None`` where duplicates are not detected; that cannot change."""
    quota: int = 1024 * 1024 * 1024
    """How many bytes of messages the partition holds."""
    largest_message: int = 1024 * 1024
    clock: Clock = "server"
    """``test`` lets callers tell the time; that cannot change."""
    shared: bool = False
    """Whether the messages are stored with another entity: with the topic of a subscription. That cannot change."""
    sessions: bool = False
    """Whether messages belong to sessions, and are received session by session; that cannot change."""
    topic: bool = False
    """Whether it is a topic, which hands what it takes in to its subscriptions; that cannot change."""

    def __post_init__(self) -> None:
        def within(name: str, value: object, least: int, most: int) -> None:
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, not {quoted(value)}")

        if self.status not in get_args(Status):
            raise ValueError(f"status must be one of {', '.join(get_args(Status))}, not {quoted(self.status)}")
        if self.clock not in get_args(Clock):
            raise ValueError(f"clock must be one of {', '.join(get_args(Clock))}, not {quoted(self.clock)}")
        for name in ("dead_letter_expired", "shared", "sessions", "topic"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be True or False, not {quoted(getattr(self, name))}")
        if self.topic and (self.shared or self.sessions):
            raise ValueError("a topic stores what it takes in, and gives nothing out: no shared, and no sessions")
        within("lock_duration", self.lock_duration, 1, NEVER)
        within("max_delivery_count", self.max_delivery_count, 1, 99_999)
        within("time_to_live", self.time_to_live, 1, NEVER)
        if self.duplicate_window is not None:
            within("duplicate_window", self.duplicate_window, 1, NEVER)
        within("quota", self.quota, 0, 999_999_999_999_999)
        within("largest_message", self.largest_message, 0, MAXIMUM_MESSAGE_BYTES)

    def arguments(self) -> tuple[bytes | str | int, ...]:
        """As the script that configures a partition takes them."""
        return (
            self.clock,
            self.status,
            self.lock_duration,
            self.max_delivery_count,
            self.time_to_live,
            int(self.dead_letter_expired),
            "" if self.duplicate_window is None else self.duplicate_window,
            self.quota,
            self.largest_message,
            int(self.shared),
            int(self.sessions),
            int(self.topic),
        )
