"""Sends and settlements that happen together, or not at all, from threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from sbredis import aio
from sbredis._public import public, public_name
from sbredis.model import (
    MessageId,
    MessageTypes,
    PrimitiveTypes,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade, twin_of
from sbredis.sync._sender import ServiceBusSender
from sbredis.sync._session import ServiceBusSession

__all__ = ["ServiceBusTransaction"]


@public
@documented_by(aio.ServiceBusTransaction)
class ServiceBusTransaction(Facade[aio.ServiceBusTransaction]):
    # The calls that only record run in the loop too. They encode messages and give them ids, as all sends of the client
    # do there; in the thread of the caller, two sends of one message could use the same id.

    @property
    def duplicates(self) -> tuple[ServiceBusMessage, ...]:
        return self._aio.duplicates

    @property
    def watermarks(self) -> Mapping[str, int | None]:
        return self._aio.watermarks

    def __enter__(self) -> Self:
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._bridge.call(self._aio.__aexit__, None, None, None)
        else:
            # Nothing is committed. If the client is closed, the error of the block must stay the error that is raised.
            self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))

    def rollback(self) -> None:
        self._bridge.run(self._aio.rollback)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send_messages(self, sender: ServiceBusSender, message: MessageTypes | ServiceBusMessageBatch) -> None:
        self._bridge.run(self._aio.send_messages, _asynchronous(sender), message)

    def schedule_messages(
        self, sender: ServiceBusSender, messages: MessageTypes, schedule_time_utc: datetime | Sequence[datetime]
    ) -> list[int]:
        return self._bridge.run(self._aio.schedule_messages, _asynchronous(sender), messages, schedule_time_utc)

    # -- settling ------------------------------------------------------------------------------------------------------

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        self._bridge.run(self._aio.complete_message, message)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        self._bridge.run(self._aio.abandon_message, message, delay=delay, properties_to_modify=properties_to_modify)

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        self._bridge.run(self._aio.defer_message, message, properties_to_modify=properties_to_modify)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
    ) -> None:
        self._bridge.run(
            self._aio.dead_letter_message,
            message,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
        )

    def renew_message_lock(self, message: ServiceBusReceivedMessage) -> None:
        self._bridge.run(self._aio.renew_message_lock, message)

    def set_session_state(self, session: ServiceBusSession, state: str | bytes | bytearray | None) -> None:
        if not isinstance(session, ServiceBusSession):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                f"A transaction sets the state of a sbredis.ServiceBusSession, not of a {public_name(session)}. "
                "Asynchronous and synchronous objects cannot be mixed."
            )
        self._bridge.run(self._aio.set_session_state, twin_of(session), state)

    # -- once ----------------------------------------------------------------------------------------------------------

    def once(self, key: MessageId, window: timedelta | float) -> None:
        self._bridge.run(self._aio.once, key, window)

    # -- watermarks ----------------------------------------------------------------------------------------------------

    def advance(self, sender: ServiceBusSender, name: str, to: str | None, *, expected: str | None) -> None:
        self._bridge.run(self._aio.advance, _asynchronous(sender), name, to, expected=expected)


def _asynchronous(sender: ServiceBusSender) -> aio.ServiceBusSender:
    """Return the sender's twin in the loop. Refuse other objects, such as a sender of the asynchronous API."""
    if not isinstance(sender, ServiceBusSender):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(
            f"A transaction sends with a sbredis.ServiceBusSender, not with a {public_name(sender)}. "
            "Asynchronous and synchronous objects cannot be mixed."
        )
    return twin_of(sender)
