"""The entities of a namespace: their definitions, counts and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

if TYPE_CHECKING:
    from sbredis.entities._asking import PATIENCE, Answers, AskedPartition, PartitionAsker
    from sbredis.entities._counting import (
        Counter,
        Tally,
        partition_counts,
        queue_counts,
        subscription_counts,
        topic_counts,
    )
    from sbredis.entities._definitions import (
        DEFINITIONS,
        QUEUES,
        SUBSCRIPTIONS,
        TOPICS,
        Definition,
        given_in,
        queue_creation,
        rules_of,
        subscription_creation,
        topic_creation,
    )
    from sbredis.entities._entity_info import EntityInfo, describe
    from sbredis.entities._paging import AsyncItemPaged, AsyncPages, ListPage
    from sbredis.entities._paths import SIDES, SUB_QUEUES, SUFFIXES, split_sub_queue, subscription_path
    from sbredis.entities._server_time import read_clock, server_time
    from sbredis.entities._unlocked_sessions import sessions_of, state_of_session

__all__ = [
    "DEFINITIONS",
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_asking": ("PATIENCE", "Answers", "AskedPartition", "PartitionAsker"),
            "_counting": (
                "Counter",
                "Tally",
                "partition_counts",
                "queue_counts",
                "subscription_counts",
                "topic_counts",
            ),
            "_definitions": (
                "DEFINITIONS",
                "QUEUES",
                "SUBSCRIPTIONS",
                "TOPICS",
                "Definition",
                "given_in",
                "queue_creation",
                "rules_of",
                "subscription_creation",
                "topic_creation",
            ),
            "_entity_info": ("EntityInfo", "describe"),
            "_paging": ("AsyncItemPaged", "AsyncPages", "ListPage"),
            "_server_time": ("read_clock", "server_time"),
            "_paths": ("SIDES", "SUB_QUEUES", "SUFFIXES", "split_sub_queue", "subscription_path"),
            "_unlocked_sessions": ("sessions_of", "state_of_session"),
        },
    )
