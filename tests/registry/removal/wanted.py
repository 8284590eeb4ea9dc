"""The events that a long run of the proof must have seen often."""

from __future__ import annotations

__all__ = ["WANTED"]

_KINDS = ("queue", "topic", "subscription")
_TRANSITIONS = (
    "creating -> active",
    "active -> active",
    "active -> removing",
    "removing -> active",
    "removing -> deleting",
    "active -> deleting",
)
_PARTITIONS = ("asked: idle", "asked: used", "closed", "not closed")

WANTED: tuple[str, ...] = (
    *(f"{kind} {what}" for kind in _KINDS for what in _TRANSITIONS),
    *(f"{kind} removing -> active by {role}" for kind in _KINDS for role in ("remover", "user")),
    "subscription removing -> removing",
    *(f"{kind} partition {what}" for kind in _KINDS for what in _PARTITIONS),
    "queue partition lost",
    "queue partition still idle",
    "subscription partition still idle",
    *(f"close refused {code}" for code in ("STALE", "CONFIG", "GONE")),
    *(f"a use refused {code}" for code in ("STALE", "CONFIG", "GONE", "FORWARDS")),
    *(
        f"revise_{what} by {role} refused CHANGED"
        for what in ("entity", "subscription")
        for role in ("remover", "user")
    ),
    "list_subscriptions refused GONE",
    *(
        f"remove by remover: {ending}"
        for ending in (
            "died",
            "EntityChangedError",
            "MessagingEntityNotFoundError",
            "ServiceBusCommunicationError",
            "SettingsStaleError",
        )
    ),
    *(
        f"remover died {when} {what}"
        for when in ("before", "after")
        for what in ("close", "read_entity", "a change of the registry")
    ),
    *(f"unreachable for {role}" for role in ("remover", "user", "reader")),
    *(f"a user reads {kind} again" for kind in ("queue", "subscription")),
    *(f"queue used by {what}" for what in ("send", "grant", "touch", "configure", "transact", "dead_letter")),
    *(f"topic used by {what}" for what in ("publish", "configure", "transact")),
    *(f"subscription used by {what}" for what in ("grant", "touch", "configure", "transact", "dead_letter")),
    *(f"{kind} partition asked: with {what}" for kind in _KINDS for what in ("waiting messages", "a batch")),
    *(f"a batch of a {kind} moved" for kind in _KINDS),
    *(f"quiet: {kind}" for kind in _KINDS),
    *(f"{kind} {what}" for kind in _KINDS for what in ("removed", "kept", "kept: used")),
    "an entity that forwards is kept",
)
