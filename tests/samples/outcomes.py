"""The expected result of each scenario. It is the same for the asynchronous and the synchronous form, and on each
target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sbredis.management import AccessRights, NamespaceType

__all__ = ["SAMPLES", "Sample"]

SHORT = 700
"""The duration in ms of a lock that will end during the scenario. An administrator could not set such a short duration.
"""
RENEWED = 4_000
"""The duration in ms of a lock that any machine can renew in time. The work of the scenario takes longer."""


@dataclass(frozen=True)
class Sample:
    """A scenario, and its expected result."""

    module: str
    name: str
    outcome: Any
    queue: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The properties of the queue that the scenario uses."""
    lock: int | None = None
    """The lock duration of the queue in ms, if it is shorter than the minimum for administrators."""
    warns: str | None = None
    """The text of the warning that the scenario causes."""

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


NUMBERS = [str(number) for number in range(20)]

SENDING = {
    "one_message": ["a teapot", "two teapots"],
    "a_list": ["cup 0", "cup 1", "cup 2", "cup 3", "cup 4"],
    "a_batch": ((4, True), ["saucer 0", "saucer 1", "saucer 2", "saucer 3"]),
    "full_batches": (True, [str(number) for number in range(10)]),
    "mappings": ["one", "two", "three", "four"],
    "many_at_once": list(range(20)),
    "one_partition": (["0", "1", "2", "3", "4"], {"ann"}, 1),
    "scheduled": (
        3,
        {"tea": "SCHEDULED", "milk": "SCHEDULED", "sugar": "SCHEDULED", "cake": "SCHEDULED"},
        ["cake", "milk", "sugar", "tea"],
    ),
    "cancelled": ("not found", []),
    "duplicates": ["first", "another"],
    "everything_set": {
        "body": b"a teapot",
        "text": "a teapot",
        "colour": "brown",
        "raw": b"\x00\xff",
        "number of properties": 5,
        "session_id": "ann",
        "message_id": "7",
        "time_to_live": timedelta(minutes=5),
        "content_type": "text/plain",
        "correlation_id": "order 12",
        "subject": "order",
        "partition_key": "ann",
        "to": "kitchen",
        "reply_to": "answers",
        "reply_to_session_id": "bob",
    },
    "set_afterwards": ("order", "7", None, 6, timedelta(hours=1)),
}

RECEIVING = {
    "several": (["one", "two", "three"], []),
    "iterated": ["one", "two", "three"],
    "one_by_one": ("one", "two"),
    "of_a_received_message": (
        {
            "numbered": True,
            "as it was sent": True,
            "enqueued": True,
            "lives for": timedelta(minutes=10),
            "locked": True,
            "has a lock token": True,
            "deliveries": 0,
            "state": "ACTIVE",
            "dead letter": (None, None, None),
            "renewal": None,
        },
        None,
        None,
    ),
    "peeked": (["one", "two"], ["three"], ["two"], "one"),
    "received_and_deleted": ("one", None, ["two"]),
    "prefetched": NUMBERS,
    "two_receivers": list(range(20)),
    "nothing_there": ([], []),
    "cleared": (5, 7, []),
}

SETTLING = {
    "every_way": ({"abandoned": "ACTIVE", "deferred": "DEFERRED"}, "abandoned", 1, "dead"),
    "deferred": (["one"], ["two", "three", "four"], []),
    "dead_lettered": ("unreadable", ("Unreadable", "It is not JSON.", None), "Unreadable"),
    "failed_too_often": ([0, 1, 2], "fails", "MaxDeliveryCountExceeded"),
    "mended": ["Good: letter 0", "Good: letter 2"],
    "sent_on": ("round", 1, True, True),
    "through_another_receiver": [],
    "expired": ("milk", "TTLExpiredException"),
}

LOCKS = {
    "renewed": (True, True),
    "lost": (False, "too long", 1),
    "registered": [None, None, None],
    "by_the_receiver": ["one", "two"],
    "callback": ([("too long", "AutoLockRenewTimeout")], True, False),
    "misused": ["ValueError", "MessageAlreadySettled"],
}

AMQP = {
    "data": (b"aabbcc", "fast", "aabbcc"),
    "sequence": ([b"message", 123.456, True], 7, "sequence"),
    "value": ([-123, b"data", False], 10, "shop"),
    "sections": {
        "ids": ("7", "12", "ann"),
        "words": ("order", "text/plain", "kitchen"),
        "time to live": (timedelta(minutes=1), 60_000),
        "durable": True,
        "attribute": "order",
        "mapping": "order",
        "failed": (0, 0),
    },
    "broker_annotations": (True, True),
    "through_the_view": ("order", "shop", True),
}

CONNECTING = {
    "with_a_credential": False,
    "with_options": "tea",
    "identified": (("till 4", "kitchen", True, True), True, True, None),
    "closed_by_hand": ("tea", ["the sender is closed", "the receiver is closed"]),
    "opened_again": ["round 0", "round 1"],
    "named": "default",
}

ERRORS = {
    "no_such_queue": True,
    "too_large": (True, True, 0, True),
    "not_a_message": (["TypeError", "ValueError", "ValueError", "ValueError", "ValueError", "ValueError"], True),
    "out_of_range": 10,
    "settled_wrongly": (True, True, True, True),
    "not_there": (True, True),
    "disabled": (True, True),
    "renewer_closed": True,
    "defensively": ["cup 0", "cup 1", "cup 2"],
}

