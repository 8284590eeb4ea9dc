"""The executable model of a partition: what the scripts must do, written to be obviously right rather than quick.

Whatever can be derived is derived: the bytes are the sum of what is there, what is due is read off the messages, and
the messages that a lease holds are those that carry its token. Every change of a message goes through ``Model._move``
and so through the table of :mod:`sbredis.engine._lifecycle`, which decides where it leads; ``Model.taken`` counts how
often each way was taken, and a way that is not in the table raises.

A call has the arguments of its request in ``sbredis.engine._partition`` and answers the same content, or raises
:class:`Refused`. Not modelled: more lanes than are looked at when a new one comes, and a destruction in steps.
"""

from __future__ import annotations

from tests.engine.model.mechanics import Store
from tests.engine.model.operations import grouped
from tests.engine.model.topics import TopicModel as Model
from tests.engine.model.values import (
    LETTERS,
    REAL_BOUNDS,
    Accepted,
    Awoken,
    Bounds,
    Call,
    Copy,
    Counts,
    Delivery,
    Listed,
    Lock,
    Looked,
    Message,
    Mode,
    Outgoing,
    Peeked,
    Purged,
    Received,
    Refused,
    Renewed,
    Row,
    Sent,
    SessionRow,
    Settings,
    Settled,
    Snapshot,
    Told,
    Undone,
    Waiter,
    written_expiry,
)

__all__ = [
    "LETTERS",
    "REAL_BOUNDS",
    "Accepted",
    "Awoken",
    "Bounds",
    "Call",
    "Copy",
    "Counts",
    "Delivery",
    "Listed",
    "Lock",
    "Looked",
    "Message",
    "Mode",
    "Model",
    "Outgoing",
    "Peeked",
    "Purged",
    "Received",
    "Refused",
    "Renewed",
    "Row",
    "Sent",
    "SessionRow",
    "Settings",
    "Settled",
    "Snapshot",
    "Store",
    "Told",
    "Undone",
    "Waiter",
    "grouped",
    "written_expiry",
]
