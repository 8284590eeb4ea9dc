"""Looking through the messages at a path without changing them: which ones, and the first of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sbredis.exceptions import MessageNotFoundError, Outcome

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusClient, ServiceBusReceiver
    from sbredis.model import ServiceBusReceivedMessage

__all__ = [
    "PAGE",
    "Matches",
    "WrongUseError",
    "browse",
    "choice_of",
    "dead_letters_of",
    "entity_of",
    "first_of",
    "found_by_number",
    "names_dead_letters",
    "source_of",
]

PAGE = 500
"""The number of messages that one call peeks."""
_SUFFIX = re.compile(r"(/\$transfer)?/\$deadletterqueue$", re.IGNORECASE)
Matches: TypeAlias = "Callable[[ServiceBusReceivedMessage], bool]"
"""Says of a message whether it is chosen."""


class WrongUseError(ValueError):
    """An error for a request that makes no sense. Nothing was changed."""


# -- paths -------------------------------------------------------------------------------------------------------------


def dead_letters_of(path: str) -> str:
    """Return the path of an entity's dead-letter queue. The path of a dead-letter queue is its own."""
    return path if names_dead_letters(path) else f"{path}/$DeadLetterQueue"


def names_dead_letters(path: str) -> bool:
    """Return whether the path is one of a dead-letter queue."""
    return _SUFFIX.search(path) is not None


def entity_of(path: str) -> str:
    """Return the path without its sub-queue."""
    return _SUFFIX.sub("", path)


# -- messages ----------------------------------------------------------------------------------------------------------


async def source_of(client: ServiceBusClient, path: str) -> EntityInfo:
    """Return what is at a path. Raises :class:`WrongUseError` for a topic, which keeps no messages."""
    info = await client.describe_entity(path)
    if info.kind == "topic":
        raise WrongUseError(f"{info.path} is a topic: name one of its subscriptions, as in topic/subscriptions/all.")
    return info


async def browse(
    receiver: ServiceBusReceiver, *, start: int = 0, session: str | None = None, page: int = PAGE
) -> AsyncIterator[ServiceBusReceivedMessage]:
    """Yield the messages of a receiver that is not opened, from a sequence number on, in the order of the numbers."""
    while found := await receiver.peek_messages(page, sequence_number=start, session_id=session):
        start = 0  # the receiver goes on where it is
        for message in found:
            yield message


async def found_by_number(receiver: ServiceBusReceiver, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
    """Return the messages with these numbers, in any state. Raises an error that names the missing ones."""
    found: list[ServiceBusReceivedMessage] = []
    for number in numbers:
        messages = await receiver.peek_messages(1, sequence_number=number)
        found += [message for message in messages if message.sequence_number == number]
    missing = sorted({*numbers} - {message.sequence_number for message in found})
    if missing:
        text = f"{receiver.entity_path} has no message {', '.join(map(str, missing))}."
        raise MessageNotFoundError(text, outcome=Outcome.REFUSED)
    return found


def choice_of(*, state: str | None = None, text: str | None = None, reason: str | None = None) -> Matches:
    """Return what chooses the messages in a state, those that match a filter, and dead letters with a reason.

    What is ``None`` chooses all messages. Raises :class:`~sbredis.exceptions.RuleSyntaxError` if the filter is wrong.
    """
    from sbredis.model import ServiceBusMessageState
    from sbredis.moving import condition_of

    condition = None if text is None else condition_of(text)
    wanted = None if state is None else ServiceBusMessageState[state.upper()]

    def matches(message: ServiceBusReceivedMessage) -> bool:
        return (
            (wanted is None or message.state is wanted)
            and reason in {None, message.dead_letter_reason}
            and (condition is None or condition(message))
        )

    return matches


async def first_of(
    messages: AsyncIterator[ServiceBusReceivedMessage], limit: int, matches: Matches
) -> tuple[list[ServiceBusReceivedMessage], bool]:
    """Return the first messages that match, and whether others come after them, which may match or not."""
    found: list[ServiceBusReceivedMessage] = []
    async for message in messages:
        if matches(message):
            found.append(message)
            if len(found) == limit:
                return found, await anext(messages, None) is not None
    return found, False
