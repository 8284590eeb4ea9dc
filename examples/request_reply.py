"""Asking over a queue and getting the answer: each client has a session of its own among the replies.

python examples/request_reply.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient


async def service(bus: ServiceBusClient, requests: int) -> None:
    """Answer so many requests, each to whoever asked."""
    async with bus.get_queue_receiver("requests") as receiver, bus.get_queue_sender("replies") as sender:
        for _ in range(requests):
            (request,) = await receiver.receive_messages(max_wait_time=10)
            # The request says where the answer goes: to a queue, and there to a session. That it answers this very
            # request its correlation id says.
            reply = ServiceBusMessage(
                f"{request} = {sum(map(int, str(request).split('+')))}",
                session_id=request.reply_to_session_id,
                correlation_id=request.message_id,
            )
            await sender.send_messages(reply)
            await receiver.complete_message(request)  # not before: should this end early, somebody else answers


async def customer(bus: ServiceBusClient, name: str, sums: list[str]) -> list[str]:
    """Ask for several sums, and wait for the answers."""
    # A session can be accepted before it has messages. From now on its replies come to nobody else.
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


async def main(url: str) -> None:
    """Two customers ask at the same time; each gets the answers to what it asked, and no others."""
    async with ServiceBusClient(url) as bus:
        await bus.ensure_queue("requests")
        await bus.ensure_queue("replies", requires_session=True)
        _, ann, bob = await asyncio.gather(
            service(bus, requests=4), customer(bus, "ann", ["1+2", "30+4"]), customer(bus, "bob", ["5+6", "7+80"])
        )
        print(*ann, *bob, sep="\n")


if __name__ == "__main__":
    from command_line import connection_string

    with connection_string(__doc__) as url:
        asyncio.run(main(url))
