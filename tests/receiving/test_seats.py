"""Tests of what a receiver tells its callers of the failures of its partitions."""

from __future__ import annotations

from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusConnectionError, ServiceBusError
from sbredis.receiving._seats import failure_to_tell
from tests.offenders import for_each

AWAY, MISSING, BUSY = (
    ServiceBusConnectionError("away"),
    MessagingEntityNotFoundError("missing"),
    ServiceBusError("busy"),
)


@for_each(
    ("failures", "gone", "told"),
    [
        ([], True, None),
        ([None, TimeoutError()], True, None),
        ([None, AWAY, BUSY], False, AWAY),
        ([AWAY, MISSING], True, MISSING),
        ([AWAY, None, BUSY], True, AWAY),
        ([AWAY, MISSING], False, AWAY),  # the entity was created again since
    ],
)
def test_a_caller_is_told_of_a_missing_entity_by_whichever_partition_knows_it(
    failures: list[object], gone: bool, told: ServiceBusError | None
) -> None:
    assert failure_to_tell(failures, gone=gone) is told
