"""The executable model of a partition: it does what the scripts must do, and is written for clarity, not speed.

The model stores nothing that it can derive.
The stored bytes are the sum over all messages, due work is read from the messages,
and the messages that a lease holds are those that carry its token.
Every change of a message goes through ``Model._move``, and so through the table of :mod:`sbredis.engine._lifecycle`,
which decides the next state.
``Model.taken`` counts how often each transition was taken; a transition that is not in the table raises.

Each module adds a class to the one before it: ``contents`` (what a partition holds), ``lives`` (the moves of a
message), ``turns`` (of sessions), ``due_work``, ``mechanics`` (the course of a call), ``sending``,
``receiving``, ``operations``, ``sessions``, ``topics`` and ``transactions``.

An operation that can be part of a transaction is planned before it is carried out (``plan_send`` and the like).
A call takes the arguments of its request in :mod:`sbredis.engine`.
It returns the same content, or raises :class:`Refused`.
The model leaves out two things: more idle lanes than one call removes, and destroying in several steps.
"""

from __future__ import annotations

from tests.engine.model.contents import Store
from tests.engine.model.operations import grouped
from tests.engine.model.transactions import Part
from tests.engine.model.transactions import TransactionModel as Model
from tests.engine.model.values import (
    LETTERS,
    REAL_BOUNDS,
    Bounds,
    Call,
    Counts,
    Message,
    Mode,
    Plan,
    Refused,
    Row,
    SessionRow,
    Snapshot,
    Stored,
    Together,
    Told,
    Transacted,
    TransactedTogether,
    written_expiry,
)

__all__ = [
    "LETTERS",
    "REAL_BOUNDS",
    "Bounds",
    "Call",
    "Counts",
    "Message",
    "Mode",
    "Model",
    "Part",
    "Plan",
    "Refused",
    "Row",
    "SessionRow",
    "Snapshot",
    "Store",
    "Stored",
    "Together",
    "Told",
    "Transacted",
    "TransactedTogether",
    "grouped",
    "written_expiry",
]
