"""Send numbered messages while jobs run, and remember which of them the server has acknowledged."""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sbredis import ServiceBusClient, ServiceBusMessage
from sbredis.exceptions import ServiceBusError

__all__ = ["Feed", "feeding"]


class Feed:
    """The messages that were sent to a queue. Some of them live for a short time only."""

    def __init__(
        self, url: str, queue: str, seed: int, *, pause: float = 0.15, outages: bool = False, mortal: float = 0.2
    ) -> None:
        self._url = url
        self._queue = queue
        self._chance = random.Random(seed)
        self._pause = pause
        self._outages = outages
        self._mortal_share = mortal
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self.sent: set[str] = set()
        """The messages that the server has acknowledged."""
        self.mortal: set[str] = set()
        """Those of them with a time to live: each ends in the output or in the dead-letter queue."""
        self.unknown: set[str] = set()
        """The messages whose call failed. The server may have them."""

    def __len__(self) -> int:
        return len(self.sent)

    def _messages(self, first: int) -> list[ServiceBusMessage]:
        """Return the messages of one call. Those of a call with a key go to one partition."""
        names = [f"{self._queue}-{number}" for number in range(first, first + self._chance.randint(1, 60))]
        key = f"key {self._chance.randrange(50)}" if self._chance.random() < 0.3 else None
        return [self._message(name, key) for name in names]

    def _message(self, name: str, key: str | None) -> ServiceBusMessage:
        given: dict[str, Any] = {"message_id": name, "partition_key": key}
        if self._chance.random() < self._mortal_share:
            given["time_to_live"] = timedelta(seconds=self._chance.choice((0.05, 0.5, 2, 5, 60)))
            self.mortal.add(name)
        return ServiceBusMessage(name, **given)

    def run(self) -> None:
        """Send messages until :meth:`stop`."""
        with ServiceBusClient(self._url) as client, client.get_queue_sender(self._queue) as sender:
            first = 0
            while not self._stop.wait(self._pause * self._chance.random() * 2):
                messages = self._messages(first)
                names = [str(message.message_id) for message in messages]
                first += len(names)
                try:
                    sender.send_messages(messages)
                except ServiceBusError:
                    if not self._outages:
                        raise
                    self.unknown.update(names)
                else:
                    self.sent.update(names)

    def begin(self) -> threading.Thread:
        """Send in a thread."""

        def work() -> None:
            try:
                self.run()
            except BaseException as error:  # noqa: BLE001 -- the main thread raises it
                self._failed = error

        thread = threading.Thread(target=work, name=f"feed of {self._queue}", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()

    def check(self) -> None:
        """Raise the error that has ended the thread, if there is one."""
        if self._failed is not None:
            raise self._failed


@contextmanager
def feeding(feed: Feed) -> Generator[Feed]:
    """Send messages while the block runs."""
    thread = feed.begin()
    try:
        yield feed
    finally:
        feed.stop()
        thread.join(120)
    feed.check()
    assert not thread.is_alive()
