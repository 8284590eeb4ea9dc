"""Clients whose calls wait for their turn. Only one call is made at a time, so the order of all calls is known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusError
from sbredis.registry import EntityRecord, Namespace
from sbredis.transport import Argument, Script
from tests.registry.removal.witness import NAMESPACE, PARTITIONS, About, Witness

__all__ = ["REGISTRY", "Client", "Turns", "Waiting"]

REGISTRY = -1
"""The registry, among the numbers of partitions that cannot be reached."""


@dataclass
class Waiting:
    """A call that waits for its turn."""

    client: Client
    script: Script
    keys: Sequence[bytes]
    arguments: Sequence[Argument]
    about: About
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Client:
    """A client with its own knowledge of the entities, which may be out of date."""

    def __init__(self, turns: Turns, role: str) -> None:
        self.turns = turns
        self.role = role
        self.about = About()
        self.known: dict[str, EntityRecord] = {}
        self.namespace = Namespace(self, NAMESPACE, PARTITIONS, 0, lambda: turns.witness.now)

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument] = (), **_: Any) -> Any:
        call = Waiting(self, script, keys, arguments, self.about)
        self.turns.waiting.append(call)
        return await call.answer


class Turns:
    """The calls that wait, and the witness of those that are made."""

    def __init__(self, witness: Witness, chance: random.Random) -> None:
        self.witness = witness
        self.chance = chance
        self.waiting: list[Waiting] = []
        self.sealed: set[int] = set()
        """The partitions that cannot be reached."""
        self.steps = 0

    async def let_through(self, call: Waiting, *, arrives: bool = True, answers: bool = True) -> None:
        """Make a call, and return once all tasks wait again or have ended."""
        self.steps += 1
        self.waiting.remove(call)
        reply, refused = None, None
        try:
            if arrives:
                reply = await self.witness.call(call.client.role, call.script, call.keys, call.arguments, call.about)
        except ServiceBusError as error:
            refused = error
        if not arrives or not answers:
            refused = ServiceBusCommunicationError("There was no answer.", outcome=Outcome.UNKNOWN)
        if not call.answer.done():
            if refused is None:
                call.answer.set_result(reply)
            else:
                call.answer.set_exception(refused)
        await self._quiet()

    async def alone(self, client: Client, what: str, work: Callable[[], Awaitable[object]]) -> None:
        """Let one client work."""
        await self.together([(client, what, work)], 0)

    async def _quiet(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def _is_sealed(self, call: Waiting) -> bool:
        place = self.witness.place(call.keys)
        return (REGISTRY if place is None else place[1]) in self.sealed

    async def together(
        self,
        works: Sequence[tuple[Client, str, Callable[[], Awaitable[object]]]],
        dying: float,
        *,
        held_back: int | None = None,
        steady: float = 1.0,
        dies: Callable[[Waiting], bool] = lambda _: False,
    ) -> None:
        """Let clients work at the same time, and let removers die with this chance at each of their calls, and at those
        for which ``dies`` returns true.

        The other clients are held back for this number of calls, so that they meet every step of a removal. Then they
        make several calls in a row, with the chance ``steady``. Without a number, both are drawn.
        """
        tasks = {client: asyncio.create_task(self._watched(client, what, work)) for client, what, work in works}
        await self._quiet()
        made, last = 0, None
        if held_back is None:
            held_back, steady = self.chance.choice((0, self.chance.randrange(30))), self.chance.choice((0.0, 0.7))
        while self.waiting:
            of_removers = [each for each in self.waiting if each.client.role == "remover"]
            again = [each for each in self.waiting if each.client is last]
            if again and made >= held_back and self.chance.random() < steady:
                call = self.chance.choice(again)
            else:
                call = self.chance.choice((made < held_back and of_removers) or self.waiting)
            made += 1
            if call.client.role != "remover":
                last = call.client
            if call.client.role == "remover" and (self.chance.random() < dying or dies(call)):
                await self._die(call, tasks[call.client])
            elif self._is_sealed(call):
                self.witness.tally[f"unreachable for {call.client.role}"] += 1
                await self.let_through(call, arrives=self.chance.random() < 0.3, answers=False)
            else:
                await self.let_through(call)
        for task in tasks.values():
            await task

    async def _die(self, call: Waiting, task: asyncio.Task[None]) -> None:
        """End a remover. Each of the calls that it has sent may still arrive, also much later."""
        for sent in [each for each in self.waiting if each.client is call.client]:
            arrives = self.chance.random() < 0.6
            what = "a change of the registry" if call.script.name.startswith("revise_") else call.script.name
            self.witness.tally[f"remover died {'after' if arrives else 'before'} {what}"] += sent is call
            if not arrives:
                self.waiting.remove(sent)
        task.cancel()
        await self._quiet()

    async def _watched(self, client: Client, what: str, work: Callable[[], Awaitable[object]]) -> None:
        error: BaseException | None = None
        try:
            await work()
        except (ServiceBusError, asyncio.CancelledError) as ended:
            error = ended
        self.witness.ended(client.role, what, error)
