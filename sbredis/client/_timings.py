"""The waits of a client that a test may set. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timings"]


@dataclass(frozen=True, slots=True)
class Timings:
    """How long a client waits for what, in seconds. All clients have these values, unless a test gives others."""

    gathering: float = 0.2
    """The longest wait of a receive call for the next message, when it has a message already."""
    gathering_all: float = 1.0
    """The longest wait of a receive call for all messages after the first. A quarter of the lock duration, if that is
    shorter.
    """
    answering: float = 10.0
    """The time that the server has to answer a receiving call, beyond the time that the call waits for messages."""
    late: float = 1.0
    """The time after which an answer is late. Other partitions are then asked without waiting for it."""
    missing: float = 0.5
    """The time after which the client looks again for an entity that is missing, before it tells its receivers."""
    asking_again: tuple[float, float] = (0.1, 10.0)
    """The first and the longest pause before a partition that could not answer is asked again."""
    lingering: float = 30.0
    """The time for which the receiver of replies goes on when nobody waits for a reply any more."""
    checking_renewals: float = 1.0
    """The longest time between two checks of the locks by a renewer with its own thread. The shortest lock lasts 5
    seconds.
    """
    claiming: float = 30.0
    """The time for which a role is claimed at a time. The claim is renewed after a third of it."""
    claiming_redrive: float = 10.0
    """The time for which a redrive claims its dead-letter queue. The claim of a killed client ends after this time."""
    renewing_redrive: float = 3.0
    """The time after which the claim to a redrive is renewed."""
    reading_buckets: float = 1800.0
    """The time after which the census reads a bucket of the registry again, even if it has announced no change."""
    finishing_deletions: float = 10.0
    """The time after which the deletion of an entity is finished that another client has begun."""
    publishing_again: tuple[float, float] = (10.0, 300.0)
    """The first and the longest pause before a message that could not be published is tried again."""
    spreading_again: float = 35.0
    """The time after which a client looks whether another one has spread its messages. The claim of a killed client has
    ended by then.
    """
    moving_first: float = 2.0
    """The time for which a deletion waits until the entity's messages have been moved to other entities."""
    naming: float = 86_400.0
    """The time after which a client names its library of functions in the registry again."""
    deleting_libraries: float = 86_400.0
    """The time between two looks for old libraries of functions."""
