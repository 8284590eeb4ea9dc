"""Calls to partitions: the connection of a client, its entities, and the lanes that join the jobs of many callers."""

from __future__ import annotations

from sbredis.client._arguments import (
    TIMEOUT,
    count_of,
    deadline_of,
    identifier_of,
    milliseconds_of,
    progress_of,
    seconds_of,
    sequence_numbers_of,
)
from sbredis.client._background_work import CALLING, BackgroundFailures, BackgroundTasks
from sbredis.client._clock import Clock
from sbredis.client._connection import Connected, Connection, ConnectionObserver, ConnectionReference, connection_of
from sbredis.client._delivering import OF_ONE_JOB, UnmadeError
from sbredis.client._entity import Creation, Entity
from sbredis.client._lane import OTHER_LOOP
from sbredis.client._lane_kinds import (
    CallJob,
    RenewJob,
    TransactionJob,
    lock_lost,
    note_renewal,
)
from sbredis.client._partition_calls import PartitionCalls
from sbredis.client._partition_client import SETTLEMENTS, PartitionClient, do_due, read_after_due
from sbredis.client._pauses import Pauses, may_recover
from sbredis.client._pushing import PushMember
from sbredis.client._riding import GrantRide, GrantRider
from sbredis.client._role import IDLE, MOVE, OWN, ROUTE, Role, RoleKeeper, is_held
from sbredis.client._routing import RoutedCopies, Routing, SpreadCall, facts_of, some_wait
from sbredis.client._send_lane import SendJob, SendTerms
from sbredis.client._server_clock import ServerClock, ServerClocks
from sbredis.client._spreading import AT_LEAST_TOGETHER, MOST_WORK
from sbredis.client._test_hooks import BusHooks, install_hooks, remove_hooks
from sbredis.client._throttle import Throttle
from sbredis.client._ticks import Tick, next_tick, period_of
from sbredis.client._timings import Timings

__all__ = [
    "AT_LEAST_TOGETHER",
    "CALLING",
    "IDLE",
    "MOST_WORK",
    "MOVE",
    "OF_ONE_JOB",
    "OTHER_LOOP",
    "OWN",
    "ROUTE",
    "SETTLEMENTS",
    "TIMEOUT",
    "BackgroundFailures",
    "BackgroundTasks",
    "BusHooks",
    "CallJob",
    "Clock",
    "Connected",
    "Connection",
    "ConnectionObserver",
    "ConnectionReference",
    "Creation",
    "Entity",
    "GrantRide",
    "GrantRider",
    "PartitionCalls",
    "PartitionClient",
    "Pauses",
    "PushMember",
    "RenewJob",
    "Role",
    "RoleKeeper",
    "RoutedCopies",
    "Routing",
    "SendJob",
    "SendTerms",
    "ServerClock",
    "ServerClocks",
    "SpreadCall",
    "Throttle",
    "Tick",
    "Timings",
    "TransactionJob",
    "UnmadeError",
    "connection_of",
    "count_of",
    "deadline_of",
    "do_due",
    "facts_of",
    "identifier_of",
    "install_hooks",
    "is_held",
    "lock_lost",
    "may_recover",
    "milliseconds_of",
    "next_tick",
    "note_renewal",
    "period_of",
    "progress_of",
    "read_after_due",
    "remove_hooks",
    "seconds_of",
    "sequence_numbers_of",
    "some_wait",
]
