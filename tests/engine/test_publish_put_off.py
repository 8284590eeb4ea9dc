"""A full topic puts a publish off while the ends of locks are its due work. No rule of the state machine does this."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from sbredis.engine import (
    NO_CALL_ID,
    Changes,
    Destination,
    Outgoing,
    Partition,
    PartitionSettings,
    encode_changes,
    transact,
    transfer,
)
from tests.engine.model import Refused
from tests.engine.proof.extent import BOUNDS
from tests.engine.proof.hosts import Host, host, with_bounds
from tests.engine.taking import first_token, receiving

NOW, LOCK = 1_700_000_000_000, 5_000
SETTINGS = PartitionSettings(clock="test", topic=True, lock_duration=LOCK)


def refusal(on: Host, topic: Partition, now: int) -> str:
    """Publish a message. Return the code of the refusal."""
    try:
        on.run(topic.publish(NO_CALL_ID._replace(now=now), [Outgoing(b"m")], [[]], []))
    except Refused as refused:
        return refused.code
    return ""


def test_a_publish_to_a_full_topic_waits_for_the_ends_of_locks() -> None:
    with host("memory", with_bounds(BOUNDS["narrow"])) as on:
        topic = Partition("proof", "abc", "topic", "i1", 1, SETTINGS)
        queue = Partition("proof", "abd", "queue", "i1", 1, replace(SETTINGS, topic=False))
        on.run(topic.configure(create=True, now=NOW))
        call = NO_CALL_ID._replace(now=NOW)
        on.run(transact(call, [transfer(topic, [Outgoing(b"m")] * 20, queue, 1, "queue")]))
        waiting, to = on.run(topic.outgoing(now=NOW)), Destination("queue", 1)
        batch = on.run(topic.freeze(waiting.birth, to, "holder", waiting.messages, now=NOW))
        assert batch is not None
        changes = dict.fromkeys(batch.names, encode_changes(Changes(reason="because")))
        on.run(topic.settle_batch(waiting.birth, to, batch.number, "refused", changes=changes, now=NOW))
        for at in range(20):
            assert on.run(receiving(topic, first_token(f"{at:08}"), 1, run="r1", now=NOW, side="t")).messages
        on.ask("HSET", topic.keys[8], "quota", 1)

        codes = [*takewhile(lambda code: code == "DUE", iter(lambda: refusal(on, topic, NOW + LOCK), ""))]
        assert codes
        assert refusal(on, topic, NOW + LOCK) == "QUOTA"
