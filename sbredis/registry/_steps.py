"""The steps in which entities are created, changed and deleted. Any client can continue them.

Theory
------

A client first writes the wanted outcome to the registry. Then it changes the partitions::

    (none) ── register ──► creating ── every partition made ──► active ──┐ change: the version
                              │                                  │  ▲    │ rises, every partition
                              │                                  │  └────┘ is told
                              └──────────► deleting ◄────────────┘
                                              │
                                              └── every partition shut, then every partition deleted,
                                                  unregister ──► (none)

A partition that is shut refuses every call, as if it did not exist. No partition is deleted before all are shut. So a
message is never stored in an entity of which a part is gone already, even if a partition cannot be reached.

A client that stops in the middle, for any reason, leaves a record that states the wanted outcome. The next client that
reads the record continues the work. Several clients may take a step at the same time, and may repeat it: each call to a
partition names the incarnation, and only one client succeeds in replacing a record. The other clients read the new
record, and continue from there.

A client that continues a creation may be slow: meanwhile other clients may finish the creation and delete the entity.
The slow client then makes a partition that was already deleted. It notices this when it tries to replace the record,
and deletes the partitions that it has made. A client that restores a lost partition also reads the record afterwards,
and then deletes such partitions.

Topics
------

The sender judges each message of a topic, by the rules of the topic's active subscriptions. **Every change that affects
judging is one script, which also raises the version of the topic's record and gives it a new stamp.** Such changes are:
a subscription becomes active, is being deleted, gets other rules, or changes its treatment of errors in filters. Then
all partitions of the topic are told its version, before the call returns. A sender names the version by which it has
judged, and a partition refuses a version older than its own. So each message is judged by the rules of one version.
After a change has returned, no message is judged by the old rules any more::

    subscription: register, with its rules ─► its partitions made ─► active, topic raised ─► topic's partitions told
                  deleting, topic raised ─► topic's partitions told ─► its partitions deleted ─► unregister
    rule:         changed, topic raised ─► topic's partitions told

The registry records the version that all the topic's partitions have been told (``mark_told``). If a client stops
between raising the topic and telling its partitions, the topic is *behind*. The next client that reads the topic, or
one of its subscriptions, tells the topic's partitions the version. If this client only reads, it tells the partitions
that it can reach. If it continues a deletion or makes a change itself, it tells all partitions.

The removal of an entity that is not used has a state of its own, ``removing``: ``_removal.py`` explains it.

A topic that is being deleted accepts no subscription, and its version does not rise any more. Its own partitions are
deleted first, with their messages, then its subscriptions, then its record. A client that finds one of these
subscriptions continues the deletion of the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sbredis._tasks import loop_time
from sbredis.engine import (
    Origin,
    Partition,
    PartitionSettings,
    Request,
    ScriptCaller,
    SettingsStaleError,
    new_stamp,
    perform,
)
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
)
from sbredis.registry._entity import (
    DESTINATIONS,
    EntityDescription,
    EntityRecord,
    Head,
    Kind,
    decode,
    head_of,
    split_path,
)
from sbredis.registry._partitions import Partitions, all_of
from sbredis.registry._refusals import (
    BucketMissingError,
    EntityChangedError,
    Refusals,
    add_sentence,
    missing,
    missing_subscription,
    namespace_missing,
    of_another_kind,
    refusals,
)
from sbredis.registry._registry import Registry, SeenEntity, read_namespace

__all__ = ["DESTINATIONS", "PATIENCE", "TOGETHER", "TOPIC", "Steps"]

T = TypeVar("T")
_log = logging.getLogger("sbredis.registry")

TOPIC: tuple[Kind, ...] = ("topic",)

TOGETHER = 50
"""The number of a topic's subscriptions that are closed or deleted at the same time."""

_SHARE = 0.25
"""A call that only reads may spend this part of its time on telling partitions for another client."""

