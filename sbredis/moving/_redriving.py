"""Redrive dead letters: check a request, claim the dead-letter queue, and carry the request out."""

# `watch_redrives` in this module sets a private attribute of the class.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sbredis._quoting import quoted
from sbredis._tasks import to_the_end
from sbredis.client._arguments import deadline_of, progress_of, sequence_numbers_of
from sbredis.client._role import OWN, Role
from sbredis.engine import SidePrefix, entity_name
from sbredis.exceptions import Outcome, RedriveInProgressError, ServiceBusError
from sbredis.model import PrimitiveTypes, RedriveBudget, RedriveResult, RuleFilter
from sbredis.moving._choosing import Condition
from sbredis.moving._redrive_letters import DeadLetters
from sbredis.moving._redrive_run import Request, Run
from sbredis.moving._redrive_ways import Back, Elsewhere, Way
from sbredis.receiving._settling import Settler

if TYPE_CHECKING:
    from sbredis.client._entity import Entity

__all__ = ["Redriver", "watch_redrives"]

_CLAIM = 10.0
"""The seconds for which a redrive claims the dead-letter queue. The claim of a killed client ends after this time."""
_RENEW = 3.0


class Redriver(Settler):
    """A receiver that can move dead letters back."""

    _side: SidePrefix
    _goes_on: Callable[[int], bool] | None = None

    @abstractmethod
    async def _found(self, deadline: float) -> Entity:
        """Return the entity, without accepting a session."""

    async def redrive_messages(
        self,
        *,
        to: str | None = None,
        sequence_numbers: int | Sequence[int] | None = None,
        reason: str | None = None,
        matching: str | RuleFilter | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        rate: float | None = None,
        budget: RedriveBudget | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> RedriveResult:
        """Move dead letters back to the queue or subscription in which they died, as new messages, or to the queue or
        topic ``to``.

        The receiver must be one of a dead-letter queue. Without further arguments, the call moves all dead letters that
        no receiver holds. It moves only those with these ``sequence_numbers``, with this ``reason``, or ``matching``
        this filter in the language of rules, which can also use ``sys.DeadLetterReason`` and
        ``sys.DeadLetterErrorDescription``. Several of these conditions must all hold. The copies of other subscriptions
        do not change.

        A message that is moved is active under a new sequence number. Its delivery count, its enqueued time and its
        time to live begin again, and it loses its reason and its description. It is the last message of its session.
        ``properties_to_modify`` are added to its application properties, or replace them. Each message is moved once:
        messages that die again during the call stay in the dead-letter queue.

        From a transfer dead-letter queue, messages go to the entity to which they were sent. They wait to be moved
        there, as they did before.

        ``rate`` limits the messages a second. With a ``budget`` the call stops by itself when too many of the messages
        have died again. ``cursor`` is that of an earlier result: the call goes on where that redrive has ended. With
        ``dry_run`` the call only counts the messages, by reason and by fingerprint. ``timeout`` limits each call to the
        server.

        The call calls ``progress`` with the number of messages moved so far, or of a dry run counted so far, again and
        again and at its end. An error of that function ends the redrive and is raised; what was moved stays moved.

        Raises :class:`~sbredis.exceptions.RuleSyntaxError` if the filter is not valid,
        :class:`~sbredis.exceptions.MessageNotFoundError` if one of the ``sequence_numbers`` is not there, and
        :class:`~sbredis.exceptions.RedriveInProgressError` if another redrive of this queue is running. In these cases
        nothing was moved, unless the client was away for so long that another redrive has begun.
        """
        request = Request(
            sequence_numbers=None if sequence_numbers is None else sequence_numbers_of(sequence_numbers),
            reason=reason,
            matching=matching,
            modify=properties_to_modify,
            rate=rate,
            budget=budget,
            cursor=cursor,
            dry_run=dry_run,
            timeout=timeout,
            progress=progress_of(progress),
            goes_on=self._goes_on or (lambda _: True),
        )
        chosen = request.check()
        if self._side == "":
            raise ValueError(
                "Messages are redriven from a dead-letter queue: make the receiver with sub_queue='deadletter'."
            )
        with self._telemetry.operation("redrive", self.entity_path) as operation:
            entity = await self._found(deadline_of(timeout))
            letters = DeadLetters(entity, self._side, timeout)
            find = partial(self._entity_named, timeout=timeout)
            way: Way
            if to is None:
                way = Back(letters, properties_to_modify, find)
            else:
                way = Elsewhere(letters, properties_to_modify, find, await self._other(to, entity, timeout))
            if budget is not None:
                _require_watchable(way.watched)
            result = await _redrive(letters, request, chosen, way)
            operation.counted(result.moved)
            return result

    async def _entity_named(self, name: str, timeout: float | None) -> Entity:
        """Return an entity as the registry has it now. An earlier look-up may be of an entity that was deleted."""
        until = deadline_of(timeout)
        found = await self._connection.entity(entity_name(name), until)
        await found.refresh(until)
        return found

    async def _other(self, to: str, entity: Entity, timeout: float | None) -> Entity:
        """Return the entity with the name ``to``. Raise if dead letters cannot be moved to it."""
        found = await self._entity_named(to, timeout)
        if found.record.id != entity.record.id:
            return found
        if self._side == "t":
            raise ValueError(f"{quoted(to)} is the entity through which these messages were sent: name another one.")
        raise ValueError(f"{quoted(to)} is the entity of these dead letters: leave out `to`.")


def watch_redrives(receiver: Redriver, goes_on: Callable[[int], bool]) -> None:
    """Let the redrives of a receiver call a function with the number of messages that were moved so far.

    If the function returns false, the redrive stops and returns its result.
    """
    receiver._goes_on = goes_on


def _require_watchable(letters: DeadLetters) -> None:
    """Raise if a redrive could not see messages that have died again."""
    record, why = letters.entity.record, None
    if letters.side == "t":
        return
    if record.kind == "topic":
        why = "is a topic, and messages die in its subscriptions"
    elif record.settings.forwards:
        why = "forwards its messages, so they die elsewhere"
    elif record.settings.forwards_dead:
        why = "forwards its dead letters, so they may be gone before the redrive sees them"
    if why is not None:
        raise ValueError(f"A budget cannot be judged: {quoted(record.name)} {why}. Leave out the budget.")


async def _redrive(letters: DeadLetters, request: Request, chosen: Condition, way: Way) -> RedriveResult:
    """Carry out a request that was checked."""
    run = Run(letters, request, chosen, way)
    if request.dry_run:
        return await run.look()
    claim = _Claim(letters)
    try:
        await claim.keep()
        return await run.run(claim)
    finally:
        await to_the_end(claim.give_up())


class _Claim:
    """The right to redrive a dead-letter queue, which one caller has at a time."""

    def __init__(self, letters: DeadLetters) -> None:
        connection, record = letters.entity.connection, letters.entity.record
        self._name = letters.entity.name
        name = f"{OWN}sbredis-redrive.{record.id}" + ("-transfers" if letters.side == "t" else "")
        self._role = Role(connection.transport, connection.namespace.name, name)
        self._renew_at = 0.0
        self._loop = asyncio.get_running_loop()

    async def keep(self) -> None:
        """Claim the queue, or renew the claim in time. Raise if another caller has it."""
        now = self._loop.time()
        if now < self._renew_at:
            return
        standing = await self._role.claim(_CLAIM)
        if not standing.held:
            text = (
                "Another redrive of this dead-letter queue is running. Wait until it has ended. If its client was "
                f"killed, the queue is free in {standing.seconds:.0f} seconds."
            )
            if self._renew_at:
                text = (
                    "This redrive did not renew its claim in time, and another one has begun. The messages that were "
                    "moved stay moved. Begin again when the other redrive has ended."
                )
            error = RedriveInProgressError(text, outcome=Outcome.REFUSED)
            error.entity = self._name
            raise error
        self._renew_at = now + _RENEW

    async def sleep(self, seconds: float) -> None:
        """Sleep, and keep the claim meanwhile."""
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0:
            await asyncio.sleep(min(left, _RENEW))
            await self.keep()

    async def give_up(self) -> None:
        """End the claim."""
        with suppress(ServiceBusError):
            await self._role.give_up()
