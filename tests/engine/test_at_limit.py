"""The calls that a server at its memory limit runs, although their scripts mostly take in data."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sbredis.engine import (
    NO_CALL_ID,
    Delivery,
    Lock,
    Operation,
    Outgoing,
    Partition,
    PartitionSettings,
    SessionLock,
    advance,
    every_script,
    frees,
    new_token,
    once,
    transact,
    transact_together,
    transfer,
    withdraw,
)
from sbredis.engine._scripts import at_limit, load, operations
from tests.offenders import for_each

OF = Partition("n", "abc", "e", "incarnation", 7, PartitionSettings(clock="test"))
SESSION = SessionLock("s", new_token())
LOCKS = [Lock(new_token(), "1")]

COMPLETE = Operation(OF, OF.complete(NO_CALL_ID, LOCKS))
ABANDON = Operation(OF, OF.abandon(NO_CALL_ID, LOCKS))
DEFER = Operation(OF, OF.defer(NO_CALL_ID, LOCKS))
BURY = Operation(OF, OF.dead_letter(NO_CALL_ID, LOCKS))
ONCE = once(OF, {b"key": 1000})
WITHDRAW = withdraw(OF, "birth", [Delivery("1", b"record")])
NO_STATE = Operation(OF, OF.set_state(NO_CALL_ID, SESSION, None))
STATE = Operation(OF, OF.set_state(NO_CALL_ID, SESSION, b"state"))
SEND = Operation(OF, OF.send(NO_CALL_ID, [Outgoing(b"m")]))
TRANSFER = transfer(OF, [Outgoing(b"m")], OF, 1, "q")
ADVANCE = advance(OF, b"name", None, "1")

CASES: list[tuple[str, Sequence[Operation], bool]] = [
    ("settlements", [COMPLETE, ABANDON, DEFER, BURY], True),
    ("a key", [ONCE, COMPLETE], True),
    ("no state", [NO_STATE, COMPLETE], True),
    ("withdrawals", [WITHDRAW], True),
    ("a send", [COMPLETE, SEND], False),
    ("a withdrawal and a send", [WITHDRAW, SEND], False),  # the mover knows the destination, and decides
    ("a transfer", [COMPLETE, TRANSFER], False),
    ("a state", [STATE, COMPLETE], False),
    ("a watermark", [COMPLETE, ADVANCE], False),
]


@for_each(("name", "parts", "expected"), CASES)
def test_a_transaction_that_takes_in_no_data_runs_at_the_limit(
    name: str, parts: Sequence[Operation], *, expected: bool
) -> None:
    del name
    assert frees(parts) is expected
    assert transact(NO_CALL_ID, parts).at_limit is expected
    assert transact_together(NO_CALL_ID, [[COMPLETE], parts]).at_limit is expected


def test_a_state_that_is_removed_takes_in_no_data() -> None:
    assert OF.set_state(NO_CALL_ID, SESSION, None).at_limit
    assert not OF.set_state(NO_CALL_ID, SESSION, b"").at_limit


def test_the_form_of_a_script_for_a_full_server_differs_in_its_flags_only() -> None:
    script = load("transact")
    other = at_limit(script)
    assert other is at_limit(script)
    assert (other.name, other.takes_run_id) == (script.name, script.takes_run_id)
    assert other.source == script.source.replace("#!lua\n", "#!lua flags=allow-oom\n", 1)
    assert other.sha != script.sha


@pytest.mark.parametrize("name", ["send", "register_entity", "complete", "count"])
def test_a_script_without_calls_that_free_memory_has_no_such_form(name: str) -> None:
    with pytest.raises(ValueError, match="has no calls of its own for a full server"):
        at_limit(load(name))


def test_every_script_is_there_once() -> None:
    shas = [script.sha for script in every_script()]
    assert len(shas) == len(set(shas)) > len(operations())
    assert {script.name for script in every_script()} == set(operations())
