"""Workers that are killed while the ticks of a schedule come: each tick is sent once, and none is left out.

``python -m tests.workers.killed_schedules 50`` kills 50 workers; the suite kills fewer.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusReceivedMessage
from sbredis.servers import LocalServer
from tests.children import child
from tests.waiting import eventually
from tests.workers.chaos.journal import Ends, Journal, handled_without_right

__all__ = ["kill_workers"]

_PATIENCE = 240.0
"""The seconds in which workers start on a busy machine."""

APP = """
    import os
    from datetime import timedelta
    from sbredis.workers import Context, Worker
    from tests.workers.chaos.notes import note_done, note_start, noting

    worker = Worker(os.environ["BUS"], middleware=[noting])

    @worker.cron(every=timedelta(seconds=1), name="ticking", missed="all", overlap="queue")
    async def tick(context: Context) -> None:
        note_start(str(context.message), context)
        context.send("handled", "", message_id=context.message.message_id)
        note_done(str(context.message), context)
"""


async def kill_workers(url: str, folder: Path, *, workers: int, kills: int, restart: bool) -> list[str]:
    """Start workers, and kill one after the other. Return the ids of all ticks, in their order.

    No handler starts for a tick whose handler has started already, because no lock ends while the workers run.
    """
    (folder / "app.py").write_text(textwrap.dedent(APP))
    running: list[asyncio.subprocess.Process] = []
    journal, ends = Journal(folder), Ends()
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("ticking")
        await client.ensure_queue("handled", colocate_with="ticking")  # no message waits to be moved by a killed worker
        async with AsyncExitStack() as stack:
            log = stack.enter_context((folder / "log").open("ab"))

            async def start() -> None:
                given, env = ("-m", "sbredis.workers", "app:worker"), {"BUS": url, "JOURNAL": str(folder)}
                running.append(await stack.enter_async_context(child(*given, cwd=folder, env=env, stderr=log)))

            for _ in range(workers):
                await start()
            await eventually(lambda: _ids_in(client, "handled"), _PATIENCE)
            for _ in range(kills):
                count = len(await _ids_in(client, "handled"))
                await asyncio.sleep(random.random())  # a moment before, at or after a tick
                victim = running.pop(0)
                ends.killed[victim.pid] = time.time()
                victim.kill()
                await victim.wait()
                if restart:
                    await start()
                await eventually(lambda least=count + 2: _at_least(client, least), _PATIENCE)
            for process in running:
                process.terminate()
            for process in running:
                assert await process.wait() in (0, -signal.SIGTERM)  # one that is starting has no handler of signals
        wrong = handled_without_right(journal.handlings(), ends)
        assert not wrong, "\n".join(wrong[:10])
        left = await _ids_in(client, "ticking")  # a killed worker had them
        return sorted([*left, *await _ids_in(client, "handled")])


def gaps(ids: Sequence[str]) -> list[str]:
    """Return the ticks that come twice, and the gaps between ticks."""
    times = [datetime.fromisoformat(each.partition("@")[2]) for each in ids]
    return [f"{one} {other}" for one, other in pairwise(times) if other - one != timedelta(seconds=1)]


async def _at_least(client: ServiceBusClient, count: int) -> bool:
    return len(await _ids_in(client, "handled")) >= count


async def _ids_in(client: ServiceBusClient, queue: str) -> list[str]:
    """Return the ids of all messages in a queue; an empty list if there is no such queue yet."""
    found: list[ServiceBusReceivedMessage] = []
    receiver = client.get_queue_receiver(queue)
    while page := await receiver.peek_messages(1000):
        found += page
    return [str(each.message_id) for each in found]


def main() -> int:
    """Kill workers until the number that the command line gives is reached, and print what was found."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with LocalServer() as server, tempfile.TemporaryDirectory() as folder:
        ids = asyncio.run(kill_workers(server.url, Path(folder), workers=4, kills=kills, restart=True))
    wrong = gaps(ids)
    sys.stdout.write(f"{kills} workers killed, {len(ids)} ticks, {len(wrong)} sent twice or left out: {wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
