"""Requests over a queue and their replies: each client has its own session in the queue of replies.

python examples/request_reply.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient


async def service(bus: ServiceBusClient, requests: int) -> None:
    """Answer this number of requests, each to its sender."""
    async with bus.get_queue_receiver("requests") as receiver, bus.get_queue_sender("replies") as sender:
        for _ in range(requests):
            (request,) = await receiver.receive_messages(max_wait_time=10)
            # The request names the queue for the reply, and the session in it. The correlation id of the reply names
            # the request.
            reply = ServiceBusMessage(
                f"{request} = {sum(map(int, str(request).split('+')))}",
                session_id=request.reply_to_session_id,
                correlation_id=request.message_id,
            )
            await sender.send_messages(reply)
            await receiver.complete_message(request)  # last: if this process dies earlier, another process answers


async def customer(bus: ServiceBusClient, name: str, sums: list[str]) -> list[str]:
    """Send a request for each sum, and wait for the replies."""
    # A session can be accepted before it has messages. From now on, no other receiver gets the replies in this session.
    async with bus.get_queue_receiver("replies", session_id=name) as receiver:
        asked: dict[object, str] = {}
        async with bus.get_queue_sender("requests") as sender:
            for number, each in enumerate(sums):
                asked[f"{name}-{number}"] = each
                request = ServiceBusMessage(
                    each, message_id=f"{name}-{number}", reply_to="replies", reply_to_session_id=name
                )
                await sender.send_messages(request)
        answers: list[str] = []
        while asked:
            (reply,) = await receiver.receive_messages(max_wait_time=10)
            question = asked.pop(reply.correlation_id)
            answers.append(f"{name} asked for {question}: {reply}")
            await receiver.complete_message(reply)
        return answers


async def main(url: str = "memory://example") -> None:
    """Let two customers ask at the same time; each gets the replies to its own requests only."""
    async with ServiceBusClient(url) as bus:
        await bus.ensure_queue("requests")
        await bus.ensure_queue("replies", requires_session=True)
        _, ann, bob = await asyncio.gather(
            service(bus, requests=4), customer(bus, "ann", ["1+2", "30+4"]), customer(bus, "bob", ["5+6", "7+80"])
        )
        print(*ann, *bob, sep="\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
