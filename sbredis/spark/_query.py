"""What all parts of one query share: its options, its client, and the browsers of its entities."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import cpu_count
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from sbredis._quoting import quoted
from sbredis.aio import ServiceBusClient
from sbredis.bulk import Browser, PageLimits, destination_of, queues_like
from sbredis.engine import name_key
from sbredis.exceptions import (
    MessagesLostError,
    ServerUnsuitableError,
    ServiceBusAuthorizationError,
    SparkSetupError,
)
from sbredis.model import ServiceBusSubQueue
from sbredis.spark._loop import client_of, run
from sbredis.spark._offsets import Offsets
from sbredis.spark._options import QueryKind, QueryOptions
from sbredis.spark._planning import PartitionRange, TaskLimits, limits, tasks_of
from sbredis.spark._secrets import server_of
from sbredis.spark._turns import turns_of_machine

__all__ = ["Followed", "Query", "ReadTask", "read_limit"]

_log = logging.getLogger("sbredis.spark")

_SUB_QUEUES: Mapping[str | None, ServiceBusSubQueue | None] = {
    None: None,
    "deadLetter": ServiceBusSubQueue.DEAD_LETTER,
    "transferDeadLetter": ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
}


class ReadTask(InputPartition):
    """The work of one Python task of Spark: ranges of numbers of partitions of entities."""

    def __init__(self, incarnations: Mapping[str, str], ranges: Sequence[PartitionRange]) -> None:
        super().__init__(None)
        self.incarnations = {each.entity: incarnations[each.entity] for each in ranges}
        """The incarnation of each entity, by its path in the form in which names are compared."""
        self.ranges = tuple(ranges)
        self.tasks = 1
        """The number of tasks that read at the same time at most."""

    @classmethod
    def all(
        cls, incarnations: Mapping[str, str], ranges: Sequence[PartitionRange], task_limits: TaskLimits
    ) -> list[InputPartition]:
        """Return the tasks that read these ranges together."""
        tasks = [cls(incarnations, each) for each in tasks_of(ranges, task_limits)]
        for task in tasks:
            task.tasks = len(tasks)
        return list(tasks)


@dataclass(frozen=True)
class Query:
    """One query: what the user gave, and what it means. It can be pickled."""

    given: Mapping[str, str]
    options: QueryOptions
    cores: int = 0
    """The number of cores of all executors; 0 if it is not known."""

    async def paths(self) -> tuple[str, ...]:
        """Return the entities that are read. Raise :class:`SparkSetupError` if the pattern of their names has none."""
        choice = self.options.entities
        if choice.pattern is None:
            return choice.paths
        found = await queues_like(await self.client(), choice.includes, timeout=self.options.timeout)
        if not found:
            raise SparkSetupError(
                f"queuePattern matches no queue: the namespace has none with a name like {quoted(choice.pattern)}. The "
                "pattern is a regular expression for whole names."
            )
        return found

    def offsets_from(self, stored: Mapping[str, Any]) -> Offsets:
        """Return offsets that Spark has stored. Refuse those of another query, before anything else is done."""
        offsets = Offsets.from_json(stored)
        offsets.refuse_other(self.options.entities, self.options.mode, self.options.sub_queue or "")
        return offsets

    def meet_loss(self, where: str, lost: MessagesLostError) -> None:
        """Raise the error of a loss, or log it if ``failOnDataLoss=false`` accepts losses."""
        if self.options.fail_on_loss:
            raise lost
        _log.warning("%s: failOnDataLoss=false accepts this loss: %s", where, lost.message)

    async def client(self) -> ServiceBusClient:
        """Return the client of this process for the server of the query."""
        return await client_of(server_of(self.given))

    def check_destination(self) -> None:
        """Raise an error if rows cannot go to the entity that the options name."""
        if self.options.entity is not None:
            run(self.destination(self.options.entity))

    async def destination(self, entity: str) -> ServiceBusClient:
        """Return the client for an entity to which rows go, after a look at what the entity is now.

        Raises :class:`MessagingEntityNotFoundError` if there is none of this name, and :class:`SparkSetupError` if it
        does not fit the options.
        """
        client = await self.client()
        found = await destination_of(client, entity, timeout=self.options.timeout)
        named = {name.lower() for name in self.given} & {"queue", "topic"}
        if named and found.kind not in named:
            raise SparkSetupError(f"'{found.path}' is a {found.kind}: name it by the option {found.kind}.")
        if self.options.id_column is not None and not found.detects_duplicates:
            raise SparkSetupError(
                f"'{found.path}' does not detect duplicates, so it cannot recognise rows by idColumn: create it with "
                "requires_duplicate_detection=True, or leave out idColumn."
            )
        return client

    async def browser(self, path: str, incarnation: str | None = None) -> Browser:
        """Return a browser of an entity that is read.

        Processes of Spark live for long, and the entity may have been made again since this process has seen it. So
        this reads the registry, unless the entity is known under the ``incarnation`` that is wanted.
        """
        options = self.options
        try:
            browser = await self._open_browser(path)
        except (ServerUnsuitableError, ServiceBusAuthorizationError) as error:
            if not options.from_replica:
                raise
            raise SparkSetupError(f"readFrom=replica is not possible: {error.message}") from None
        if browser.incarnation != incarnation:
            await browser.refresh()
        if browser.is_topic:
            raise SparkSetupError(
                f"'{browser.path}' is a topic, which holds no messages: read one of its subscriptions, with the "
                "options topic and subscription."
            )
        return browser

    async def _open_browser(self, path: str) -> Browser:
        options = self.options
        return await Browser.open(
            await self.client(),
            path,
            _SUB_QUEUES[options.sub_queue],
            # Scheduled messages have no enqueued time yet, so they are neither before nor after a time.
            scheduled=options.kind is QueryKind.BROWSE
            and options.starting_time is None
            and options.ending_time is None,
            timeout=options.timeout,
            page_limits=PageLimits(options.page_rows, options.page_bytes),
            turn=turns_of_machine().at,
            from_replica=options.from_replica,
        )

    def task_limits(self, rows: int = 0) -> TaskLimits:
        """Return the limits of the tasks of a batch of up to ``rows`` rows, by the options and by the cores."""
        options = self.options
        cores = self.cores or cpu_count() or 1
        return limits(options.least_tasks, options.most_tasks, options.most_task_rows, cores, rows)


class Followed:
    """The entities of a stream. A pattern may match new queues while the stream runs."""

    def __init__(self, query: Query, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._clock = clock
        self._paths: tuple[str, ...] = ()
        self._found = 0.0

    async def paths(self, known: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the entities now. ``known`` are those of the offsets: a queue of them that is gone is a loss."""
        if not self._paths or (
            self._query.options.entities.pattern is not None and self._clock() - self._found >= _LOOKING
        ):
            found = await self._query.paths()
            self._found = self._clock()
            for gone in sorted(set(map(name_key, known)) - set(map(name_key, found))):
                lost = MessagesLostError(
                    f"'{gone}' was deleted since the last batch. With failOnDataLoss=false, the stream goes on "
                    "without it."
                )
                self._query.meet_loss(f"'{gone}'", lost)
            self._paths = found
        return self._paths


_LOOKING = 60.0
"""The seconds after which a stream looks for queues that its pattern matches."""


def read_limit(options: QueryOptions) -> ReadLimit:
    """Return the limit of a batch that the options set. All of them apply, whichever Spark is told."""
    if options.most_rows is not None:
        return ReadMaxRows(options.most_rows)
    if options.most_bytes is not None:
        return ReadMaxBytes(options.most_bytes)
    least = options.least_rows or int(options.least_bytes is not None)
    return ReadMinRows(least) if least else ReadAllAvailable()
