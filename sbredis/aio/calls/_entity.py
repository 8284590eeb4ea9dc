"""An entity, which all senders and receivers of a client share: its state, and a client for each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis.aio.calls._entity_state import EntityState
from sbredis.aio.calls._partition_client import PartitionClient
from sbredis.engine import partition_for_key

if TYPE_CHECKING:
    from sbredis.aio.calls._runtime import Runtime
    from sbredis.model import Hold
    from sbredis.registry import EntityRecord

__all__ = ["Entity"]

_LARGE = 500


class Entity(EntityState):
    """A queue, topic or subscription, shared by all its users in this client."""

    def __init__(self, runtime: Runtime, record: EntityRecord) -> None:
        super().__init__(runtime, record)
        self._partition_clients: dict[int, PartitionClient] = {}
        self._at = 0

    def partition_client(self, number: int) -> PartitionClient:
        """Return the client for a partition."""
        found = self._partition_clients.get(number)
        if found is None:
            found = self._partition_clients[number] = PartitionClient(self, number, self.next_partition_client)
        return found

    def partition_client_of(self, hold: Hold) -> PartitionClient:
        """Return the client for the partition of a received message."""
        return self.partition_client(self.number_of(hold))

    def of_session(self, name: str) -> PartitionClient:
        """Return the client for the partition of a session."""
        return self.pinned(name) if self.partitioned else self.partition_client(self.numbers[0])

    def pinned(self, key: str | bytes) -> PartitionClient:
        """Return the client for the partition of a session id, a partition key or a message id."""
        return self.partition_client(self.numbers[partition_for_key(key, len(self.numbers))])

    def next_partition_client(self) -> PartitionClient:
        """Return the partition for messages that may go to any partition.

        Partitions take turns. But as long as messages gather for the next call of a partition, the method returns the
        same partition again, so that calls stay large. It skips partitions that cannot be reached, and probes them in
        the background.
        """
        numbers = self.numbers
        self._at %= len(numbers)
        found = self.partition_client(numbers[self._at])
        if 0 < found.sending.gathering < _LARGE and not found.down_until:
            return found
        for _ in numbers:
            self._at = (self._at + 1) % len(numbers)
            found = self.partition_client(numbers[self._at])
            if not found.down_until:
                return found
            found.probe_if_due()
        return found

    def rest(self) -> None:
        for partition_client in self._partition_clients.values():
            partition_client.rest()

    def close(self) -> None:
        """Fail the jobs that wait at the partitions of the entity."""
        for partition_client in self._partition_clients.values():
            partition_client.close()
