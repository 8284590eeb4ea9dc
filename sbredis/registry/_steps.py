"""The steps in which an entity comes, changes and goes, so made that anybody can go on with them.

Theory
------

The registry is written first, and says what is to be; the partitions follow::

    (none) ── register ──► creating ── every partition made ──► active ──┐ change: the version
                              │                                  │  ▲    │ rises, every partition
                              │                                  │  └────┘ is told
                              └──────────► deleting ◄────────────┘
                                              │
                                              └── every partition taken away, unregister ──► (none)

Whoever stops in the middle, for whatever reason, leaves a record that says what is to be, and whoever meets the record
goes on. Each step may be taken by several at once, and again: partitions are made and taken away by incarnation, and
of those who replace a record only one is the first. The others read what it is now, and go on from there.

One who goes on with a creation may be slower than others who end it and then delete the entity, and so make a partition
after it was taken away. It learns of that when it would replace the record, and takes away what it has made. So does
one who makes a partition again that was lost: it reads the record afterwards.

Topics
------

A message of a topic is judged by the sender, by the rules of the topic's active subscriptions. **Every change of what
messages are judged by is one script, which raises the version of the topic's record and gives it a new stamp**: that a
subscription becomes active, or is being deleted, or has other rules, or treats errors in filters otherwise. Then all
partitions of the topic are told its version, before the call returns. A sender names the version that it has judged by,
and a partition refuses an older one than its own. So a message is judged by the rules as they were at one version, and
who has changed them knows that no message is judged by the old ones any more::

    subscription: register, with its rules ─► its partitions made ─► active, topic raised ─► topic's partitions told
                  deleting, topic raised ─► topic's partitions told ─► its partitions taken away ─► unregister
    rule:         changed, topic raised ─► topic's partitions told

What all the topic's partitions have been told is noted (``mark_told``). If somebody stops between raising the topic and
telling, the topic is *behind*, and whoever meets it, or a subscription of it, tells its partitions: as far as they can
be reached where it only reads, and all of them where it goes on with a deletion or changes something itself.

A topic that is being deleted takes no subscription any more, and is raised no more. Its own partitions go first, with
what is stored in them, then its subscriptions, then its record. Who meets one of these subscriptions goes on with that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio

from sbredis.engine import Partition, Request, ScriptCaller, SettingsStaleError, new_token, perform, salts
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.registry._entity import EntityRecord, Kind, split_path
from sbredis.registry._refusals import (
    EntityChangedError,
    Refusals,
    missing,
    missing_subscription,
    of_another_kind,
    refusals,
)
from sbredis.registry._registry import Registry, SeenEntity

__all__ = ["TOPIC", "Steps"]

T = TypeVar("T")
_Step = Callable[[Partition, float], Awaitable[object]]

TOPIC: tuple[Kind, ...] = ("topic",)

_TOGETHER = 50
"""How many subscriptions of a topic are taken away at once."""

_SHARE = 0.25
"""How much of its time a call may spend on telling what somebody else has left untold, where it only reads."""


class Steps:
    """The steps of one namespace. ``until`` is when to give up, by the clock of the event loop."""

    __slots__ = ("_namespace", "_salts", "_told", "_transport", "registry")

    def __init__(
        self,
        transport: ScriptCaller,
        namespace: str,
        partitions: int,
        told: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._told = told
        self._transport = transport
        self._namespace = namespace
        self._salts = salts(partitions)
        self.registry = Registry(namespace, partitions)

    async def ask(self, request: Request[T], until: float, about: str = "", codes: Refusals | None = None) -> T:
        """Ask the registry, about an entity or about all; ``codes`` says what its refusals mean, if something else."""
        meant = refusals(self._namespace, about) if codes is None else codes
        return await perform(self._transport, request, timeout=until - anyio.current_time(), refusals=meant)

    # -- finding --------------------------------------------------------------------------------------------------

    async def existing(self, path: str, until: float, kinds: Collection[Kind] = ()) -> EntityRecord:
        """The entity of this name, all of it there, or the error that there is none; none of these kinds, if given."""
        return (await self.seen(path, until, kinds)).record

    async def seen(self, path: str, until: float, kinds: Collection[Kind] = ()) -> SeenEntity:
        """The same with what is counted of its topic, whose partitions are told what somebody has left untold."""
        seen = await self._found(path, until, kinds)
        if seen.behind:
            now = anyio.current_time()
            with suppress(ServiceBusError):
                await self._catch_up(split_path(seen.record.path)[0], now + (until - now) * _SHARE)
        return seen

    async def _found(self, path: str, until: float, kinds: Collection[Kind] = ()) -> SeenEntity:
        while True:
            seen = await self.ask(self.registry.look(path), until, path)
            if seen is None:
                raise await self.absence(path, until, kinds)
            self.require_kind(seen.record, kinds)
            if seen.forsaken:
                await self._with_its_topic(seen.record, until)
                continue
            settled = await self.settled(seen.record, until)
            if settled is not None:
                return seen._replace(record=settled)

    async def absence(self, path: str, until: float, kinds: Collection[Kind] = ()) -> MessagingEntityNotFoundError:
        """The error that there is no such entity; of a subscription it says whether there is its topic."""
        topic, subscription = split_path(path)
        if subscription is None:
            return missing(self._namespace, path, kinds)
        owner = await self.ask(self.registry.read(topic), until, topic)
        return missing_subscription(self._namespace, path, None if owner is None else owner.kind)

    def require_kind(self, record: EntityRecord, kinds: Collection[Kind]) -> None:
        """Raise if the entity is none of these kinds, if any are given."""
        if kinds and record.kind not in kinds:
            raise of_another_kind(self._namespace, record.path, record.kind, kinds)

    # -- coming and going -----------------------------------------------------------------------------------------

    async def settled(self, record: EntityRecord, until: float) -> EntityRecord | None:
        """Go on with a record to the end: what it is then, or None if the entity is gone."""
        with _saying(f"The entity '{record.path}' may be half made or half deleted: the next call about it goes on."):
            while record.state == "creating":
                try:
                    await self._everywhere(record, self._make, until)
                    record = await self._active(record, until)
                except (EntityChangedError, MessagingEntityNotFoundError, SettingsStaleError):
                    found = await self.ask(self.registry.read(record.path), until, record.path)
                    if found is None or found.incarnation != record.incarnation:
                        await self._everywhere(record, self._take_away, until)
                        return None
                    if found.stamp == record.stamp and not await self._with_its_topic(record, until):
                        raise
                    record = found
            if record.state == "active":
                return record
            await self._ended(record, until)
            return None

    async def _active(self, record: EntityRecord, until: float) -> EntityRecord:
        """The record of an entity, whose partitions are made, as one that is there."""
        active, stamp = replace(record, state="active"), new_token()
        if record.kind != "subscription":
            return await self.ask(self.registry.revise(active, stamp), until, record.path)
        revised = await self.ask(self.registry.revise_subscription(active, stamp, judging=True), until, record.path)
        if revised.topic is not None:
            await self.told(revised.topic, until)
        return revised.record

    async def deleting(self, record: EntityRecord, until: float) -> EntityRecord:
        """Begin to delete an entity that is as the record says; :class:`EntityChangedError` if it is not."""
        ending, stamp = replace(record, state="deleting"), new_token()
        if record.kind != "subscription":
            return await self.ask(self.registry.revise(ending, stamp), until, record.path)
        return (await self.ask(self.registry.revise_subscription(ending, stamp), until, record.path)).record

    async def _ended(self, record: EntityRecord, until: float) -> None:
        """Take away all of an entity that is being deleted."""
        if record.parent is not None:
            with suppress(MessagingEntityNotFoundError):  # it is being deleted itself, and takes nothing in
                await self._catch_up(record.parent, until)
        await self._everywhere(record, self._take_away, until)
        if record.kind == "topic":
            with suppress(MessagingEntityNotFoundError):  # somebody else has brought it to its end
                await self._without_subscriptions(record, until)
        await self._out(record, until)

    async def _out(self, record: EntityRecord, until: float) -> None:
        while (await self.ask(self.registry.unregister(record), until, record.path)).more:
            pass

    async def _without_subscriptions(self, topic: EntityRecord, until: float) -> None:
        """Take away the subscriptions of a topic whose own partitions are gone."""
        while True:
            page = await self.ask(self.registry.subscriptions(topic.path, "", _TOGETHER), until, topic.path)
            if not page.subscriptions:
                return
            await _all_of(partial(self._left, each.record, until) for each in page.subscriptions)

    async def _left(self, record: EntityRecord, until: float) -> None:
        """Take away a subscription whose topic is being deleted."""
        found: EntityRecord | None = record
        while found is not None and found.state != "deleting":
            try:
                found = await self.deleting(found, until)
            except (EntityChangedError, MessagingEntityNotFoundError):
                found = await self.ask(self.registry.read(record.path), until, record.path)
        if found is not None:
            await self._everywhere(found, self._take_away, until)
            await self._out(found, until)

    async def _with_its_topic(self, record: EntityRecord, until: float) -> bool:
        """Go on with the deletion of a subscription's topic; False if there is no such thing to go on with."""
        if record.parent is None:
            return False
        topic = await self.ask(self.registry.read(record.parent), until, record.parent)
        if topic is None or topic.state != "deleting":
            return False
        await self.settled(topic, until)
        return True

    # -- telling --------------------------------------------------------------------------------------------------

    async def told(self, record: EntityRecord, until: float) -> None:
        """Give all partitions the settings of a record."""
        says = f"The registry has version {record.version} of the settings of '{record.path}', but a partition may not."
        try:
            with _saying(says):
                await self._everywhere(record, self._tell, until)
        except MessagingEntityNotFoundError:
            await self.restored(record, until)
        if record.kind == "topic":
            await self.ask(self.registry.mark_told(record), until, record.path)

    async def _catch_up(self, topic: str, until: float) -> None:
        """Tell the partitions of a topic its version, if somebody has left that undone."""
        seen = await self.ask(self.registry.look(topic), until, topic)
        if seen is not None and seen.behind:
            await self.told(seen.record, until)

    async def restored(self, record: EntityRecord, until: float) -> EntityRecord:
        """Make those partitions of an entity again that are not there, although the registry says so.

        A failover may have lost them. The others are told the settings. Whoever deletes the entity at the same time is
        noticed, and what was made is taken away again.
        """
        found = (await self._found(record.path, until)).record  # raises, if it has been deleted meanwhile
        if found.incarnation == record.incarnation:
            with _saying(f"The partitions of '{found.path}' that were lost may still be: the next call goes on."):
                await self._everywhere(found, self._make_again, until)
            now = await self.ask(self.registry.read(found.path), until, found.path)
            if now is not None and now.incarnation == found.incarnation:
                settled = await self.settled(now, until)
                if settled is not None:
                    return settled
            else:
                await self._everywhere(found, self._take_away, until)
        raise missing(self._namespace, record.path)

    # -- partitions -----------------------------------------------------------------------------------------------

    def partition(self, record: EntityRecord, number: int) -> Partition:
        """One of the partitions of an entity."""
        if number not in record.partitions:
            raise ValueError(f"'{record.path}' is not in partition {number}, but in {record.partitions}")
        return Partition(
            self._namespace,
            self._salts[number],
            record.id,
            record.incarnation,
            record.version,
            record.settings,
            record.store,
        )

    async def _everywhere(self, record: EntityRecord, step: _Step, until: float) -> None:
        """Take a step in all partitions at once. All are tried, and then the first error is raised."""
        await _all_of(partial(step, self.partition(record, number), until) for number in record.partitions)

    async def _make(self, partition: Partition, until: float) -> None:
        await self._ask_partition(partition.configure(create=True), until)

    async def _make_again(self, partition: Partition, until: float) -> None:
        with suppress(SettingsStaleError):  # it is there, and has been told more
            await self._make(partition, until)

    async def _tell(self, partition: Partition, until: float) -> None:
        with suppress(SettingsStaleError):  # somebody else has told it more
            await self._ask_partition(partition.configure(now=self._told()), until)

    async def _take_away(self, partition: Partition, until: float) -> None:
        with suppress(MessagingEntityNotFoundError):  # another incarnation is there, and so this one is not
            while await self._ask_partition(partition.destroy(), until):
                pass

    async def _ask_partition(self, request: Request[T], until: float) -> T:
        return await perform(self._transport, request, timeout=until - anyio.current_time())


async def _all_of(steps: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Take steps at once. All are tried, and then the first error is raised."""
    errors: list[ServiceBusError] = []

    async def one(step: Callable[[], Awaitable[object]]) -> None:
        try:
            await step()
        except ServiceBusError as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        for step in steps:
            group.start_soon(one, step)
    if errors:
        raise errors[0]


@contextmanager
def _saying(what: str) -> Generator[None]:
    """Let an error out of several steps say how far they may have come: what it knows of is the last one only."""
    try:
        yield
    except ServiceBusError as error:
        error.message = f"{error.message} {what}"
        error.outcome = Outcome.UNKNOWN
        raise
