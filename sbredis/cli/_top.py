"""``sbredis top``: a live screen of all entities."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION
from sbredis.cli._terminal import Terminal, screen
from sbredis.cli._top_screen import Sample, Sight, ViewSettings, frame, pressed, row_of
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.aio.management import ServiceBusAdministrationClient
    from sbredis.model import PartitionRuntimeProperties, RuleProperties

__all__ = ["top"]

_READS = 200
"""The largest number of reads a second. Each partition of an entity costs two."""
_LISTING = 10.0
"""The seconds between two lists of the entities."""
_WIDTH = 100


@command("top", examples=["sbredis top", "sbredis top --sort dead --filter orders", "sbredis top --once --output json"])
@click.option("--every", type=DURATION, default="2s", metavar="DURATION", help="The time between two readings. [2s]")
@click.option("--sort", type=click.Choice(["name", "depth", "in", "out", "oldest", "consumers", "dead"]),
              default="depth", help="The first order of the rows. [depth]")  # fmt: skip
@click.option("--filter", "text", default="", metavar="TEXT", help="Only entities whose names contain this text.")
@click.option("--once", is_flag=True, help="Print one screen, and end.")
async def top(invocation: Invocation, *, every: timedelta, sort: str, text: str, once: bool) -> None:
    """Show all entities live: depth by state, rates, the oldest message, waiting receivers, dead letters.

    Keys: s or n d i o a c x sort, r reverses, / filters, p pauses, arrows scroll, q quits. The command makes at most
    200 short reads a second, two for each partition, so many partitions are read less often.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top needs a terminal. With --once it prints one screen.")
    view = ViewSettings(order=sort, filter=text)
    async with invocation.administration() as administration:
        sampler = _Sampler(administration, max(every.total_seconds(), 0.1))
        if once:
            await sampler.round()
            await asyncio.sleep(min(1.0, sampler.every))
            await sampler.round()
            _print(invocation, sampler, view)
            return
        await sampler.round()  # an error here is told before the screen is taken over
        with screen() as terminal:
            reading = asyncio.create_task(sampler.run())
            try:
                await _show(terminal, str(invocation.server), sampler, view)
            finally:
                reading.cancel()
                await asyncio.wait([reading])


def _print(invocation: Invocation, sampler: _Sampler, view: ViewSettings) -> None:
    sights = list(sampler.sights.values())
    if invocation.out.as_json:
        invocation.out.json([row_of(sight) for sight in sights if view.filter.lower() in sight.now.path.lower()])
        return
    width = _WIDTH
    if sys.stdout.isatty():
        with suppress(OSError):
            width = Terminal(sys.stdout.fileno()).size[0]
    for line in frame(str(invocation.server), sights, view, width):
        invocation.out.line(line)


async def _show(terminal: Terminal, title: str, sampler: _Sampler, view: ViewSettings) -> None:
    """Draw the screen after each reading, and after each key, until the user quits."""
    shown = list(sampler.sights.values())
    while not view.ended:
        if not view.paused:
            shown = list(sampler.sights.values())
        terminal.draw(frame(sampler.problem or title, shown, view, *terminal.size))
        key = asyncio.ensure_future(terminal.keys.get())
        news = asyncio.ensure_future(sampler.wait())
        try:
            await asyncio.wait({key, news}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if key.done():
                view = pressed(view, key.result())
        finally:
            key.cancel()
            news.cancel()


class _Sampler:
    """Reads the entities one after the other, again and again, slowly enough not to load the servers."""

    def __init__(self, administration: ServiceBusAdministrationClient, every: float) -> None:
        self.every = every
        self.sights: dict[str, Sight] = {}
        self.problem: str | None = None
        """Why nothing could be read, if that is so."""
        self._administration = administration
        self._clock = asyncio.get_running_loop().time
        self._listed_at = float("-inf")
        self._entities: list[_SampledEntity] = []
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Wait until something new was read."""
        await self._news.wait()
        self._news.clear()

    async def run(self) -> None:
        """Read for ever. An error is shown, and the next round tries again."""
        while True:
            await asyncio.sleep(self.every)
            try:
                await self.round()
                self.problem = None
            except ServiceBusError as error:
                self.problem = error.message
            self._news.set()

    async def round(self) -> None:
        """Read every entity once."""
        if self._clock() - self._listed_at >= _LISTING:
            await self._list()
        for entity in self._entities:
            began = self._clock()
            with suppress(MessagingEntityNotFoundError, DataLayoutError):  # the next list leaves it out
                reads = await self._read_rules(entity)
                partitions = [each async for each in self._administration.list_partitions(entity.path)]
                reads += 2 * len(partitions)
                sample = _sample(entity, partitions, self._clock())
                before = self.sights.get(entity.path)
                self.sights[entity.path] = Sight(sample) if before is None else before.then(sample)
                await asyncio.sleep(max(0.0, began + reads / _READS - self._clock()))

    async def _list(self) -> None:
        """Find the entities."""
        found = [_SampledEntity(queue.name) async for queue in self._administration.list_queues()]
        async for topic in self._administration.list_topics():
            found.append(_SampledEntity(topic.name))
            with suppress(MessagingEntityNotFoundError):
                async for each in self._administration.list_subscriptions(topic.name):
                    found.append(_SampledEntity(f"{topic.name}/subscriptions/{each.name}", (topic.name, each.name)))  # noqa: PERF401 -- an async iterator
        self._entities = found
        self._listed_at = self._clock()
        known = {entity.path for entity in found}
        self.sights = {path: sight for path, sight in self.sights.items() if path in known}

    async def _read_rules(self, entity: _SampledEntity) -> int:
        """Find out whether a subscription gets all messages of its topic, once for each list. Return the reads made."""
        if entity.subscription is None or entity.gets_all is not None:
            return 0
        rules = [rule async for rule in self._administration.list_rules(*entity.subscription)]
        entity.gets_all = gets_all(rules)
        return 1


@dataclass
class _SampledEntity:
    """An entity to read."""

    path: str
    subscription: tuple[str, str] | None = None
    """The names of the topic and of the subscription, if it is one."""
    gets_all: bool | None = None
    """Whether a subscription gets each message of its topic once; ``None`` before its rules are read."""


def gets_all(rules: Sequence[RuleProperties]) -> bool:
    """Return whether a subscription with these rules gets each message of its topic once.

    A rule with an action makes a copy of its own, beside the one of the rules without an action.
    """
    from sbredis.model import TrueRuleFilter

    return any(isinstance(rule.filter, TrueRuleFilter) for rule in rules) and (
        len(rules) == 1 or all(rule.action is None for rule in rules)
    )


def _sample(entity: _SampledEntity, partitions: Sequence[PartitionRuntimeProperties], at: float) -> Sample:
    """Return the sample of an entity. The numbers of a subscription are those of its topic."""
    is_known = entity.subscription is None or entity.gets_all
    oldest = [each.oldest_enqueued_at_utc for each in partitions if each.oldest_enqueued_at_utc is not None]
    states = ("active", "locked", "delayed", "deferred", "scheduled")
    return Sample(
        path=entity.path,
        at=at,
        counts={state: sum(getattr(each, f"{state}_message_count") for each in partitions) for state in states},
        dead=sum(each.dead_letter_message_count for each in partitions),
        oldest=max(0.0, (datetime.now(UTC) - min(oldest)).total_seconds()) if oldest else None,
        consumers=sum(each.waiting_receiver_count for each in partitions),
        arrived=sum(each.numbers_given_out for each in partitions) if is_known else None,
        unavailable=sum(not each.available for each in partitions),
    )
