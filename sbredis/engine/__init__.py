"""One partition of an entity: its keys, its scripts, the life of its messages.

Requests are made here, without I/O, and sent by whoever holds a transport: see :func:`perform`.
"""

from __future__ import annotations

from sbredis.engine._keys import KINDS, STORE_KINDS, partition_keys, registry_keys, waiting_channel
from sbredis.engine._names import (
    entity_name,
    identifier,
    name_key,
    namespace_name,
    rule_name,
    session_member,
    session_of,
    session_range,
    subscription_name,
)
from sbredis.engine._partition import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    NO_TURN,
    Lock,
    Mode,
    Outgoing,
    Partition,
    Side,
    Turn,
    new_token,
)
from sbredis.engine._perform import Caller, perform
from sbredis.engine._placement import (
    MOST_PARTITIONS,
    partition_for_key,
    partition_for_name,
    registry_salt,
    salts,
    slot_range,
)
from sbredis.engine._refusals import LaneUnknownError, MalformedCallError, SettingsBehindError, SettingsStaleError
from sbredis.engine._request import Request
from sbredis.engine._results import (
    NEVER,
    Awoken,
    Counts,
    Delivery,
    Peeked,
    Purged,
    Received,
    Record,
    Renewed,
    Sent,
    Settled,
    Undone,
    read_record,
)
from sbredis.engine._scripts import load, operations
from sbredis.engine._settings import MAXIMUM_MESSAGE_BYTES, Clock, PartitionSettings, Status

__all__ = [
    "KINDS",
    "MAXIMUM_CALL_BYTES",
    "MAXIMUM_CALL_MESSAGES",
    "MAXIMUM_MESSAGE_BYTES",
    "MOST_PARTITIONS",
    "NEVER",
    "NO_TURN",
    "STORE_KINDS",
    "Awoken",
    "Caller",
    "Clock",
    "Counts",
    "Delivery",
    "LaneUnknownError",
    "Lock",
    "MalformedCallError",
    "Mode",
    "Outgoing",
    "Partition",
    "PartitionSettings",
    "Peeked",
    "Purged",
    "Received",
    "Record",
    "Renewed",
    "Request",
    "Sent",
    "SettingsBehindError",
    "SettingsStaleError",
    "Settled",
    "Side",
    "Status",
    "Turn",
    "Undone",
    "entity_name",
    "identifier",
    "load",
    "name_key",
    "namespace_name",
    "new_token",
    "operations",
    "partition_for_key",
    "partition_for_name",
    "partition_keys",
    "perform",
    "read_record",
    "registry_keys",
    "registry_salt",
    "rule_name",
    "salts",
    "session_member",
    "session_of",
    "session_range",
    "slot_range",
    "subscription_name",
    "waiting_channel",
]
