"""Commit a transaction: make one call for all its operations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from sbredis.aio._operations import Settlements, Work, works_of
from sbredis.aio._transaction_parts import Keys, Part, SettlePart
from sbredis.client._lane_kinds import MOST_COPIES, TransactionJob
from sbredis.engine import (
    CallId,
    Operation,
    PartRefusedError,
    Transacted,
)
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageSizeExceededError,
    Outcome,
    ServiceBusError,
)
from sbredis.model import ServiceBusMessage

__all__ = ["commit"]

_log = logging.getLogger("sbredis.client")


class _CommitJob(TransactionJob):
    """One call of a commit. It has its effect on the messages even if the caller was cancelled meanwhile."""

    __slots__ = ("_parts", "_works", "duplicates")

    def __init__(self, works: Sequence[Work], messages: int, size: int, deadline: float) -> None:
        super().__init__(deadline, messages, size, frozenset([work.link for work in works]))
        self.duplicates: list[ServiceBusMessage] = []
        self._works = works
        self._parts = [part for work in works if isinstance(work, Settlements) for part in work.parts]
        for part in self._parts:
            part.hold.settled = True  # also while a lock is renewed, because its token may change
        for work in works:
            work.since = None

    def ended(self) -> None:
        """Mark the messages as not settled if the call did not settle them."""
        for part in self._parts:
            if not self.done or part.kind == "renew":
                part.hold.settled = False
            elif part.hold.watchers:
                part.hold.let_go()

    def happened(self, result: Transacted) -> None:
        """Note what has happened to the messages."""
        self.done = True
        for work, sent in zip(self._works, result.results, strict=True):
            self.duplicates += work.happened(sent)
        if result.forgotten:
            _log.warning(
                "%s: the partition has forgotten %d keys of transactions before the ends of their windows, because it "
                "remembers up to 100,000 keys of up to 8 MB together; use shorter windows or shorter keys",
                self._works[0].link,
                result.forgotten,
            )

    def operations(self, now: int | None) -> tuple[list[Operation], int]:
        """Return the operations, and how many copies they make. An error names its operation."""
        operations: list[Operation] = []
        copies = 0
        call_id = CallId("", 0, now)
        for index, work in enumerate(self._works):
            work.record = work.entity.record
            try:
                operations.append(work.operation(work.link.partition, call_id))
                copies += work.copies
                if copies > MOST_COPIES:
                    raise MessageSizeExceededError(
                        f"The messages of the transaction would have {copies} copies in the subscriptions of their "
                        f"topics; a transaction makes up to {MOST_COPIES}. Send fewer messages in it.",
                        outcome=Outcome.NEVER_SENT,
                    )
            except ServiceBusError as error:
                raise PartRefusedError(error, operation=index) from None
        return operations, copies


async def commit(
    parts: Sequence[Part], keys: Keys, messages: int, size: int, deadline: float
) -> list[ServiceBusMessage]:
    """Carry out all parts of a transaction, or none. Return the messages that were dropped as duplicates.

    ``messages`` and ``size`` are the number and the bytes of all messages, session states,
    keys and watermarks.
    """
    works = await works_of(parts, keys, deadline)
    while any([await work.confirm(deadline) for work in works]):
        works = await works_of(parts, keys, deadline)
    for part in parts:
        if isinstance(part, SettlePart) and part.hold.settled:
            raise MessageAlreadySettled(
                f"Message {part.hold.sequence_number} was settled, or is being settled, outside of the transaction. "
                "The transaction has changed nothing."
            )
    async with AsyncExitStack() as recalls:
        for part in parts:
            if isinstance(part, SettlePart) and part.kind == "abandon":
                lease = part.hold.lease
                if lease is not None and lease.recalled is not None:
                    await recalls.enter_async_context(lease.recalled(deadline))
        await _renewed(works, deadline)
        return await _carry_out(works, messages, size, deadline)


async def _renewed(works: Sequence[Work], deadline: float) -> None:
    """Wait for renewals under way, because a renewal may give a message another token."""
    loop = asyncio.get_running_loop()
    for work in works:
        if isinstance(work, Settlements):
            for part in work.parts:
                renewal = work.link.renewing.last_renewal(part.hold)
                if renewal is not None:
                    await asyncio.wait((renewal,), timeout=deadline - loop.time())


async def _carry_out(works: Sequence[Work], messages: int, size: int, deadline: float) -> list[ServiceBusMessage]:
    """Make the call. If the client's knowledge of an entity is out of date, correct it and make the call again."""
    while True:
        try:
            job = _CommitJob(works, messages, size, deadline)
            await works[0].link.transacting.submit(job)
            return job.duplicates
        except PartRefusedError as refusal:
            work, error = works[refusal.operation], refusal.reason
            error.entity = work.entity.name
            if not await work.link.overcome(error, work.record, deadline):
                raise work.explain(error, refusal.detail) from None
