"""A message as filters see it: its properties, with names in any case."""

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
"""The system properties that an action may change: a mapping from their canonical names to their usual spelling."""

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

# Names that Azure's newer libraries use for some system properties, and the canonical names.
_ALIASES = {
    "enqueuedtime": "enqueuedtimeutc",
    "expiresat": "expiresatutc",
    "lockeduntil": "lockeduntilutc",
    "scheduledenqueuetime": "scheduledenqueuetimeutc",
    "subject": "label",
    "transactionpartitionkey": "viapartitionkey",
}


def canonical(name: str) -> str | None:
    """Return the canonical name of a system property, from a name in any case; ``None`` if no system property has this
    name.
    """
    name = name.lower()
    name = _ALIASES.get(name, name)
    return name if name in SYSTEM_PROPERTIES else None


class PropertyView(Protocol):
    """The properties of a message by their names in lower case, for filters and actions."""

    @property
    def system(self) -> Mapping[str, Constant]: ...
    @property
    def names(self) -> Mapping[str, Value]: ...


class MessageView:
    """A message as filters see it, made once for each message.

    ``system`` has the system properties by their canonical names (see :data:`SYSTEM_PROPERTIES`; ``subject`` means
    ``label``). ``user`` has the application's own properties under their given names. If names differ only in case, the
    last one counts. This class changes neither mapping, and neither may change while the view is in use.
    """

    __slots__ = ("names", "system", "user")

    def __init__(self, system: Mapping[str, Constant], user: Mapping[str, Value]) -> None:
        if "subject" in system:
            system = {"label": system["subject"], **system}
        self.system = system
        self.user = user
        self.names: Mapping[str, Value] = {name.lower(): value for name, value in user.items()} if user else user
