"""Each order of a customer is handled exactly once, although the first worker fails in the middle.

python examples/exactly_once.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient, ServiceBusSender

PRICES = [30, 12, 8]


class WorkerFailedError(Exception):
    """A failure that a worker makes on purpose."""


async def work(client: ServiceBusClient, invoices: ServiceBusSender, *, fails: bool) -> None:
    """Accept the next customer and handle the orders. Each transaction completes an order and has all its effects."""
    receiver = await client.accept_next_session("orders", max_wait_time=0.5)
    assert receiver is not None
    async with receiver:
        total = int(await receiver.session.get_state() or b"0")
        for message in await receiver.receive_messages(max_message_count=10, max_wait_time=0.5):
            price = int(str(message))
            # The methods of the transaction only record what to do. It all happens together, at the end of the block.
            async with client.transaction() as tx:
                total += price
                tx.send_messages(invoices, ServiceBusMessage(f"{message.session_id} pays {price}, {total} in all"))
                tx.set_session_state(receiver.session, str(total))
                tx.complete_message(message)
                if fails and price == 12:
                    raise WorkerFailedError
            print(f"handled an order of {price}")


async def main(url: str = "memory://example") -> None:
    """Send three orders, and let two workers handle them, one after the other. The first worker fails."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders", requires_session=True)
        await client.ensure_queue("invoices", colocate_with="orders")  # a transaction needs both in one place
        async with client.get_queue_sender("orders") as orders, client.get_queue_sender("invoices") as invoices:
            await orders.send_messages([ServiceBusMessage(str(price), session_id="ann") for price in PRICES])
            try:
                await work(client, invoices, fails=True)
            except WorkerFailedError:
                print("a worker failed: its last transaction has changed nothing")
            await work(client, invoices, fails=False)

        async with client.get_queue_receiver("invoices", max_wait_time=0.5) as receiver:
            async for message in receiver:
                print(message)
                await receiver.complete_message(message)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
