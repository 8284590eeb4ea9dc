"""Messages whose handlers kill their processes, among many others."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sbredis.model import ServiceBusReceivedMessage, ServiceBusSubQueue
from sbredis.servers import LocalServer
from tests.waiting import eventually_in_steps
from tests.workers.chaos.journal import summary
from tests.workers.chaos.programs import Town, crowd

__all__ = ["poison"]

DELIVERIES = 3
TURN = 3.0
"""The seconds for which a suspect is handled alone. One that takes longer goes on beside others, and may die, too."""
WAITING = 80
"""The number of messages that wait in all entities while there are workers to kill."""


async def poison(server: LocalServer, folder: Path, times: int, kinds: tuple[str, ...], workers: int) -> str:
    """Send messages that kill among others, until workers have died this number of times.

    All others are completed. Those that kill become dead letters. No handler starts more often than the entity allows.
    It may start less often: another message may have killed the worker between the reception and the start. With
    handlers in processes, a worker survives them.
    """
    chance = random.Random(times)
    async with crowd(server.url, folder, kinds, workers, deliveries=DELIVERIES) as town:
        town.takes = (0.0, 0.01, 0.1, 0.3)
        replacing = asyncio.create_task(town.replace_dead())
        try:
            while len(town.ends.killed) < times:
                assert not replacing.done(), replacing.exception()
                town.journal.look()
                if len(town.sent) - len(town.journal.begun) < WAITING:
                    for kind in kinds:
                        await town.send(kind, 4)
                    if len(town.killers) * DELIVERIES < times + len(town.ends.killed):
                        town.killers.add(len(town.sent))
                        await town.send(chance.choice(kinds), 1)
                await asyncio.sleep(0.5)
            await finished(town, replacing)
        finally:
            replacing.cancel()
            await asyncio.gather(replacing, return_exceptions=True)
        buried = await dead_in(town)
        named = await require_signal(town)
        assert buried >= town.killers, f"messages that kill are no dead letters: {town.killers - buried}"
        starts = Counter[int]()
        for each in town.handlings():
            starts[each.message] += len(each.starts)
        often = {number: count for number, count in starts.items() if count > DELIVERIES}
        assert not often, f"handlers have started so often: {often}"
        town.unsafe |= buried
        faults = town.faults()
        assert not faults, "\n".join([f"{len(faults)} faults", *faults[:10]])
        slow = len(buried - town.killers)
        return (
            f"{len(town.killers)} messages killed {len(town.ends.killed)} workers; {summary(town.handlings())}; "
            f"{slow} others died after a turn that was too short for them; {named} dead letters name the signal"
        )


async def finished(town: Town, replacing: asyncio.Task[None]) -> None:
    """Wait until all messages are handled, and those that kill are dead letters. Fail if nothing happens any more."""

    async def over() -> bool:
        if replacing.done():  # a worker has ended in another way than by a kill
            replacing.result()
        buried = await dead_in(town)
        wrongly = {number for number in buried - town.killers if not outlasted_its_turn(town, number)}
        assert not wrongly, f"messages that kill nobody are dead letters: {sorted(wrongly)}"
        done = buried >= town.killers and town.journal.done | buried >= set(town.sent)
        return done and await town.left() == len(buried)

    try:
        await eventually_in_steps(over, lambda: len(town.journal.lines()))
    except AssertionError as error:
        raise AssertionError(f"{error}; {await what_is_left(town)}") from None


def outlasted_its_turn(town: Town, number: int) -> bool:
    """Return whether a message had been handled for longer than it is alone when its last holder died."""
    last = max((each for each in town.handlings() if each.message == number), key=lambda each: each.fence, default=None)
    return last is not None and town.ends.killed.get(last.pid, last.began) - last.began >= TURN


async def what_is_left(town: Town) -> str:
    """Return what is not as it should be in the end."""
    waiting = {
        kind: [
            (json.loads(str(each))["id"], each.delivery_count, each.is_suspect, each.session_id)
            for each in await town.client.get_queue_receiver(kind).peek_messages(10, sequence_number=1)
        ]
        for kind in town.kinds
    }
    buried = await dead_in(town)
    missing = sorted({*town.sent} - town.killers - town.journal.done)[:10]
    dead = sorted(buried - town.killers), sorted(town.killers - buried)
    return f"not done: {missing}; waiting: {waiting}; wrongly dead, and not dead: {dead}"


async def dead_letters(town: Town, kind: str) -> Sequence[ServiceBusReceivedMessage]:
    receiver = town.client.get_queue_receiver(kind, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    return await receiver.peek_messages(1000, sequence_number=1)


async def dead_of(town: Town, kind: str) -> list[int]:
    """Return the numbers of the dead letters of an entity."""
    return [json.loads(str(message))["id"] for message in await dead_letters(town, kind)]


async def require_signal(town: Town) -> int:
    """Require that a dead letter names the signal if the process of a handler has ended. Return how many do.

    If the worker itself has died at the last delivery, the partition buries the message, and knows no signal.
    """
    reasons = Counter[tuple[str | None, str | None]]()
    for message in await dead_letters(town, "process") if "process" in town.kinds else ():
        reasons[message.dead_letter_reason, message.dead_letter_error_description] += 1
    named = reasons.pop(("HandlerProcessDied", "The process of the handler ended with the signal SIGKILL."), 0)
    silent = {each: count for each, count in reasons.items() if each[0] != "MaxDeliveryCountExceeded"}
    assert not silent, f"dead letters that do not name the signal: {silent}"
    return named


async def dead_in(town: Town) -> set[int]:
    """Return the numbers of all dead letters."""
    return {number for kind in town.kinds for number in await dead_of(town, kind)}
