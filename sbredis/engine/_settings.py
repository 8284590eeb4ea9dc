"""The settings of an entity as its partitions store them. Pure.

Each field of :class:`PartitionSettings` declares everything about a setting: its default, its limits, the name under
which a partition stores it, and whether it can change. Python's checks and arguments are derived from these
declarations, and so are the tables of the scripts (:mod:`sbredis.engine._state`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, get_args

from sbredis._quoting import quoted
from sbredis.engine._results import NEVER

__all__ = ["MAXIMUM_MESSAGE_BYTES", "SETTINGS", "Clock", "PartitionSettings", "Setting", "Status"]

Status = Literal["Active", "Disabled", "SendDisabled", "ReceiveDisabled"]
Clock = Literal["server", "test"]

MAXIMUM_MESSAGE_BYTES = 100 * 1024 * 1024
"""The upper limit of the setting for the largest message."""


class Setting(NamedTuple):
    """The values that a setting may have, and where a partition stores it."""

    stored: str
    """The name of its field in the hash of the partition."""
    words: tuple[str, ...] = ()
    """The possible values, if the setting is one of a few words."""
    least: int | None = None
    most: int | None = None
    """The limits, if the setting is a whole number. A setting with neither words nor limits is a flag."""
    optional: bool = False
    """Whether it may be ``None``, which is stored as an empty text."""
    fixed: str | None = None
    """The name that errors use for a setting that cannot change.

    For an optional setting, only its presence is fixed.
    """
    with_records: bool = False
    """Whether it is stored with the records, not in the partition's state. The records may belong to another entity."""

    def check(self, name: str, value: object) -> None:
        """Raise :class:`ValueError` for a value that the setting cannot have."""
        if self.words:
            if value not in self.words:
                raise ValueError(f"{name} must be one of {', '.join(self.words)}, not {quoted(value)}")
        elif self.least is None or self.most is None:
            if type(value) is not bool:
                raise ValueError(f"{name} must be True or False, not {quoted(value)}")
        elif value is None and self.optional:
            return
        elif not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise ValueError(f"{name} must be a whole number from {self.least} to {self.most}, not {quoted(value)}")


def _in(stored: str, **declared: Any) -> Mapping[str, Setting]:
    """Declare where a field of the settings is stored and which values it may have."""
    return {"setting": Setting(stored, **declared)}


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The settings of an entity that its partitions store. Durations are in ms."""

    status: Status = field(default="Active", metadata=_in("status", words=get_args(Status)))
    lock_duration: int = field(default=60_000, metadata=_in("lock", least=1, most=NEVER))
    max_delivery_count: int = field(default=10, metadata=_in("deliveries", least=1, most=99_999))
    time_to_live: int = field(default=NEVER, metadata=_in("ttl", least=1, most=NEVER))
    """The longest time to live of a message, and the default."""
    dead_letter_expired: bool = field(default=False, metadata=_in("dead"))
    duplicate_window: int | None = field(
        default=None,
        metadata=_in("window", least=1, most=NEVER, optional=True, fixed="whether duplicates are detected"),
    )
    """The window of duplicate detection; ``None`` if duplicates are not detected."""
    quota: int = field(
        default=1024 * 1024 * 1024, metadata=_in("quota", least=0, most=999_999_999_999_999, with_records=True)
    )
    """The largest number of bytes of messages in the partition."""
    largest_message: int = field(
        default=1024 * 1024, metadata=_in("largest", least=0, most=MAXIMUM_MESSAGE_BYTES, with_records=True)
    )
    most_ids: int = field(default=0, metadata=_in("most_ids", least=0, most=999_999_999_999_999, with_records=True))
    """The largest number of message ids that duplicate detection remembers; 0 if there is no limit."""
    clock: Clock = field(default="server", metadata=_in("clock", words=get_args(Clock), fixed="its clock"))
    """With ``test``, callers pass the time."""
    shared: bool = field(default=False, metadata=_in("shared", fixed="where its messages are stored"))
    """Whether another entity stores the messages. This is true for a subscription: its topic stores them."""
    sessions: bool = field(default=False, metadata=_in("sessions", fixed="whether messages belong to sessions"))
    """Whether messages belong to sessions and are received session by session."""
    topic: bool = field(default=False, metadata=_in("topic", fixed="whether it is a topic"))
    """Whether the entity is a topic, which passes its messages to its subscriptions."""
    forwards: bool = field(default=False, metadata=_in("forwards"))
    """Whether messages are forwarded to another entity, and therefore not given to receivers."""
    forwards_dead: bool = field(default=False, metadata=_in("forwards_dead"))
    """Whether dead letters are forwarded to another entity."""
    audited: bool = field(default=False, metadata=_in("audited"))
    """Whether the partition keeps a stream of what happens to its messages after they are received."""
    reserved: bool = field(default=False, metadata=_in("reserved"))
    """Whether a reader has reserved the messages: no receiver gets them, and the reader plans ranges of them."""
    wide: bool = field(default=False, metadata=_in("wide"))
    """Whether the entity has so many partitions that no receiver is at all of them: :data:`MOST_SEATS`."""

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            setting.check(name, getattr(self, name))
        if self.topic and (self.shared or self.sessions):
            raise ValueError(
                "a topic stores its messages itself, and no receiver receives from it: it cannot have shared or "
                "sessions"
            )
        if self.reserved and (self.topic or self.sessions or self.forwards):
            raise ValueError("an entity that is reserved must not be a topic, have sessions or forward its messages")

    def arguments(self) -> tuple[str | int, ...]:
        """Return the settings as ``configure.lua`` takes them, in the order of :data:`SETTINGS`."""
        values = (getattr(self, name) for name in SETTINGS)
        return tuple("" if value is None else int(value) if type(value) is bool else value for value in values)

    def fixed_differences(self, other: PartitionSettings) -> tuple[str, ...]:
        """Return the names of the fixed settings in which these settings and ``other`` differ."""
        return tuple(
            setting.fixed
            for name, setting in SETTINGS.items()
            if setting.fixed is not None and _held(setting, getattr(self, name)) != _held(setting, getattr(other, name))
        )


SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {each.name: each.metadata["setting"] for each in fields(PartitionSettings)}
)
"""A mapping from each field of :class:`PartitionSettings`, in order, to the declaration of the setting."""


def _held(setting: Setting, value: object) -> object:
    """Return the part of a value that cannot change; for an optional setting, only whether it is set."""
    return value is None if setting.optional else value
