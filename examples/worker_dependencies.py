"""Handlers say which objects they need, and the worker makes them: for all messages, or for each message.

python examples/worker_dependencies.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator, Generator
from typing import Annotated

from sbredis.workers import Depends, Property, Router, Worker

handlers = Router()
done = asyncio.Event()


async def get_database() -> AsyncGenerator[sqlite3.Connection]:
    """Open the database once, and close it when the worker ends."""
    database = sqlite3.connect(":memory:")
    database.execute("create table orders (tenant text, article text)")
    print("the database is open")
    yield database
    print(*database.execute("select tenant, article from orders order by rowid"), sep="\n")
    database.close()


Database = Annotated[sqlite3.Connection, Depends(get_database, scope="app")]


def get_cursor(database: Database) -> Generator[sqlite3.Cursor]:
    """Give each message a transaction of its own. It ends before the message is completed."""
    with database:  # commits, or rolls back if the handler raises
        yield database.cursor()


@handlers.queue("orders", max_concurrent_calls=1, create_if_missing=True)
async def place(
    article: str,
    tenant: Annotated[str, Property("tenant")],  # an application property of the message
    cursor: Annotated[sqlite3.Cursor, Depends(get_cursor)],
) -> None:
    """Store an order."""
    cursor.execute("insert into orders values (?, ?)", (tenant, article))
    if article == "nothing":
        done.set()
        raise ValueError(article)  # rolls back; the message would come again


async def main(url: str = "memory://example") -> None:
    """Send orders, the last of which fails."""
    worker = Worker(url)
    worker.include(handlers)
    async with worker.running():
        for tenant, article in ("north", "teapot"), ("south", "cup"), ("north", "nothing"):
            await worker.send("orders", article, application_properties={"tenant": tenant})
        await done.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
