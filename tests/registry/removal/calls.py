"""The calls of the clients in the proof of removal, and what they do when their knowledge is out of date."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from sbredis.engine import (
    CallId,
    Destination,
    Lock,
    Partition,
    PartRefusedError,
    Received,
    Request,
    SettingsBehindError,
    SettingsStaleError,
    perform,
)
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.registry import EntityRecord
from sbredis.transport import Transport
from tests.engine.taking import first_token, receiving, run_of
from tests.registry.removal.turns import Client, Turns
from tests.registry.removal.witness import About, Entity, Witness

__all__ = ["FAR", "TRIES", "Calls"]

FAR = Destination("far", 1)
"""The destination of all moves. No test calls it."""
TRIES = 25
"""A user repeats a call after it has corrected its knowledge. After this number of tries, the entity stays closed."""


class Calls(Turns):
    """Calls of clients to single partitions."""

    transport: Transport

    def __init__(self, witness: Witness, chance: random.Random) -> None:
        super().__init__(witness, chance)
        self.partition: int | None = None
        """The partition that users call; None for any."""

    async def use(
        self,
        client: Client,
        path: str,
        make: Callable[[Partition, About], Request[Any]],
        *,
        once: bool = False,
        number: int | None = None,
    ) -> Any:
        """Call one partition, as a client does: what it knows may be out of date, and is corrected."""
        record = client.known.get(path) or await self.find(client, path)
        for _ in range(TRIES):
            partition = client.namespace.partition(record, self._partition_of(record) if number is None else number)
            try:
                about = About()
                request = make(partition, about)
                result = await self.ask(client, request, about)
            except SettingsStaleError:
                record = await self.find(client, path)
                self.witness.tally[f"a {client.role} reads {record.kind} again"] += 1
            except SettingsBehindError:
                await self.ask(client, partition.configure(now=self.witness.now))
            except MessagingEntityNotFoundError:
                record = await self.restored(client, record)
            else:
                return result
            if once:
                return None
        raise AssertionError(f"{path} stays closed")

    def _partition_of(self, record: EntityRecord) -> int:
        return self.chance.choice(record.partitions) if self.partition is None else self.partition

    async def ask(self, client: Client, request: Request[Any], about: About | None = None) -> Any:
        client.about = about or About()
        try:
            return await perform(client, request)
        except PartRefusedError as refusal:  # the one part of a transaction
            raise refusal.reason from None
        finally:
            client.about = About()

    async def find(self, client: Client, path: str) -> EntityRecord:
        before = self.witness.at(path)
        try:
            record = client.known[path] = await client.namespace.get_entity(path)
        except MessagingEntityNotFoundError:
            client.known.pop(path, None)
            after = self.witness.at(path)
            gone = after is None or after is not before or not self._is_complete(after)
            assert gone, f"{path} is not found, but it is {after.record.state if after else ''}"
            raise
        return record

    def _is_complete(self, entity: Entity) -> bool:
        parent = entity.record.parent
        topic = None if parent is None else self.witness.at(parent)
        return entity.record.state == "active" and (topic is None or topic.record.state != "deleting")

    async def restored(self, client: Client, record: EntityRecord) -> EntityRecord:
        found = await self.find(client, record.path)
        if found.incarnation == record.incarnation:
            found = client.known[record.path] = await client.namespace.restore_entity(found)
        return found

    def call_id(self) -> CallId:
        return CallId("", 0, self.witness.now)

    def receiving(self, partition: Partition, token: str, **how: Any) -> Request[Received]:
        """Return a request for one message."""
        return receiving(partition, token, 1, run=run_of(self.transport, partition), now=self.witness.now, **how)

    async def bury(self, client: Client, path: str, number: int) -> None:
        """Receive a message and move it to the dead-letter queue."""
        token = first_token()
        received = await self.use(client, path, lambda of, _: self.receiving(of, token), number=number)
        for message in received.messages:
            lock = Lock(token, message.name)
            await self.use(client, path, lambda of, _: of.dead_letter(self.call_id(), [lock]), number=number)  # noqa: B023

    async def move(self, client: Client, path: str, number: int, *, stops: float) -> None:
        """Move all messages of a partition that wait. With this chance, stop while the batch is outstanding."""
        waiting = await self.use(client, path, lambda of, _: of.outgoing(now=self.witness.now), number=number)
        if waiting.messages and not waiting.batches:
            await self.use(
                client,
                path,
                lambda of, _: of.freeze(waiting.birth, FAR, "far", waiting.messages, now=self.witness.now),
                number=number,
            )
        if self.chance.random() < stops:
            return
        batch = await self.use(client, path, lambda of, _: of.read_batch(FAR, now=self.witness.now), number=number)
        if not batch.batches:
            return

        def settle(of: Partition, about: About) -> Request[bool]:
            about.moved = len(batch.messages)
            about.waited = sum(each.state == "x" or each.name.startswith("d") for each in batch.messages)
            return of.settle_batch(batch.birth, FAR, batch.batches[0].number, "taken", now=self.witness.now)

        await self.use(client, path, settle, number=number)
