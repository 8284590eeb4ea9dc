"""Payments in their order: those of one account one after the other, those of several accounts at the same time.

python examples/ordered_processing.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient

PAYMENTS = {"ann": [100, -30, 5], "bob": [20, -20, 7], "eve": [1, 1, 1]}


async def worker(client: ServiceBusClient, report: list[str]) -> None:
    """Take the next account that nobody works on, handle what there is for it, and go on to another."""
    # What is accepted here is locked for this worker until the end of `async with`: nobody else gets messages of it.
    while (receiver := await client.accept_next_session("payments", max_wait_time=0.5)) is not None:
        async with receiver:
            session = receiver.session
            # Left by whoever had the account before, maybe the other worker: the last payment, and the balance.
            last, balance = map(int, (await session.get_state() or b"0 0").split())
            for message in await receiver.receive_messages(max_message_count=2, max_wait_time=0.5):
                if message.sequence_number > last:  # else it was counted, by one who died before completing it
                    last, balance = message.sequence_number, balance + int(str(message))
                    await session.set_state(f"{last} {balance}")
                    report.append(f"{session.session_id}: {message} makes {balance}")
                await receiver.complete_message(message)
            # An error that leaves `async with` counts a failed delivery for what is in hand, up to the delivery limit.


async def main(url: str) -> None:
    """Send three payments for each of three accounts, all mixed up, and let two workers handle them."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("payments", requires_session=True)
        async with client.get_queue_sender("payments") as sender:
            for place in range(3):
                for account, amounts in PAYMENTS.items():
                    await sender.send_messages(ServiceBusMessage(str(amounts[place]), session_id=account))

        report: list[str] = []
        # They take two payments at a time, so each account is accepted twice, and its balance goes from hand to hand.
        await asyncio.gather(worker(client, report), worker(client, report))
        for line in sorted(report, key=lambda line: line.partition(":")[0]):  # by account, and else as it happened
            print(line)


if __name__ == "__main__":
    from command_line import connection_string

    with connection_string(__doc__) as url:
        asyncio.run(main(url))
