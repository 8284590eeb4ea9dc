"""What all parts of one query share: its options, its client, and the browser of its entity."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import cpu_count
from typing import Any

from pyspark.sql.datasource import InputPartition

from sbredis.aio import ServiceBusClient
from sbredis.bulk import Browser, destination_of
from sbredis.exceptions import MessagesLostError, SparkSetupError
from sbredis.model import ServiceBusSubQueue
from sbredis.spark._loop import client_of, run
from sbredis.spark._offsets import Offsets
from sbredis.spark._options import QueryKind, QueryOptions
from sbredis.spark._planning import PartitionRange, limits, tasks_of
from sbredis.spark._secrets import server_of

__all__ = ["Query", "ReadTask"]

_log = logging.getLogger("sbredis.spark")

_SUB_QUEUES: Mapping[str | None, ServiceBusSubQueue | None] = {
    None: None,
    "deadLetter": ServiceBusSubQueue.DEAD_LETTER,
    "transferDeadLetter": ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
}


class ReadTask(InputPartition):
    """The work of one Python task of Spark: ranges of numbers of partitions of one incarnation of an entity."""

    def __init__(self, incarnation: str, ranges: Sequence[PartitionRange]) -> None:
        super().__init__(None)
        self.incarnation = incarnation
        self.ranges = tuple(ranges)

    @classmethod
    def all(
        cls, incarnation: str, ranges: Sequence[PartitionRange], task_limits: tuple[int, int]
    ) -> list[InputPartition]:
        """Return the tasks that read these ranges together."""
        return [cls(incarnation, each) for each in tasks_of(ranges, *task_limits)]


@dataclass(frozen=True)
class Query:
    """One query: what the user gave, and what it means. It can be pickled."""

    given: Mapping[str, str]
    options: QueryOptions

    @property
    def entity(self) -> str:
        """The path of the entity that is read."""
        assert self.options.entity is not None  # the options of a read name an entity
        return self.options.entity

    def offsets_from(self, stored: Mapping[str, Any]) -> Offsets:
        """Return offsets that Spark has stored. Refuse those of another query, before anything else is done."""
        offsets = Offsets.from_json(stored)
        offsets.refuse_other(self.entity, self.options.mode, self.options.sub_queue or "")
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

    async def browser(self, incarnation: str | None = None) -> Browser:
        """Return a browser of the entity that the options name.

        Processes of Spark live for long, and the entity may have been made again since this process has seen it. So
        this reads the registry, unless the entity is known under the ``incarnation`` that is wanted.
        """
        options = self.options
        browser = await Browser.open(
            await self.client(),
            self.entity,
            _SUB_QUEUES[options.sub_queue],
            # Scheduled messages have no enqueued time yet, so they are neither before nor after a time.
            scheduled=options.kind is QueryKind.BROWSE
            and options.starting_time is None
            and options.ending_time is None,
            timeout=options.timeout,
        )
        if browser.incarnation != incarnation:
            await browser.refresh()
        if browser.is_topic:
            raise SparkSetupError(
                f"'{browser.path}' is a topic, which holds no messages: read one of its subscriptions, with the "
                "options topic and subscription."
            )
        return browser

    @property
    def task_limits(self) -> tuple[int, int]:
        """The least and the largest number of tasks, by the options and by the cores of this machine."""
        return limits(self.options.least_tasks, self.options.most_tasks, cpu_count() or 1)
