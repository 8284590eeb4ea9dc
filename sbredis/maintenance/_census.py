"""The census: all entities of a namespace. A client that has a role reads their changes.

The registry lies in buckets, one in each slot, and each bucket has a log of changes (the registry's README).
:mod:`sbredis.maintenance._bucket_logs` decides which buckets are read, and when. A bucket that has changed announces
this on the channel of its slot, and is read at once: usually one call with one record. So a census costs nothing while
nothing changes, however many entities there are.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client import CALLING, BackgroundTasks
from sbredis.engine import bucket_keys, bucket_of_id
from sbredis.exceptions import DataLayoutError, ServiceBusError
from sbredis.maintenance._bucket_logs import BucketLogs, LogPace
from sbredis.maintenance._slot_channels import SlotChannels, is_bucket_announcement
from sbredis.registry import Unreadable, UnreadableLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from sbredis.client import BackgroundFailures, Connection
    from sbredis.maintenance._bucket_logs import News
    from sbredis.registry import EntityRecord

__all__ = ["Census", "is_visited"]

_PAGE = 250
"""The number of records in a page."""
_DECODED = 50
"""The number of records that are decoded before other tasks may run. This takes a millisecond."""
_PORTION = 250
"""The number of entities that are looked at before other tasks may run."""
_READING = 5.0
"""The seconds after which a bucket that does not answer is left for later."""


def is_visited(record: EntityRecord) -> bool:
    """Return whether the partitions of an entity may need a visit.

    A queue or topic that is being removed does not: a visit would take its removal back.
    """
    return record.state != "deleting" if record.kind == "subscription" else record.state == "active"


class Census:
    """The entities of a namespace, as far as the logs of all buckets were read.

    All duties of a client share a census. It is read while at least one of them uses it.
    """

    def __init__(self, connection: Connection, failures: BackgroundFailures) -> None:
        self._connection = connection
        self._namespace = connection.namespace
        self._failures = failures
        self._pace = LogPace(round=connection.timings.reading_buckets)
        if connection.test_hooks is not None:
            self._pace = self._pace._replace(between=0.0)
        self._logs = BucketLogs(self._namespace.slots, self._pace)
        self._by_path: list[dict[str, EntityRecord]] = [{} for _ in range(self._namespace.slots)]
        """For each bucket its entities by path in lower case."""
        self._broken: dict[str, tuple[int, Unreadable]] = {}
        """The entities whose records cannot be read, by path, each with the number of its bucket."""
        self._errors: dict[int, ServiceBusError] = {}
        """The buckets whose last reading failed."""
        self._unreadable = UnreadableLog()
        self.by_id: dict[str, EntityRecord] = {}
        """All entities in every state, by their ids."""
        self.topics: dict[str, EntityRecord] = {}
        """The topics among them."""
        self._users: list[Callable[[Collection[str]], None]] = []
        self._newcomers: list[Callable[[Collection[str]], None]] = []
        """The users that do not know yet what was read before they came."""
        self._preparing: dict[str, Callable[[], None]] = {}
        """For each role for which the client prepares, the function to call when all entities are known."""
        self.known = False
        """Whether each bucket was read, or could not be read, since the census is read."""
        self._news = asyncio.Event()
        self._channels = SlotChannels(connection, failures, self._heard, self._missed)
        self._reads = BackgroundTasks("reading the registry", failures, self._news.set)
        self._applying = asyncio.Lock()

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether all buckets were read, and nothing newer is known to be unread."""
        return self._logs.whole

    def changed(self, record: EntityRecord) -> None:
        """Replace the record of an entity by a newer one."""
        if record.id in self.by_id:
            self.by_id[record.id] = record

    async def portions(self) -> AsyncIterator[list[str]]:
        """Yield the ids of all entities, some at a time. Between two portions other tasks run."""
        known = list(self.by_id)
        for start in range(0, len(known), _PORTION):
            yield known[start : start + _PORTION]
            await asyncio.sleep(0)

    async def find(self, entity_id: str) -> EntityRecord | None:
        """Return the entity with this id, in any state; ``None`` if it does not exist any more."""
        record = self.by_id.get(entity_id)
        return record if record is not None else await self._namespace.find_entity(entity_id, timeout=CALLING)

    # -- when to read --------------------------------------------------------------------------------------------------

    def use(self, changed: Callable[[Collection[str]], None]) -> Callable[[], None]:
        """Read the census from now on. Return a function that ends this.

        ``changed`` is called with the ids of entities that are new, have changed, or are gone. It is also called when
        the last bucket was read, even if nothing has changed.
        """
        self._begin()
        self._users.append(changed)
        self._newcomers.append(changed)
        self._news.set()

        def end() -> None:
            self._users.remove(changed)
            with suppress(ValueError):
                self._newcomers.remove(changed)
            self._news.set()

        return end

    def prepare(self, role: str, known: Callable[[], None] | None) -> None:
        """Read the census slowly, so that this client can soon have a role; with ``None``, end that.

        ``known`` is called when all entities are known.
        """
        if known is None:
            self._preparing.pop(role, None)
        elif role not in self._preparing:
            self._begin()
            self._preparing[role] = known
        self._news.set()

    @property
    def _is_read(self) -> bool:
        return bool(self._users or self._preparing)

    def _begin(self) -> None:
        if not self._is_read:
            self.known = False
            self.read_now()  # announcements were not heard before

    def doubt_entity(self, entity_id: str) -> None:
        """Read the bucket of an entity that is not known, or is believed to be gone."""
        number = bucket_of_id(entity_id, self._namespace.slots)
        if number is not None:
            self.doubt(number)

    def read_now(self) -> None:
        """Read all buckets, because an entity may have been created or deleted."""
        self._logs.missed_everywhere()
        self._news.set()

    def doubt(self, number: int) -> None:
        """Read a bucket, because what is known of an entity there may be out of date."""
        self._logs.heard(number)
        self._news.set()

    def _heard(self, number: int, payload: bytes) -> None:
        if is_bucket_announcement(payload):
            self.doubt(number)

    def _missed(self, number: int) -> None:
        self._logs.missed(number)
        self._news.set()

    async def run(self) -> None:
        """Read the changes of all buckets, until the task is cancelled."""
        loop, everywhere = asyncio.get_running_loop(), frozenset(range(self._namespace.slots))
        try:
            while True:
                self._news.clear()
                if not self._is_read:
                    self._channels.choose(frozenset())
                    await self._news.wait()
                    continue
                if self._channels.choose(everywhere):
                    await self._channels.opened()  # a bucket that is read before it is heard must be read again
                await self._welcome()
                self._begin_reads(self._logs.begin(loop.time(), hurries=bool(self._users)))
                await wait_until(self._news, loop.time() + self._logs.seconds(loop.time()))
        finally:
            self._channels.choose(frozenset())
            await self._reads.cancel()

    async def _welcome(self) -> None:
        """Tell new users what is known already."""
        while self._newcomers:
            newcomer = self._newcomers.pop()
            async for portion in self.portions():
                self._failures.guard("a use of the list of entities", partial(newcomer, portion))

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read all changes that there are now. Raise an error if a bucket cannot be read."""
        loop = asyncio.get_running_loop()
        self._logs.missed_everywhere()
        self._errors.clear()
        while not self._logs.whole:
            self._begin_reads(self._logs.begin(loop.time()))
            if self._reads:
                await self._reads.wait()
            elif not self._logs.whole:
                await asyncio.sleep(self._logs.seconds(loop.time()))
            for error in self._errors.values():
                raise error

    def _begin_reads(self, numbers: Iterable[int]) -> None:
        """Begin to read these buckets. Those that a test bus knows to be missing need no call."""
        now = asyncio.get_running_loop().time()
        for number in numbers:
            if self._is_missing(number):
                self._apply(number, self._logs.took(number, None, now), {})
            else:
                self._reads.start(self._read(number))

    def _is_missing(self, number: int) -> bool:
        namespace, hooks = self._namespace, self._connection.test_hooks
        if hooks is None:
            return False
        return not hooks.has(self._connection.target, bucket_keys(namespace.name, namespace.salt(number))[0])

    async def _read(self, number: int) -> None:
        """Read the next changes of a bucket. If this fails, it is read again after a pause."""
        loop, log = asyncio.get_running_loop(), self._logs.logs[number]
        try:
            changes = await self._namespace.changes(number, log.after, _PAGE, timeout=_READING)
            self._errors.pop(number, None)
            async with self._applying:  # what many replies say is not decoded in one go
                found = await self._decoded(() if changes is None else changes.records)
                self._apply(number, self._logs.took(number, changes, loop.time()), found)
                await asyncio.sleep(0)
        except ServiceBusError as error:
            self._failures.report(f"the reading of the registry in slot {number}", error)
            self._errors[number] = error
            self._logs.failed(number, loop.time())
        except BaseException:
            self._logs.failed(number, loop.time())
            raise
        if not self.known and self._logs.tried:
            self.known = True
            for role, known in list(self._preparing.items()):
                self._failures.guard(f"the preparation for the role {role!r}", known)

    async def _decoded(
        self, records: Sequence[tuple[str, bytes | None]]
    ) -> dict[str, EntityRecord | Unreadable | None]:
        """Decode records, some at a time. Between two portions other tasks run."""
        found: dict[str, EntityRecord | Unreadable | None] = {}
        for start in range(0, len(records), _DECODED):
            for path, text in records[start : start + _DECODED]:
                try:
                    found[path] = None if text is None else self._namespace.decode(path, text)
                except DataLayoutError as error:
                    found[path] = Unreadable(path, text or b"", error)
            await asyncio.sleep(0)
        return found

    def _apply(self, number: int, news: News, found: Mapping[str, EntityRecord | Unreadable | None]) -> None:
        """Note what a reply says of the entities of a bucket, and tell all users. ``found`` has its decoded records."""
        there, changed = self._by_path[number], set[str]()
        for path, _ in news.records:
            changed |= self._note(number, path, found[path])
        if news.only is not None:
            for path in [path for path in there if path not in news.only]:
                changed |= self._note(number, path, None)
            of_bucket = [path for path, (bucket, _) in self._broken.items() if bucket == number]
            for path in of_bucket:
                if path not in news.only:
                    del self._broken[path]
        log = self._logs.logs[number]
        if log.whole and any(bucket == number for bucket, _ in self._broken.values()):
            log.restart()  # a record that is mended by hand is no change of the log
        self._unreadable.note_all(broken for _, broken in self._broken.values())
        self._tell(changed)

    def _note(self, number: int, path: str, found: EntityRecord | Unreadable | None) -> set[str]:
        """Note the record of an entity. Return the ids of the entities that have changed, or are gone."""
        there = self._by_path[number]
        before, record = there.pop(path, None), None
        self._broken.pop(path, None)
        if isinstance(found, Unreadable):
            self._broken[path] = number, found
        else:
            record = found
        changed = {each.id for each in (before, record) if each is not None} if before != record else set[str]()
        if before is not None and (record is None or record.id != before.id):
            self.by_id.pop(before.id, None)
            self.topics.pop(before.id, None)
        if record is not None:
            there[path] = self.by_id[record.id] = record
            if record.kind == "topic":
                self.topics[record.id] = record
        return changed

    def _tell(self, changed: Collection[str]) -> None:
        if not changed and not self.whole:
            return
        for user in self._users:
            if user not in self._newcomers:
                self._failures.guard("a use of the list of entities", partial(user, changed))
