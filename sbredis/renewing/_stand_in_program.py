"""The program of the process that renews locks while another program cannot (:mod:`sbredis.renewing._stand_in`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from sbredis._tasks import wait_until
from sbredis.client import Connection
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.renewing._renewals import extended
from sbredis.renewing._stand_in import CoveredLock, LockNews, StandIn

_CALLING = 10.0
"""The most seconds that one call may take."""
_SHORTEST = 0.5
"""The least seconds for a call, even if the locks end earlier: in the partition they may hold a little longer."""


async def _stand_in() -> None:
    """Renew the locks of the program at the other ends of the pipes, until it ends."""
    loop, parent = asyncio.get_running_loop(), os.getppid()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    connection = Connection.of_other_process(await reader.readline())
    locks, changed, tasks = StandIn(), asyncio.Event(), set[asyncio.Task[None]]()

    async def hear() -> None:
        while line := await reader.readline():
            locks.hear(line)
            changed.set()

    async def connect() -> None:
        with suppress(ServiceBusError):  # the first renewal connects again
            await connection.open(loop.time() + _CALLING)

    async def renew(together: Sequence[CoveredLock]) -> None:
        first, keys = together[0], [lock.key for lock in together]
        left = min(lock.until for lock in together) - connection.clock.now()
        deadline = loop.time() + min(_CALLING, max(_SHORTEST, left))
        try:
            answer = await extended(connection, first.entity, first.number, keys, deadline)
        except MessagingEntityNotFoundError:
            _tell(locks.renewed(together, 0.0, keys))
        except ServiceBusError:
            locks.failed(together, connection.clock.now())
        else:
            _tell(locks.renewed(together, answer.until, answer.ended))
        changed.set()

    hearing = loop.create_task(hear())
    hearing.add_done_callback(lambda _: changed.set())
    await connect()  # this can take longer than a short lock
    _tell(())  # the program waits for a line
    while not hearing.done() and os.getppid() == parent:
        changed.clear()
        for together in locks.due(connection.clock.now()):
            task = loop.create_task(renew(together))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await wait_until(changed, loop.time() + locks.wait(connection.clock.now()))


def _tell(news: Sequence[LockNews]) -> None:
    sys.stdout.buffer.write(json.dumps(news).encode() + b"\n")
    sys.stdout.buffer.flush()


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a program that is told to end may hold locks for a while yet
        signal.signal(number, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        asyncio.run(_stand_in())
    os._exit(0)  # the program has ended, so nothing that is left to do matters


if __name__ == "__main__":
    _main()
