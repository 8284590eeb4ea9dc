"""Delete an entity, or remove one that nobody uses. Any client can finish a deletion.

A removal has two phases, and any client can take its first phase back.

Theory
------

A message that was accepted must not be lost, so an entity is deleted only if no partition accepts a call any more. The
partitions are in different slots, so no script sees them all. The removal has these steps::

    active, version v ──► removing, version v ──► every partition closed at version v + 1 ──► deleting
        ▲                      │
        └── active, v + 1 ◄────┘  a user has called, a partition is in use or could not be reached

0. The partitions are asked whether they are idle. If not, nothing has changed.
1. The registry says ``removing``. Nothing else changes, and all calls go on.
2. Each partition is *closed* if it is idle (``close.lua``): it gets the version ``v + 1``, which no client knows. To a
   client with version ``v`` it answers STALE, and changes nothing. A partition that is in use stays open.
3. If all are closed, the registry says ``deleting``, but only if its record is still the one of step 1. The deletion
   then continues as each deletion does.

A client that gets the answer STALE reads the registry again. If it finds ``removing``, it **takes the removal back**:
the entity becomes active with the version ``v + 1``. The closed partitions have that version already, so they are open
again for each client that has read the registry. Then the client makes its call again. If it finds ``deleting``, the
entity is gone, and its call has changed nothing.

So for each call there are two cases. It came before the partition was closed: then the partition was in use, is not
closed, and the removal ends. Or it came later: then it succeeds only if the removal was taken back, because only this
makes the version ``v + 1`` known. In that case the record in the registry has changed, and step 3 is refused.

A use of a subscription is also a use of its topic, and a receiver of a subscription never calls the topic's partitions.
So before a topic is deleted, each of its subscriptions goes through steps 1 and 2 too: it is ``removing``, and all its
partitions are closed. A client that takes the removal of a subscription back takes that of the topic back first. The
removal of the topic gives the record of each subscription a new stamp, even if the record says ``removing`` already. So
a client that has read the subscription before that is refused, and reads it and its topic again.

A client may stop after each step. The registry then says ``removing``, and the next client that reads the entity takes
the removal back. A reader that does not use the entity does this too, because a reader cannot know whether the client
that removes is still there. The time of the last use does not change by this, so the removal is soon tried again. The
client that has the role ``idle`` continues a removal instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from sbredis._tasks import loop_time
from sbredis.engine import CallId, Closing, Partition, SettingsBehindError, SettingsStaleError
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.registry._entity import EntityRecord, Kind
from sbredis.registry._pages import SubscriptionPages
from sbredis.registry._partitions import UNREACHABLE, all_of
from sbredis.registry._refusals import EntityChangedError
from sbredis.registry._reservation import require_unreserved
from sbredis.registry._steps import PATIENCE, TOGETHER, Steps

__all__ = ["Before", "Removal", "delete", "note_use", "remove_if_idle"]

Before = Callable[[EntityRecord], Awaitable[None]]
"""A function that is called before the deletion of an entity begins. It raises an error to prevent the deletion."""

_TRIES = 5
_IN_USE = Closing(closed=False, quiet=0)


class Removal(NamedTuple):
    """The result of an attempt to remove an entity."""

    removed: bool
    quiet: int
    """The ms since the last use of the entity, if it was not removed; 0 if it is in use now."""


async def delete(steps: Steps, path: str, among: Collection[Kind], before: Before | None, until: float) -> None:
    """Delete an entity because a user wants it, or finish a deletion that has begun.

    The entity may be one whose record is damaged, so that nothing but its name is known. It is not deleted if another
    release has written its record.
    """
    while True:
        try:
            record = await steps.read(path, until)
        except DataLayoutError as error:
            record = await steps.condemned(path, until, among, error)
        if record is None:
            raise await steps.absence(path, until, among)
        steps.require_kind(record, among)
        if record.state != "deleting":
            try:
                await _require_unreserved(steps, record, until)
                if before is not None:
                    await before(record)
                record = await steps.deleting(record, until)
            except (EntityChangedError, MessagingEntityNotFoundError):
                continue  # another client has changed the entity: read the new record
        await steps.settled(record, until)
        return


async def _require_unreserved(steps: Steps, record: EntityRecord, until: float) -> None:
    """Raise if an entity is reserved, or if a subscription is reserved that would be deleted with its topic.

    A subscription may be reserved between this check and the deletion of its topic. Its consumer then finds that the
    subscription does not exist any more.
    """
    require_unreserved(record, "it cannot be deleted")
    if record.kind == "topic":
        pages = SubscriptionPages(steps, record.path, until)
        while pages.more:
            page = await pages.next()
            for each in page.subscriptions:
                require_unreserved(each.record, "its topic cannot be deleted")
            for subscription, _ in page.unreadable:
                if subscription.error.layout is not None:
                    raise subscription.error


async def remove_if_idle(steps: Steps, record: EntityRecord, idle: int, until: float) -> Removal:
    """Delete an entity if no user has called it for ``idle`` ms; ``record`` was read before, and may be out of date.

    Finishes a creation that another client has begun, because nobody else may ever name the entity.

    Raises an error if a partition could not be reached, or if another client has changed the entity meanwhile, for
    instance because it has taken the removal back: then the entity is not removed. Also raises an error if the deletion
    has begun, but is not finished.
    """
    found = await steps.read(record.path, until)
    if found is None or found.incarnation != record.incarnation:
        return Removal(removed=True, quiet=idle)
    record = found
    if record.state == "creating":  # the client that creates the entity may have stopped; its idle time begins now
        await steps.settled(record, until)
        return Removal(removed=False, quiet=0)
    if record.state == "active":
        quiet = await _ask(steps, record, idle, record.version, until)
        if quiet is not None:
            return Removal(removed=False, quiet=quiet)
        if record.settings.reserved or (record.kind == "topic" and await _feeds(steps, record, until)):
            return Removal(removed=False, quiet=0)
        record = await steps.removing(record, until)
    if record.state != "removing":
        return Removal(removed=False, quiet=0)
    quiet = await _close(steps, record, idle, until)
    if quiet is not None:
        return Removal(removed=False, quiet=quiet)
    record = await steps.deleting(record, until)
    await steps.settled(record, until)
    return Removal(removed=True, quiet=idle)


async def _close(steps: Steps, record: EntityRecord, idle: int, until: float) -> int | None:
    """Close all partitions, or take the removal back. If one is in use, return the ms since the last use."""
    subscriptions: list[EntityRecord] = []
    try:
        quiet = await _ask(steps, record, idle, record.version + 1, until)
        if quiet is None and record.kind == "topic":
            quiet = await _close_subscriptions(steps, record, idle, subscriptions, until)
    except ServiceBusError:
        await _take_back(steps, record, subscriptions, until)
        raise
    if quiet is not None:
        await _take_back(steps, record, subscriptions, until)
    return quiet


async def _close_subscriptions(
    steps: Steps, topic: EntityRecord, idle: int, begun: list[EntityRecord], until: float
) -> int | None:
    """Close all partitions of a topic's subscriptions, and add to ``begun`` those whose removal has begun.

    If a partition is in use, return the ms since the last use.
    """
    found: list[int] = []

    async def close_one(record: EntityRecord) -> None:
        if record.state == "creating":  # a client creates it at this moment, or has stopped while it created it
            await steps.settled(record, until)
            found.append(0)
        elif record.state != "deleting":
            removing = await steps.removing(record, until)
            begun.append(removing)
            quiet = await _ask(steps, removing, idle, removing.version + 1, until)
            if quiet is not None:
                found.append(quiet)

    pages = SubscriptionPages(steps, topic.path, until, limit=TOGETHER)
    while pages.more and not found:
        page = await pages.next()
        if page.unreadable:
            return 0  # it is not known whether a subscription is in use that cannot be read
        await all_of(partial(close_one, each.record) for each in page.subscriptions)
    return min(found, default=None)


async def _take_back(steps: Steps, record: EntityRecord, subscriptions: Sequence[EntityRecord], until: float) -> None:
    """Take the removal of an entity back, and that of the subscriptions that were to be removed with it."""
    try:
        await steps.kept(record, until)
    finally:
        with suppress(ServiceBusError):  # a client that uses a subscription takes its removal back too
            for start in range(0, len(subscriptions), TOGETHER):
                await all_of(partial(steps.kept, each, until) for each in subscriptions[start : start + TOGETHER])


async def _ask(steps: Steps, record: EntityRecord, idle: int, closed: int, until: float) -> int | None:
    """Ask all partitions whether they are idle, and give those that are the version ``closed``.

    Return the ms since the last use if a partition is in use. With the present version as ``closed``, nothing changes.
    """
    partitions, found = steps.partitions, list[Closing]()

    async def ask(partition: Partition, until: float) -> None:
        try:
            try:
                found.append(await partitions.ask(partition.close(idle, closed, now=partitions.now()), until))
            except SettingsStaleError:
                if closed == partition.version:
                    raise
                # it is closed already, by a client that has stopped
                again = partition.close(idle, closed, again=True, now=partitions.now())
                found.append(await partitions.ask(again, until))
        except SettingsBehindError:  # a user has changed the entity, and this partition does not know it yet
            await partitions.ask(partition.configure(use=True, now=partitions.now()), until)
            found.append(_IN_USE)

    try:
        await partitions.everywhere(record, ask, min(until, loop_time() + PATIENCE))
    except MessagingEntityNotFoundError:  # a failover has lost a partition, which begins anew; or the entity is gone
        await steps.restored(record, until)
        return 0
    return None if all(each.closed for each in found) else min(each.quiet for each in found)


async def _feeds(steps: Steps, topic: EntityRecord, until: float) -> bool:
    """Return whether a subscription of a topic forwards its messages, or is reserved, or cannot be read.

    The subscription is always in use then, or it is not known whether it is, and so is its topic.
    """
    pages = SubscriptionPages(steps, topic.path, until)
    while pages.more:
        page = await pages.next()
        if page.unreadable or any(
            each.record.settings.forwards or each.record.settings.reserved for each in page.subscriptions
        ):
            return True
    return False


async def note_use(steps: Steps, record: EntityRecord, until: float) -> None:
    """Note that an entity is used, in the first of its partitions that answers."""
    path, partitions, failed = record.path, steps.partitions, None
    for number in record.partitions:
        try:
            for _ in range(_TRIES):
                partition = partitions.one(record, number if number in record.partitions else record.partitions[0])
                try:
                    await partitions.ask(
                        partition.touch(CallId("", 0, partitions.now())),
                        min(until, loop_time() + PATIENCE),
                    )
                except SettingsBehindError:
                    await partitions.tell(partition, until)
                except SettingsStaleError:
                    record = await steps.existing(path, until)
                except MessagingEntityNotFoundError:
                    record = await steps.restored(record, until)
                else:
                    return
        except UNREACHABLE as error:
            failed = error
    if failed is not None:
        raise failed
