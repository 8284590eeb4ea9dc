"""All buckets of a namespace: what they contain together, the limits of the namespace, and the list of its entities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from sbredis._counting import counted
from sbredis._tasks import loop_time
from sbredis.engine import Request, bucket_of_id, name_key
from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.registry._entity import EntityRecord, decode
from sbredis.registry._merging import BucketMerge, BucketRead
from sbredis.registry._refusals import (
    IncompleteListError,
    NamespaceLimitedError,
    add_sentence,
    head_refusals,
    over_limit,
)
from sbredis.registry._registry import (
    BucketChanges,
    BucketCounts,
    Listing,
    NamespaceFacts,
    NamespaceHead,
    read_namespace,
    register_namespace,
)
from sbredis.registry._steps import PATIENCE, Steps
from sbredis.registry._unreadable import Unreadable, onward_of, read_all

__all__ = ["Buckets", "EntityList"]

T = TypeVar("T")

_DECODED = 100
"""The number of records that are decoded before other tasks may run."""


class _Checked(Protocol[T]):
    """Makes a request that says whether the limits of the namespace were checked."""

    def __call__(self, *, checked: bool) -> Request[T]: ...


class Buckets:
    """The buckets of a namespace. ``until`` is the time to give up, by the clock of the event loop."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    # -- the head of the namespace ------------------------------------------------------------------------------------

    async def begin(self, path: str, until: float) -> None:
        """Begin the bucket of an entity, and create the namespace if it is missing."""
        registry = self._steps.registry
        head = await self._registered(until)
        await self._steps.ask(registry.begin(registry.bucket_of(path), limited=head.limited), until)

    async def facts(self, until: float) -> NamespaceFacts:
        """Return the facts of the namespace, which is created if it is missing, and the sums of all buckets."""
        registry = self._steps.registry
        head = await self._steps.ask(read_namespace(registry.namespace, registry.slots), until)
        if head is None:
            head = await self._registered(until)
        found: list[BucketCounts] = []

        def took(_: int, counts: BucketCounts | None) -> None:
            if counts is not None:
                found.append(counts)

        failed = await self._each(range(registry.slots), registry.counts, took, until)
        if len(failed) == registry.slots:
            raise failed[0]
        return NamespaceFacts(
            head.slots,
            head.created_at,
            sum(each.entities for each in found),
            sum(each.subscriptions for each in found),
            sum(each.megabytes for each in found),
            head.most_entities,
            head.most_megabytes,
            tuple(sorted(failed)),
        )

    async def limit(self, entities: int | None, megabytes: int | None, until: float) -> NamespaceFacts:
        """Limit the number of entities, and the sum of the sizes of queues and topics; ``None`` is no limit."""
        registry = self._steps.registry
        await self._registered(until)
        codes = head_refusals(registry.namespace)
        head = await self._steps.ask(registry.limit(entities, megabytes), until, codes=codes)

        def begin(number: int) -> Request[None]:
            return registry.begin(number, limited=head.limited, exact=True)

        failed = await self._each(range(registry.slots), begin, lambda _number, _none: None, until)
        for error in failed.values():
            error.unreachable_partitions = tuple(sorted(failed))
            add_sentence(
                error,
                "The limits are stored, but not yet in force for entities whose names belong to these slots of the "
                f"namespace: {_listed(failed)}. Set the limits again.",
            )
            error.outcome = Outcome.UNKNOWN
            raise error
        return await self.facts(until)

    async def within_limits(self, request: _Checked[T], until: float, about: str, *, begins: bool = False) -> T:
        """Make a call that may add entities or megabytes. If the namespace has limits, check them first.

        ``request`` makes the call; its argument says whether the limits were checked. Two changes that are checked at
        the same moment may pass a limit together. ``begins`` says that the caller begins the bucket if it is missing,
        so it does not matter why the bucket is missing.
        """
        ask = self._steps.ask_bucket if begins else self._steps.ask
        try:
            return await ask(request(checked=False), until, about)
        except NamespaceLimitedError as error:
            entities, megabytes = error.additions
        facts = await self.facts(until)
        if facts.unreachable:
            raise ServiceBusCommunicationError(
                f"'{about}' was not changed, because the limits of the namespace could not be checked: these slots of "
                f"the namespace could not be reached: {_listed(facts.unreachable)}.",
                outcome=Outcome.REFUSED,
            )
        over = over_limit(self._steps.registry.namespace, about, facts, entities, megabytes)
        if over is not None:
            raise over
        return await ask(request(checked=True), until, about)

    async def _registered(self, until: float) -> NamespaceHead:
        registry = self._steps.registry
        return await self._steps.ask(register_namespace(registry.namespace, registry.slots, exact=True), until)

    # -- changes and ids -----------------------------------------------------------------------------------------------

    async def changes(self, number: int, after: int, limit: int, until: float) -> BucketChanges | None:
        """Return changes of a bucket after a number; ``None`` if the bucket does not exist."""
        return await self._steps.ask_bucket(self._steps.registry.changes(number, after, limit), until)

    async def find(self, entity_id: str, until: float) -> EntityRecord | None:
        """Return the entity with this id, if it exists."""
        registry = self._steps.registry
        number = bucket_of_id(entity_id, registry.slots)
        if number is None:
            return None
        return await self._steps.ask_bucket(registry.find(number, entity_id), until)

    # -- lists ---------------------------------------------------------------------------------------------------------

    async def read_pages(
        self,
        reads: Iterable[BucketRead],
        took: Callable[[BucketRead, list[tuple[bytes, bytes]] | None], None],
        until: float,
    ) -> Mapping[int, ServiceBusError]:
        """Read pages of buckets, and pass each to ``took``. Return the errors of those that cannot be read."""
        registry, by_number = self._steps.registry, {read.number: read for read in reads}

        def request(number: int) -> Request[list[tuple[bytes, bytes]] | None]:
            return registry.listed(*by_number[number])

        return await self._each(by_number, request, lambda number, rows: took(by_number[number], rows), until)

    async def _each(
        self,
        numbers: Iterable[int],
        request: Callable[[int], Request[T]],
        took: Callable[[int, T], None],
        until: float,
    ) -> Mapping[int, ServiceBusError]:
        """Make a call to each of these buckets, and return the errors of those that do not answer.

        A bucket that does not answer delays the others no longer than once.
        """
        failed = dict[int, ServiceBusError]()
        patient = min(until, loop_time() + PATIENCE)  # all are asked at once, so none waits behind a silent server

        async def one(number: int) -> None:
            try:
                answer = await self._steps.ask_bucket(request(number), patient)
            except ServiceBusError as error:
                failed[number] = error
            else:
                took(number, answer)

        async with asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(one(number))
        return failed


