"""The entities of a namespace: their definitions, counts and lists."""

from __future__ import annotations

from sbredis.entities._asking import PATIENCE, Answers, AskedPartition, PartitionAsker
from sbredis.entities._counting import Counter, Tally, partition_counts, queue_counts, subscription_counts, topic_counts
from sbredis.entities._definitions import (
    QUEUES,
    SUBSCRIPTIONS,
    TOPICS,
    Definition,
    given_in,
    queue_creation,
    rules_of,
    subscription_creation,
    subscription_path,
    topic_creation,
)
from sbredis.entities._entity_info import EntityInfo, describe
from sbredis.entities._paging import AsyncItemPaged, AsyncPages, ListPage
from sbredis.entities._server_time import read_clock, server_time
from sbredis.entities._sub_queues import SIDES, SUB_QUEUES, SUFFIXES, split_sub_queue
from sbredis.entities._unlocked_sessions import sessions_of, state_of_session

__all__ = [
    "PATIENCE",
    "QUEUES",
    "SIDES",
    "SUBSCRIPTIONS",
    "SUB_QUEUES",
    "SUFFIXES",
    "TOPICS",
    "Answers",
    "AskedPartition",
    "AsyncItemPaged",
    "AsyncPages",
    "Counter",
    "Definition",
    "EntityInfo",
    "ListPage",
    "PartitionAsker",
    "Tally",
    "describe",
    "given_in",
    "partition_counts",
    "queue_counts",
    "queue_creation",
    "read_clock",
    "rules_of",
    "server_time",
    "sessions_of",
    "split_sub_queue",
    "state_of_session",
    "subscription_counts",
    "subscription_creation",
    "subscription_path",
    "topic_counts",
    "topic_creation",
]