_SHORTLY = 1.0
"""The seconds for telling the partitions that a removal was taken back. They can also learn it later."""

PATIENCE = 5.0
"""A partition that does not answer within this number of seconds counts as unreachable. A failover takes less time."""


class Steps:
    """The steps of one namespace. ``until`` is the time to give up, by the clock of the event loop."""

    __slots__ = ("_namespace", "_transport", "partitions", "registry")

    def __init__(
        self,
        transport: ScriptCaller,
        namespace: str,
        slots: int,
        told: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self.partitions = Partitions(transport, namespace, slots, told)
        self.registry = Registry(namespace, slots)

    async def ask(self, request: Request[T], until: float, about: str = "", codes: Refusals | None = None) -> T:
        """Send a request to the registry, ``about`` one entity or none. ``codes`` has the errors for refusals.

        If the bucket is missing, the whole namespace may be missing; then the error says that.
        """
        try:
            return await self.ask_bucket(request, until, about, codes)
        except BucketMissingError:
            await self.require_namespace(until)
            raise

    async def ask_bucket(self, request: Request[T], until: float, about: str = "", codes: Refusals | None = None) -> T:
        """Send a request to the registry. A missing bucket raises :class:`BucketMissingError`."""
        meant = refusals(self._namespace, about) if codes is None else codes
        return await perform(self._transport, request, timeout=until - loop_time(), refusals=meant)

    async def require_namespace(self, until: float) -> None:
        """Raise :class:`~sbredis.exceptions.NamespaceMissingError` if there is no namespace."""
        head = await self.ask_bucket(read_namespace(self._namespace, self.registry.slots), until)
        if head is None:
            raise namespace_missing(self._namespace)

    async def look(self, path: str, until: float) -> SeenEntity | None:
        """Read an entity, if it exists. For a topic or a subscription, also read the counts of the topic."""
        return await self._if_there(self.registry.look(path), until, path)

    async def read(self, path: str, until: float) -> EntityRecord | None:
        """Read the record of an entity, if it exists."""
        return await self._if_there(self.registry.read(path), until, path)

    async def _if_there(self, request: Request[T | None], until: float, path: str) -> T | None:
        with suppress(BucketMissingError):  # no entity of this bucket exists
            return await self.ask(request, until, path)
        return None

    # -- finding --------------------------------------------------------------------------------------------------

    async def existing(self, path: str, until: float, kinds: Collection[Kind] = ()) -> EntityRecord:
        """Return the entity of this name when it is complete.

        Raise if there is no such entity, or if it has none of these kinds.
        """
        return (await self.seen(path, until, kinds)).record

    async def seen(self, path: str, until: float, kinds: Collection[Kind] = ()) -> SeenEntity:
        """Return the complete entity and the counts of its topic. If the topic is behind, first tell its partitions."""
        seen = await self._found(path, until, kinds)
        if seen.behind:
            now = loop_time()
            with suppress(ServiceBusError):
                await self._catch_up(split_path(seen.record.path)[0], now + (until - now) * _SHARE)
        return seen

    async def _found(self, path: str, until: float, kinds: Collection[Kind] = ()) -> SeenEntity:
        while True:
            seen = await self.look(path, until)
            if seen is None:
                raise await self.absence(path, until, kinds)
            self.require_kind(seen.record, kinds)
            if seen.forsaken and await self._with_its_topic(seen.record, until):
                continue
            settled = await self.settled(seen.record, until)
            if settled is not None:
                return seen._replace(record=settled)

    async def absence(self, path: str, until: float, kinds: Collection[Kind] = ()) -> MessagingEntityNotFoundError:
        """Return the error that an entity does not exist; for a subscription it says whether its topic exists."""
        topic, subscription = split_path(path)
        if subscription is None:
            return missing(self._namespace, path, kinds)
        owner = await self.read(topic, until)
        return missing_subscription(self._namespace, path, None if owner is None else owner.kind)

    def require_kind(self, record: EntityRecord, kinds: Collection[Kind]) -> None:
        """Raise if kinds are given, and the entity has none of these kinds."""
        if kinds and record.kind not in kinds:
            raise of_another_kind(self._namespace, record.path, record.kind, kinds)

    # -- creating and deleting ------------------------------------------------------------------------------------

    async def settled(self, record: EntityRecord, until: float) -> EntityRecord | None:
        """Finish the creation or deletion of an entity, or take its removal back.

        Return its record, or None if the entity is gone.
        """
        if record.state == "active":
            return record
        with _saying(f"The entity '{record.path}' may be half created or half deleted: the next call continues that."):
            while record.state in ("creating", "removing"):
                try:
                    if record.state == "removing":
                        record = await self.kept(record, until)
                        continue
                    await self.partitions.everywhere(record, self.partitions.make, until)
                    record = await self._active(record, until)
                except (EntityChangedError, MessagingEntityNotFoundError, SettingsStaleError):
                    found = await self.read(record.path, until)
                    if found is None or found.incarnation != record.incarnation:
                        await self._destroyed(record, until)
                        return None
                    if found.stamp == record.stamp and not await self._with_its_topic(record, until):
                        raise
                    record = found
            if record.state == "active":
                return record
            await self._ended(record, until)
            return None

    async def _active(self, record: EntityRecord, until: float) -> EntityRecord:
        """Make an entity active after its partitions were made; return its new record."""
        active, stamp = replace(record, state="active"), new_stamp()
        if record.kind != "subscription":
            return await self.ask(self.registry.revise(active, stamp), until, record.path)
        revised = await self.ask(self.registry.revise_subscription(active, stamp, judging=True), until, record.path)
        if revised.topic is not None:
            await self.told(revised.topic, until)
        return revised.record

    async def deleting(self, record: EntityRecord, until: float) -> EntityRecord:
        """Begin to delete an entity; raise :class:`EntityChangedError` if its record has changed."""
        ending, stamp = replace(record, state="deleting"), new_stamp()
        if record.kind != "subscription":
            return await self.ask(self.registry.revise(ending, stamp), until, record.path)
        return (await self.ask(self.registry.revise_subscription(ending, stamp), until, record.path)).record

    async def removing(self, record: EntityRecord, until: float) -> EntityRecord:
        """Begin to remove an entity that is not used; raise :class:`EntityChangedError` if its record has changed."""
        leaving, stamp = replace(record, state="removing"), new_stamp()
        if record.kind != "subscription":
            return await self.ask(self.registry.revise(leaving, stamp), until, record.path)
        return (await self.ask(self.registry.revise_subscription(leaving, stamp), until, record.path)).record

    async def kept(self, record: EntityRecord, until: float) -> EntityRecord:
        """Take the removal of an entity back; raise :class:`EntityChangedError` if its record has changed.

        The entity gets the next version, which opens the partitions that are closed. For a subscription, a removal of
        its topic is taken back first. Raises :class:`MessagingEntityNotFoundError` if its topic is being deleted.
        """
        if record.parent is not None:
            await self._topic_kept(record, record.parent, until)
        kept, stamp = replace(record, state="active", version=record.version + 1), new_stamp()
        if record.kind == "subscription":
            kept = (
                await self.ask(self.registry.revise_subscription(kept, stamp, kept=True), until, record.path)
            ).record
        else:
            kept = await self.ask(self.registry.revise(kept, stamp, kept=True), until, record.path)
        if kept.state == "active":
            with suppress(ServiceBusError, TimeoutError):
                async with asyncio.timeout(min(_SHORTLY, until - loop_time())):
                    await self.partitions.everywhere(kept, self.partitions.tell, until)
        return kept

    async def _topic_kept(self, record: EntityRecord, topic: str, until: float) -> None:
        """Take the removal of a subscription's topic back, if it is being removed."""
        while True:
            found = await self.read(topic, until)
            if found is None or found.state == "deleting":
                raise missing_subscription(self._namespace, record.path, None if found is None else found.kind)
            if found.state != "removing":
                return
            with suppress(EntityChangedError):  # another client has changed the topic: read it again
                await self.kept(found, until)

    async def condemned(
        self, path: str, until: float, kinds: Collection[Kind], error: DataLayoutError
    ) -> EntityRecord | None:
        """Begin to delete an entity whose record is damaged, and return its new record; ``None`` if it is gone.

        The entity had the id and the incarnation in the beginning of its record, if that can be read. Otherwise its
        partitions cannot be found any more, and stay behind. Nobody knows which partitions the entity had, so those in
        all slots are deleted. Raises an error if another release has written the record.
        """
        topic, subscription = split_path(path)
        while True:
            text = await self._if_there(self.registry.text(path), until, path)
            if text is None:
                return None
            try:
                return decode(text, path, self.registry.slots)  # another client has repaired or condemned it
            except DataLayoutError as found:
                if found.layout is not None:
                    raise
            head = head_of(text) or Head("", new_stamp(), 1)
            kind: Kind = "subscription"
            owner: EntityRecord | None = None
            if subscription is not None:
                with suppress(DataLayoutError):
                    owner = await self.read(topic, until)
            else:
                page = await self.ask(self.registry.subscriptions(path, "", 1), until, path)
                is_topic = bool(page.subscriptions or page.unreadable) or b'"kind":"topic"' in text
                kind = "topic" if is_topic or list(kinds) == ["topic"] else "queue"
            if kinds and kind not in kinds:
                raise of_another_kind(self._namespace, path, kind, kinds)
            numbers = tuple(range(self.registry.slots)) if owner is None else owner.partitions
            description = EntityDescription(
                name=path if subscription is None else subscription,
                kind=kind,
                parent=None if subscription is None else topic,
                store=None if subscription is None else "0" if owner is None else owner.id,
                state="deleting",
                partitioned=len(numbers) > 1,
                partitions=numbers,
                settings=PartitionSettings(shared=kind == "subscription", topic=kind == "topic"),
            )
            condemn = self.registry.condemn(path, text, head, description, new_stamp())
            with suppress(EntityChangedError):
                record = await self.ask(condemn, until, path)
                _log.warning("%s: the %s is deleted although its record cannot be read: %s", path, kind, error.message)
                return record

    async def _ended(self, record: EntityRecord, until: float) -> None:
        """Finish the deletion of an entity."""
        if record.parent is not None:
            # If the topic is being deleted too, it accepts no messages. If it cannot be read, nobody learns its rules.
            with suppress(MessagingEntityNotFoundError, DataLayoutError):
                await self._catch_up(record.parent, until)
        if len(record.partitions) > 1:
            await self.partitions.everywhere(record, self.partitions.shut, until)
        await self._destroyed(record, until)
        if record.kind == "topic":
            with suppress(MessagingEntityNotFoundError):  # another client has finished the deletion
                await self._without_subscriptions(record, until)
        await self._out(record, until)

    async def _out(self, record: EntityRecord, until: float) -> None:
        while (await self.ask(self.registry.unregister(record), until, record.path)).more:
            pass

    async def _without_subscriptions(self, topic: EntityRecord, until: float) -> None:
        """Delete the subscriptions of a topic whose own partitions are gone."""
        while True:
            page = await self.ask(self.registry.subscriptions(topic.path, "", TOGETHER), until, topic.path)
            if not page.subscriptions and not page.unreadable:
                return
            for each, _ in page.unreadable:
                record = await self.condemned(each.path, until, (), each.error)
                if record is not None:
                    await self._left(record, until)
            await all_of(partial(self._left, each.record, until) for each in page.subscriptions)

    async def _left(self, record: EntityRecord, until: float) -> None:
        """Delete a subscription whose topic is being deleted."""
        found: EntityRecord | None = record
        while found is not None and found.state != "deleting":
            try:
                found = await self.deleting(found, until)
            except (EntityChangedError, MessagingEntityNotFoundError):
                found = await self.read(record.path, until)
        if found is not None:
            await self._destroyed(found, until)
            await self._out(found, until)

    async def _with_its_topic(self, record: EntityRecord, until: float) -> bool:
        """Continue the deletion of a subscription's topic; return False if the topic is not being deleted."""
        if record.parent is None:
            return False
        topic = await self.read(record.parent, until)
        if topic is None or topic.state != "deleting":
            return False
        await self.settled(topic, until)
        return True

    # -- telling --------------------------------------------------------------------------------------------------

    async def told(self, record: EntityRecord, until: float, *, use: bool = False) -> None:
        """Give all partitions the settings of a record. ``use`` says that a user has changed the entity."""
        says = (
            f"The registry has version {record.version} of the settings of '{record.path}'; "
            "a partition may still have an older version."
        )
        try:
            with _saying(says):
                await self.partitions.everywhere(record, partial(self.partitions.tell, use=use), until)
        except MessagingEntityNotFoundError:
            await self.restored(record, until)
        if record.kind == "topic":
            await self.ask(self.registry.mark_told(record), until, record.path)

    async def _catch_up(self, topic: str, until: float) -> None:
        """Tell the partitions of a topic its version, unless another client has already done so."""
        seen = await self.look(topic, until)
        if seen is not None and seen.behind:
            await self.told(seen.record, until)

    async def restored(self, record: EntityRecord, until: float) -> EntityRecord:
        """Restore the missing partitions of an entity that is still in the registry.

        A failover may have lost these partitions. The other partitions get the settings of the record. If another
        client deletes the entity at the same time, this method notices it and deletes the restored partitions again.
        """
        # raises MessagingEntityNotFoundError if another client has deleted the entity
        found = (await self._found(record.path, until)).record
        if found.incarnation == record.incarnation:
            with _saying(
                f"Some lost partitions of '{found.path}' may not be restored yet: the next call continues that."
            ):
                await self.partitions.everywhere(found, self.partitions.make_again, until)
            now = await self.read(found.path, until)
            if now is not None and now.incarnation == found.incarnation:
                settled = await self.settled(now, until)
                if settled is not None:
                    return settled
            else:
                await self._destroyed(found, until)
        raise missing(self._namespace, record.path)

    async def _destroyed(self, record: EntityRecord, until: float) -> None:
        """Delete all partitions of an entity. The entities to which it has moved messages then forget it."""
        origins, destinations = await self.partitions.destroy(record, until)
        if destinations:
            await self._forgotten(record, origins, destinations, until)

    async def _forgotten(
        self, record: EntityRecord, origins: Sequence[Origin], destinations: Collection[str], until: float
    ) -> None:
        """Let the present destinations of an entity forget its partitions, which were destroyed.

        Other destinations keep a small entry for each partition until a mover finds that the entity is gone. The same
        holds for a destination that does not answer, so no error is raised.
        """
        paths = {path for name in DESTINATIONS if isinstance(path := record.properties.get(name), str)}

        async def forget(partition: Partition, until: float) -> None:
            await self.partitions.ask(partition.forget_source(origins, now=self.partitions.now()), until)

        for path in paths:
            with suppress(ServiceBusError):
                found = await self.read(path, until)
                if found is not None and found.id in destinations:
                    await self.partitions.everywhere(found, forget, until)


@contextmanager
def _saying(what: str) -> Generator[None]:
    """Add to an error the possible state after several steps, because the error itself reports only the last step."""
    try:
        yield
    except ServiceBusError as error:
        add_sentence(error, what)
        error.outcome = Outcome.UNKNOWN
        raise