class EntityList:
    """All queues and topics of a namespace after a name, in the order of their names in lower case.

    Each bucket is read once, however many pages the caller wants. Buckets that cannot be read are left out; then
    :attr:`error` says so, and callers raise it when they have shown the other entities.
    """

    def __init__(self, steps: Steps, after: str = "") -> None:
        self._buckets = Buckets(steps)
        self._steps = steps
        self._merge = BucketMerge(steps.registry.slots, name_key(after).encode())
        self._failed: dict[int, ServiceBusError] = {}
        self.last = after
        """The name of the last entity that was read, in lower case if it is not the beginning."""

    @property
    def ended(self) -> bool:
        """Whether the list has no more entities."""
        return self._merge.ended

    @property
    def error(self) -> IncompleteListError | None:
        """The error that some buckets are missing in the list, as far as it was read."""
        if not self._failed:
            return None
        first = next(iter(self._failed.values()))
        error = IncompleteListError(
            "The list lacks the entities whose names belong to "
            f"{counted(len(self._failed), 'slot')} of the namespace, because the registry could not be read there: "
            f"{_listed(self._failed)}. {first.message}",
            outcome=first.outcome,
        )
        error.unreachable_partitions = tuple(sorted(self._failed))
        error.__cause__ = first
        return error

    async def next(self, limit: int, until: float) -> Listing[EntityRecord]:
        """Return the next page of up to ``limit`` entities, also with those whose records cannot be read.

        A page does not end with a name that no caller can give back. Then it has more entities.
        """
        found: list[EntityRecord | Unreadable] = []
        returnable = True
        while (len(found) < limit or not returnable) and not self._merge.ended:
            reads = self._merge.to_read()
            if reads:
                await self._read(reads, until)
            rows = self._merge.take(max(1, min(limit - len(found), _DECODED)))
            for row in rows:
                found += read_all(list(row), lambda name, text: decode(text, name, self._steps.registry.slots))
                onward = onward_of(row[0])
                returnable, self.last = onward is not None, onward or self.last
            await asyncio.sleep(0)
        records = tuple(each for each in found if isinstance(each, EntityRecord))
        unreadable = tuple(each for each in found if isinstance(each, Unreadable))
        return Listing(records, unreadable, None if self._merge.ended else self.last)

    async def _read(self, reads: list[BucketRead], until: float) -> None:
        missing = 0

        def took(read: BucketRead, rows: list[tuple[bytes, bytes]] | None) -> None:
            nonlocal missing
            missing += rows is None
            self._merge.took(read, rows or ())

        failed = await self._buckets.read_pages(reads, took, until)
        for number, error in failed.items():
            self._merge.failed(number)
            self._failed[number] = error
        slots = self._steps.registry.slots
        if len(self._failed) == slots:
            raise next(iter(self._failed.values()))
        if missing == slots:
            await self._steps.require_namespace(until)


def _listed(numbers: Iterable[int]) -> str:
    """Return numbers in order, runs of neighbours as their first and their last: a master has long runs of slots."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
