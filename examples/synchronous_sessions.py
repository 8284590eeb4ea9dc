"""Sessions without an event loop: threads that accept one conversation after the other.

python examples/synchronous_sessions.py [CONNECTION STRING]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from sbredis import ServiceBusClient, ServiceBusMessage

CONVERSATIONS = {"ann": ["Hello!", "Anybody there?"], "bob": ["Good morning.", "Good bye."], "eve": ["Hi."]}


def answer(client: ServiceBusClient) -> list[str]:
    """Accept conversations that no other thread has, until no conversation is left, and return their messages."""
    heard: list[str] = []
    while (receiver := client.accept_next_session("chat", max_wait_time=0.5)) is not None:
        with receiver:  # if an error leaves this block, each unsettled message gets a failed delivery
            for message in receiver:  # the loop ends when no message has arrived for half a second
                heard.append(f"{receiver.session.session_id}: {message}")
                receiver.complete_message(message)
    return heard


def main(url: str = "memory://example") -> None:
    """Send three conversations in mixed order, and receive them with two threads that share a client."""
    with ServiceBusClient(url) as client:
        client.ensure_queue("chat", requires_session=True)
        with client.get_queue_sender("chat") as sender:
            for line in range(2):
                for name, lines in CONVERSATIONS.items():
                    if line < len(lines):
                        sender.send_messages(ServiceBusMessage(lines[line], session_id=name))

        with ThreadPoolExecutor(2) as threads:
            heard = [line for each in threads.map(answer, [client, client]) for line in each]
        # Sort by name. The lines of one name keep their order.
        print(*sorted(heard, key=lambda line: line.partition(":")[0]), sep="\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
