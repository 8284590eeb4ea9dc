"""A message as filters see it: its properties by names that are written in any case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sbredis.rules._values import Constant, Value

__all__ = ["SETTABLE", "SYSTEM_PROPERTIES", "MessageView", "PropertyView", "canonical"]

SETTABLE: dict[str, str] = {
    "contenttype": "ContentType",
    "correlationid": "CorrelationId",
    "label": "Label",
    "messageid": "MessageId",
    "partitionkey": "PartitionKey",
    "replyto": "ReplyTo",
    "replytosessionid": "ReplyToSessionId",
    "scheduledenqueuetimeutc": "ScheduledEnqueueTimeUtc",
    "sessionid": "SessionId",
    "timetolive": "TimeToLive",
    "to": "To",
}
"""The system properties that an action may change, by their canonical names, as one writes them."""

SYSTEM_PROPERTIES: frozenset[str] = frozenset(
    {
        *SETTABLE,
        "deadlettererrordescription",
        "deadletterreason",
        "deadlettersource",
        "deliverycount",
        "enqueuedsequencenumber",
        "enqueuedtimeutc",
        "expiresatutc",
        "lockeduntilutc",
        "locktoken",
        "sequencenumber",
        "size",
        "state",
        "viapartitionkey",
    }
)
"""The canonical names of all system properties that the language knows, in lower case."""

# The names of Azure's newer libraries for some of them.
_ALIASES = {
    "enqueuedtime": "enqueuedtimeutc",
    "expiresat": "expiresatutc",
    "lockeduntil": "lockeduntilutc",
    "scheduledenqueuetime": "scheduledenqueuetimeutc",
    "subject": "label",
    "transactionpartitionkey": "viapartitionkey",
}


def canonical(name: str) -> str | None:
    """The canonical name of a system property that is written in any case; ``None`` for one that does not exist."""
    name = name.lower()
    name = _ALIASES.get(name, name)
    return name if name in SYSTEM_PROPERTIES else None


class PropertyView(Protocol):
    """What filters and actions ask: the properties of a message by their names in lower case."""

    @property
    def system(self) -> Mapping[str, Constant]: ...
    @property
    def names(self) -> Mapping[str, Value]: ...


class MessageView:
    """A message as filters see it, made once for each message.

    ``system`` has the system properties by their canonical names (see :data:`SYSTEM_PROPERTIES`; ``subject`` stands
    for ``label``), ``user`` the application's own under the names it gave them. Of names that differ in case alone
    the last one counts. Neither mapping is changed, and neither may change while the facts are in use.
    """

    __slots__ = ("names", "system", "user")

    def __init__(self, system: Mapping[str, Constant], user: Mapping[str, Value]) -> None:
        if "subject" in system:
            system = {"label": system["subject"], **system}
        self.system = system
        self.user = user
        self.names: Mapping[str, Value] = {name.lower(): value for name, value in user.items()} if user else user
