"""Messages of a topic: publishing them to subscriptions, and finding scheduled ones. Requests, made without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sbredis.engine._keys import KINDS, SESSION_KINDS
from sbredis.engine._packing import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_COPIES,
    MAXIMUM_CALL_MESSAGES,
    Copy,
    Outgoing,
    in_columns,
    within,
)
from sbredis.engine._partition import NO_CALL_ID, CallId, Partition
from sbredis.engine._request import Request
from sbredis.engine._results import Delivery, Sent, deliveries, spelled_out
from sbredis.exceptions import MessageSizeExceededError
from sbredis.transport import Argument

__all__ = ["publish", "ripe", "target_keys"]

_TARGET_KINDS = ("state", "order", "entries", "due", "waiters")
"""The kinds of a subscription's keys that a call needs to publish to it, in the order of ``publish.lua``."""


def publish(
    topic: Partition,
    call_id: CallId,
    messages: Sequence[Outgoing],
    routes: Sequence[Sequence[Copy] | None],
    targets: Sequence[Partition],
    *,
    fence: int | None = None,
) -> Request[Sent]:
    """Store messages of a topic for the subscriptions that they match. Each message is stored once.

    ``targets`` are the subscriptions' partitions in this slot. ``routes`` are the copies of each message, in the
    order of targets. A scheduled message may have ``None`` as its route, and then waits even if its time has
    passed. If a message has waited, its ``origin`` is the number under which it was scheduled. ``fence`` is the
    fence of the client that holds the routing role.
    """
    topic.check_outgoing(messages)
    if len(routes) != len(messages):
        raise ValueError("every message needs a route, which may be empty")
    if any(route is None and message.due is None for route, message in zip(routes, messages, strict=True)):
        raise ValueError("only a scheduled message may be without a route")
    judged = [route for route in routes if route is not None]
    if len(messages) > 1 and (total := sum(map(len, judged))) > MAXIMUM_CALL_COPIES:
        raise MessageSizeExceededError(
            f"the {len(messages)} messages would have {total} copies in the subscriptions of the topic; one call "
            f"may make {MAXIMUM_CALL_COPIES} copies"
        )
    for route in judged:
        places = [copy.place for copy in route]
        if any(not 0 <= place < len(targets) for place in places) or places != sorted(places):
            raise ValueError(f"the places of copies must be places of targets, in rising order, not {places!r}")
    if len({target.keys[0] for target in targets}) < len(targets):
        raise ValueError("a subscription is named twice among the targets")
    if fence is not None:
        within("fence", fence, 1, 999_999_999_999_999)
    letters, rest = in_columns(messages, routes)
    keys = topic.keys + tuple(key for target in targets for key in target_keys(target))
    scalars: dict[str, Argument] = {
        "columns": letters,
        "incarnations": " ".join(target.incarnation + "+" * target.settings.sessions for target in targets),
        "fence": "" if fence is None else fence,
    }
    return topic.request("publish", call_id, _published, scalars, rest)._replace(keys=keys)


def target_keys(subscription: Partition) -> tuple[bytes, ...]:
    """Return the keys of a subscription that a call needs to publish to it."""
    kinds = _TARGET_KINDS + SESSION_KINDS if subscription.settings.sessions else _TARGET_KINDS
    return tuple(subscription.keys[KINDS.index(kind)] for kind in kinds)


def ripe(
    topic: Partition, wanted: int, *, room: int = MAXIMUM_CALL_BYTES, call_id: CallId = NO_CALL_ID
) -> Request[tuple[Delivery, ...]]:
    """Return messages that are scheduled on a topic and are due."""
    within("wanted", wanted, 1, MAXIMUM_CALL_MESSAGES)
    within("room", room, 1, 1 << 30)

    def read(reply: list[Any]) -> tuple[Delivery, ...]:
        return deliveries(reply[1], reply[2], [], "s" * len(reply[1]))

    return topic.request("ripe", call_id, read, {"wanted": wanted, "room": room})


def _published(reply: list[Any]) -> Sent:
    return Sent(bool(reply[0]), reply[1], reply[2], spelled_out(reply[3]))
