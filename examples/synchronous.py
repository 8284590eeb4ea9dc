"""Sending and receiving without an event loop.

python examples/synchronous.py [CONNECTION STRING]
"""

from __future__ import annotations

import sys

from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage


def main(url: str = "memory://example") -> None:
    """Send a batch, and receive and complete its messages."""
    with ServiceBusClient(url) as client:
        with client.get_queue_sender("plain", create_if_missing=True) as sender:
            batch = sender.create_message_batch()
            for number in range(10):
                batch.add_message(ServiceBusMessage(f"message {number}"))
            sender.send_messages(batch)
            print(f"sent {batch}")

        with AutoLockRenewer() as renewer, client.get_queue_receiver("plain", max_wait_time=1) as receiver:
            for message in receiver:
                renewer.register(receiver, message)
                print(f"received {message}")
                receiver.complete_message(message)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
