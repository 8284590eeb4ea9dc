"""Jobs with a deadline: if no handler takes a job in time, the user is told, and the job takes a slower way.

python examples/deadline.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from sbredis import ServiceBusMessage, ServiceBusSubQueue
from sbredis.aio import ServiceBusClient


async def submit(bus: ServiceBusClient, jobs: list[str], deadline: timedelta) -> None:
    """Send jobs that are worth doing only until the deadline."""
    async with bus.get_queue_sender("jobs") as sender:
        for job in jobs:
            await sender.send_messages(ServiceBusMessage(job, time_to_live=deadline))


async def handler(bus: ServiceBusClient, queue: str, jobs: int, told: list[str]) -> None:
    """Do jobs, and tell the users."""
    async with bus.get_queue_receiver(queue) as receiver:
        for _ in range(jobs):
            (job,) = await receiver.receive_messages(max_wait_time=10)
            told.append(f"{job}: done" if queue == "jobs" else f"{job}: the result was sent by mail")
            await receiver.complete_message(job)


async def web_site(bus: ServiceBusClient, jobs: int, told: list[str]) -> None:
    """Tell the users whose jobs have expired, and put these jobs into the queue for results by mail."""
    expired = bus.get_queue_receiver("jobs", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    async with expired, bus.get_queue_sender("jobs-by-mail") as by_mail:
        for _ in range(jobs):
            (job,) = await expired.receive_messages(max_wait_time=10)
            told.append(f"{job}: takes longer than usual ({job.dead_letter_reason})")
            async with bus.transaction() as tx:  # the job is in one of the two queues at any time
                tx.send_messages(by_mail, ServiceBusMessage(job.body, message_id=job.message_id))
                tx.complete_message(job)


async def main(url: str = "memory://example") -> None:
    """Do two jobs in time, and two while the handler is down."""
    async with ServiceBusClient(url) as bus:
        # Expired jobs go to the dead-letter queue. Both queues are removed after an hour without use, so a run that was
        # interrupted leaves nothing behind.
        unused = timedelta(hours=1)
        await bus.ensure_queue("jobs", dead_lettering_on_message_expiration=True, auto_delete_on_idle=unused)
        await bus.ensure_queue("jobs-by-mail", colocate_with="jobs", auto_delete_on_idle=unused)
        told: list[str] = []
        await submit(bus, ["resize the logo", "count the visitors"], timedelta(minutes=1))
        await handler(bus, "jobs", 2, told)
        await submit(bus, ["print the invoice", "sum up the year"], timedelta(milliseconds=100))  # the handler is down
        await web_site(bus, 2, told)
        await handler(bus, "jobs-by-mail", 2, told)
        print(*told, sep="\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