ADMINISTRATION = {
    "life_of_a_queue": (True, (10, True, timedelta(minutes=1)), 5, (True, 0, 0)),
    "with_all_options": {
        "rule": ("shop", [AccessRights.SEND, AccessRights.LISTEN]),
        "dead letters": True,
        "life": timedelta(hours=11),
        "window": timedelta(minutes=12),
        "batched, express": (True, False),
        "partitioned": True,
        "lock": timedelta(seconds=13),
        "deliveries": 14,
        "sizes": (2048, 2048),
        "duplicates, sessions": (True, False),
        "note": "for the samples",
        "forwarding": [True, True],
        "idle": timedelta(minutes=10),
        "status": True,
        "available": True,
    },
    "changed": (timedelta(seconds=20), 4, "changed", True, timedelta(hours=2), True, "no such property"),
    "counted": {
        "active": 2,
        "dead": 1,
        "scheduled": 0,
        "transferred": (0, 0),
        "total": 3,
        "bytes": True,
        "times": True,
        "accessed": True,
        "listed": [(True, 3)],
    },
    "taken_and_missing": ["exists", "not found", "not found", "not found", "refused"],
    "by_page": (4, True),
    "the_namespace": ("default", NamespaceType.MESSAGING, True, True),
}

SESSIONS = {
    "one_session": ([("one", "ann"), ("two", "ann"), ("three", "ann")], "ann"),
    "state": (None, b"START", b"END", None),
    "pool": ([f"session {number}" for number in range(6)], {b"CLOSED"}),
    "none_available": ("none", None),
    "locked": ("locked", "one", 0),
    "renewed": (True, True, None),
    "renewed_by_itself": ("two", [None, None]),
    "told": ([(True, "AutoLockRenewTimeout")], "AutoLockRenewTimeout"),
    "lost": (["complete", "state"], "too long", 1, None),
    "deferred": (["two"], ["one"]),
    "peeked": [("one", "ACTIVE"), ("two", "ACTIVE"), ("later", "SCHEDULED")],
    "dead_lettered": [("one", "ann", "Unreadable"), ("two", "ann", "Too late"), ("three", "ann", "Too late")],
    "listed": (["ann", "bob", "eve"], ["eve"], ["ann", "bob", "eve"]),
    "misused": ["sent", "keys", "received", "registered"],
}

TOPICS = {
    "sent": [["one", "two", "three", "four"], ["one", "two", "three", "four"]],
    "settled": ([("two", "DEFERRED")], ["two"], ["one", "two", "three"], ("three", "Unreadable")),
    "scheduled": ([], ["cake", "tea"], []),
    "of_sessions": (["ann"], ["one", "two"], ("three", "Session ID is null.")),
    "life_of_a_topic": (True, (timedelta(days=1), False), timedelta(minutes=10), (True, 0, 0), True),
    "life_of_a_subscription": (
        ["kitchen", "office"],
        (10, False),
        5,
        (1, 1, 2),
        [("kitchen", 1), ("office", 2)],
        True,
        ["office"],
    ),
    "made_in_passing": ["one"],
}

RULES = {
    "filters": {
        "all": ["tea", "pot", "set", "note"],
        "none": [],
        "dear": ["pot", "set"],
        "limited": ["set"],
        "red": ["pot", "set"],
        "urgent": ["note"],
        "like": ["tea", "note"],
        "listed": ["tea"],
    },
    "actions": [
        *(("note", "note", "free", None), ("pot", "order", 50, None), ("set", "order", 150, None)),
        *(("set", "sale of red", 75, "cheaper"), ("tea", "order", 5, None)),
    ],
    "life_of_a_rule": (
        ["$Default", "dear", "mail"],
        ("price > 100", None),
        ("price > @limit", {"@limit": timedelta(days=1)}, "SET seen = TRUE"),
        ("text/plain", {"to": "all"}),
        ["exists", "not found"],
        ["$Default", "dear"],
    ),
    "wrong": ("refused", {"tea", "pot", "set", "note"}, {"Filter evaluation failed."}),
    "from_the_first": (["dear"], ["pot", "set"]),
}

QUEUES: Mapping[str, Mapping[str, Any]] = {
    "sending.one_partition": {"enable_partitioning": True},
    "sending.duplicates": {"requires_duplicate_detection": True},
    "settling.failed_too_often": {"max_delivery_count": 3},
    "settling.expired": {"dead_lettering_on_message_expiration": True},
    **{f"sessions.{name}": {"requires_session": True, "enable_partitioning": True} for name in SESSIONS},
}
"""The scenarios whose queue needs properties of its own, with these properties."""

LOCKS_OF_QUEUES = {
    "locks.lost": SHORT,
    "locks.callback": SHORT,
    "locks.registered": RENEWED,
    "locks.by_the_receiver": RENEWED,
    "sessions.lost": SHORT,
    "sessions.renewed_by_itself": RENEWED,
}

WARNINGS = {
    "connecting.with_options": (
        "ignores keywords of Azure's library: http_proxy, logging_enable, transport_type, user_agent"
    )
}

SAMPLES = [
    Sample(
        module,
        name,
        outcome,
        QUEUES.get(f"{module}.{name}", {}),
        LOCKS_OF_QUEUES.get(f"{module}.{name}"),
        WARNINGS.get(f"{module}.{name}"),
    )
    for module, outcomes in (
        ("sending", SENDING),
        ("receiving", RECEIVING),
        ("settling", SETTLING),
        ("locks", LOCKS),
        ("amqp", AMQP),
        ("connecting", CONNECTING),
        ("errors", ERRORS),
        ("administration", ADMINISTRATION),
        ("sessions", SESSIONS),
        ("topics", TOPICS),
        ("rules", RULES),
    )
    for name, outcome in outcomes.items()
]
