"""Hypothesis strategies for messages: any message that a sender may make, and the same message as a partition returns
it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from sbredis.engine import Changes, Delivery, encode_changes
from sbredis.model import (
    MessageLease,
    Reception,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    delivered,
    outgoing,
)

__all__ = ["ARGUMENTS", "ENQUEUED", "SCALARS", "TEXT", "VALUES", "lease", "received"]

ENQUEUED = 1_700_000_000_123
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)
OTHER_IDS = st.integers(0, 2**64 - 1) | st.uuids() | st.binary(min_size=1, max_size=128)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20),
    TEXT,
    st.binary(max_size=50),
    st.datetimes(timezones=st.just(UTC)),
    st.uuids(),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=6
)
WHOLE_TIMES = st.integers(-(10**12), 9_999_999_999_998).map(
    lambda number: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)
)


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Draw any subset of the arguments of a message. If a session id and a partition key are both drawn, they are
    equal.
    """
    optional: dict[str, st.SearchStrategy[Any]] = {
        "application_properties": st.dictionaries(TEXT, SCALARS, min_size=1, max_size=4),
        "message_id": IDS | OTHER_IDS,
        "session_id": IDS | st.just(""),
        "correlation_id": TEXT | OTHER_IDS,
        "content_type": TEXT,
        "subject": TEXT,
        "to": TEXT,
        "reply_to": TEXT,
        "reply_to_session_id": IDS | st.just(""),
        "raw_amqp": st.binary(max_size=60),
        "scheduled_enqueue_time_utc": WHOLE_TIMES,
        "time_to_live": st.integers(1, 9_999_999_999_998).map(lambda number: timedelta(milliseconds=number)),
    }
    given: dict[str, Any] = draw(st.fixed_dictionaries({"body": st.binary(max_size=100)}, optional=optional))
    if draw(st.booleans()):
        given["partition_key"] = given["session_id"] or draw(IDS) if "session_id" in given else draw(IDS)
        if "session_id" in given:
            given["session_id"] = given["partition_key"]
    return given


ARGUMENTS = arguments()


def lease(token: str = "a" * 11, until: float = 100.0, until_utc: float = 1_700_000_060.0) -> MessageLease:
    """Return a lease like one that a receiver holds."""
    return MessageLease(token, until, until_utc)


def received(
    message: ServiceBusMessage,
    *,
    name: str = "7",
    base: int = 0,
    mode: ServiceBusReceiveMode = ServiceBusReceiveMode.PEEK_LOCK,
    lock: MessageLease | None = None,
    failures: int = 0,
    reason: str = "-",
    changes: Changes | None = None,
    state: str = "l",
    expires: int | None = None,
    expires_here: int | None = None,
    peeked: bool = False,
) -> ServiceBusReceivedMessage:
    """Return a sent message in the form in which a receiver gets it."""
    payload = outgoing(message, detects_duplicates=False).payload
    head = b"a0%d" % ENQUEUED if expires is None else b"x0%d%013d" % (ENQUEUED, expires)
    if state == "s":
        head = b"s0%013d" % 9_000_000_000_000
    changed = encode_changes(changes) if changes else b""
    delivery = Delivery(name, head + payload, failures, reason, changed, state, expires_here)
    return delivered(delivery, Reception(base, mode, None, peeked=peeked), lock)
