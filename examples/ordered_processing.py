"""Payments of one account are handled in order, one after the other. Different accounts are handled at the same time.

python examples/ordered_processing.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient

PAYMENTS = {"ann": [100, -30, 5], "bob": [20, -20, 7], "eve": [1, 1, 1]}


async def worker(client: ServiceBusClient, report: list[str]) -> None:
    """Accept the next account that no other worker has, handle its payments, and continue with another account."""
    # The accepted session is locked until the end of `async with`: no other worker gets its messages.
    while (receiver := await client.accept_next_session("payments", max_wait_time=0.5)) is not None:
        async with receiver:
            session = receiver.session
            # The previous worker of this account stored the number of the last payment and the balance.
            last, balance = map(int, (await session.get_state() or b"0 0").split())
            for message in await receiver.receive_messages(max_message_count=2, max_wait_time=0.5):
                if message.sequence_number > last:  # otherwise, a worker counted it and then died before completing it
                    last, balance = message.sequence_number, balance + int(str(message))
                    await session.set_state(f"{last} {balance}")
                    report.append(f"{session.session_id}: {message} makes {balance}")
                await receiver.complete_message(message)
            # If an error leaves `async with`, each unsettled message gets a failed delivery, up to the delivery limit.


async def main(url: str = "memory://example") -> None:
    """Send three payments for each of three accounts, in mixed order, and let two workers handle them."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("payments", requires_session=True)
        async with client.get_queue_sender("payments") as sender:
            for place in range(3):
                for account, amounts in PAYMENTS.items():
                    await sender.send_messages(ServiceBusMessage(str(amounts[place]), session_id=account))

        report: list[str] = []
        # A worker takes two payments at a time, so each account is accepted twice, and its state keeps the balance.
        await asyncio.gather(worker(client, report), worker(client, report))
        # Sort by account. The payments of one account keep their order.
        for line in sorted(report, key=lambda line: line.partition(":")[0]):
            print(line)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
