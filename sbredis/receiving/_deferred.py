"""Receive deferred messages by their sequence numbers: all messages that the caller asked for, or none.

One call returns only a limited number of bytes, so that it does not hold up the server. Therefore many calls may be
needed. The first call to a partition requests all of its messages, up to 1,000. If one of them is missing, the script
locks none. If large messages fill a reply, the next call requests at most twice the number of messages in that reply.
If that reply has fewer than 8 messages, the next call requests at most 16. If anything fails, all locked messages are
released without an increase of their delivery counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbredis.client import CallJob
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    CallId,
    Mode,
    Partition,
    Received,
    Request,
    SidePrefix,
    new_token,
    number_of,
)
from sbredis.exceptions import MessageLockLostError, MessageNotFoundError, Outcome, ServiceBusError
from sbredis.model import MessageLease, Reception, ServiceBusReceivedMessage, ServiceBusReceiveMode, delivered, hold_of

if TYPE_CHECKING:
    from sbredis.client import Entity, PartitionClient
    from sbredis.receiving._held_session import HeldSession

__all__ = ["Deferred"]

_ROOM = 1024 * 1024
"""The bytes that one call may return. A larger answer would hold up the server for a longer time."""
_FEWEST = 16
_ROUNDS = 3
"""How often to ask again for messages whose locks ended before all messages had arrived."""


def _not_found(entity: Entity, missing: Sequence[int], *, wide: bool = False) -> MessageNotFoundError:
    """Return the error for messages that were not found."""
    lack = "are not there, are scheduled or locked" if wide else "are not deferred, are locked"
    error = MessageNotFoundError(
        f"These messages {lack}, or have expired: {', '.join(map(str, missing))}. No message was received.",
        outcome=Outcome.REFUSED,
    )
    error.entity = entity.name
    return error


class Deferred:
    """One caller's request for deferred messages."""

    def __init__(
        self,
        entity: Entity,
        session: HeldSession | None,
        side: SidePrefix,
        receive_mode: ServiceBusReceiveMode,
        deadline: float,
        *,
        wide: bool = False,
        lease: MessageLease | None = None,
    ) -> None:
        """With ``wide``, the messages may also be active or delayed. ``lease`` is the lock on a session of which the
        caller knows no more.
        """
        self._entity = entity
        self._session = session
        self._lease = lease if session is None else session.lease
        self._side: SidePrefix = side
        self._receive_mode = receive_mode
        self._deadline = deadline
        self._wide = wide
        self._mode: Mode = "lock"
        self._found: dict[int, ServiceBusReceivedMessage] = {}

    async def receive(self, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
        """Return the messages with these sequence numbers, in this order. If one is missing, raise and release all."""
        places, missing = self._places(numbers)
        if missing:
            raise _not_found(self._entity, missing, wide=self._wide)
        deletes = self._receive_mode is not ServiceBusReceiveMode.PEEK_LOCK
        if deletes and len(places) == 1 and len(next(iter(places.values()))) <= MAXIMUM_CALL_MESSAGES:
            # Delete without locking only if one call is enough. With several calls, the first one would already have
            # deleted messages when the second one finds that a message is missing.
            self._mode = "delete"
        try:
            for partition_client, names in places.items():
                await self._fetch(partition_client, names)
            if self._mode == "lock":
                await self._replace_ended()
            if deletes and self._mode == "lock":
                await self._delete()
        except BaseException:
            self._give_back(list(self._found.values()))
            raise
        return [self._found[number] for number in numbers if number in self._found]

    def _places(self, numbers: Sequence[int]) -> tuple[dict[PartitionClient, list[str]], list[int]]:
        """Return the names to request from each partition, and the sequence numbers that no partition can have."""
        entity = self._entity
        places: dict[PartitionClient, list[str]] = {}
        missing: list[int] = []
        for number in numbers:
            partition, own = entity.place(number)
            if partition in entity.numbers and 0 < own < 10**15:
                places.setdefault(entity.partition_client(partition), []).append(f"{self._side}{own}")
            else:
                missing.append(number)
        return places, missing

    async def _fetch(self, partition_client: PartitionClient, names: list[str]) -> None:
        """Receive all of these messages from their partition."""
        rest, asked = names, names[:MAXIMUM_CALL_MESSAGES]
        while rest:
            result, messages = await self._call(partition_client, asked)
            for message in messages:
                self._found[message.sequence_number] = message
            if result.missing:
                base = self._entity.base(partition_client.number)
                raise _not_found(self._entity, [base + number_of(name) for name in result.missing], wide=self._wide)
            fitted = len(asked) - result.left
            if not fitted:  # the messages do not fit into one call: lock them first, and delete them at the end
                self._mode = "lock"
                continue
            rest = rest[fitted:]
            if self._mode == "lock" and len(messages) < fitted:
                # The call was repeated, and the locks of some messages ended before the repetition was answered: ask
                # for these messages again.
                given = {hold_of(message).name for message in messages}
                rest += [name for name in asked[:fitted] if name not in given]
            asked = rest[: max(_FEWEST, 2 * fitted) if result.left else MAXIMUM_CALL_MESSAGES]

    async def _call(
        self, partition_client: PartitionClient, names: list[str]
    ) -> tuple[Received, list[ServiceBusReceivedMessage]]:
        session, mode = self._session, self._mode
        token = new_token() if self._lease is None else self._lease.token
        reception = Reception(partition_client.base, self._receive_mode, partition_client)

        def make(partition: Partition, call_id: CallId) -> Request[Received]:
            name = None if session is None else session.name
            return partition.receive_deferred(
                call_id,
                token,
                names,
                mode=mode,
                room=_ROOM,
                session=name,
                in_session=name is None and self._lease is not None,
                wide=self._wide,
            )

        def made(result: Received) -> list[ServiceBusReceivedMessage]:
            lease = None
            if mode == "lock":
                lease = self._lease or partition_client.lease(token, result.lock, job.since, result.fence)
            return [delivered(each, reception, lease) for each in result.messages]

        job = CallJob(make, self._deadline, lambda result: self._give_back(made(result)))
        try:
            result = await partition_client.carry_out("f", job)
        except ServiceBusError as error:
            if error.outcome is Outcome.UNKNOWN and mode == "lock" and self._lease is None:
                # If the call did run, it has locked messages that no caller has, so unlock them. Do not unlock the
                # messages of a session, because another caller may hold them under the same token. These messages stay
                # locked until the session is released.
                partition_client.give_back_named(token, names)
            raise
        return result, made(result)

    async def _replace_ended(self) -> None:
        """Ask again for messages whose locks have ended, so that the caller gets only messages with a lock."""
        if self._session is not None:
            self._session.check()
        if self._lease is not None:
            return
        for left in reversed(range(_ROUNDS + 1)):
            now = self._entity.connection.clock.now()
            ended = [hold for hold in map(hold_of, self._found.values()) if hold.lock_expired(now)]
            if not ended:
                return
            if not left:
                break
            # According to the partition's clock, these locks may not have ended yet. So release the messages first.
            given = [hold.reception.link.give_back(hold) for hold in ended]
            left_to_wait = max(0.0, self._deadline - asyncio.get_running_loop().time())
            await asyncio.wait([future for future in given if future is not None], timeout=left_to_wait)
            places, _ = self._places([hold.sequence_number for hold in ended])
            for hold in ended:
                del self._found[hold.sequence_number]
            for partition_client, names in places.items():
                await self._fetch(partition_client, names)
        error = MessageLockLostError(
            "The locks on some deferred messages ended before the other messages had arrived. No message was "
            "received. Ask for fewer messages at once.",
            outcome=Outcome.REFUSED,
        )
        error.entity = self._entity.name
        raise error

    async def _delete(self) -> None:
        """Delete the locked messages, after all of them have arrived."""
        found = [hold_of(message) for message in self._found.values()]
        loop = asyncio.get_running_loop()
        deleted = [
            hold.reception.link.settling("complete").settle(hold, loop, self._deadline)
            for hold in found
            if hold.lease is not None
        ]
        await asyncio.gather(*deleted)
        for hold in found:
            hold.lease, hold.settled = None, False

    def _give_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        for message in messages:
            hold = hold_of(message)
            hold.reception.link.give_back(hold)
