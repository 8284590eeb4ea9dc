"""The model of a partition gives the right answers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import NEVER
from sbredis.engine._bands import band, score
from sbredis.engine._lifecycle import Side, State
from tests.engine.model import (
    Call,
    Lock,
    Message,
    Model,
    Outgoing,
    Peeked,
    Received,
    Refused,
    Settings,
    Settled,
    Snapshot,
)

MAIN, DEAD = Side.MAIN, Side.DEAD
T0 = 1_700_000_000_000


def at(seconds: float, **knowledge: Any) -> Call:
    """Return a call at this time after the partition was made."""
    return Call(now=T0 + int(seconds * 1000), **knowledge)


def a_queue(**settings: Any) -> Model:
    model = Model()
    model.configure(at(0), Settings(**settings), create=True)
    return model


def names(answer: Received | Peeked) -> list[str]:
    return [message.name for message in answer.messages]


def locks(received: Received, token: str, **more: Any) -> list[Lock]:
    return [Lock(token, message.name, **more) for message in received.messages]


def send(model: Model, *payloads: bytes, seconds: float = 0, **more: Any) -> None:
    model.send(at(seconds), [Outgoing(payload, **more) for payload in payloads])


def refusal(model: Model, call: Callable[[], object]) -> Refused:
    """Return the model's refusal of a call, which must change nothing."""
    before = model.snapshot()
    with pytest.raises(Refused) as refused:
        call()
    assert model.snapshot() == before
    return refused.value


def only(model: Model, side: Side = MAIN) -> Message:
    (message,) = model.messages[side].values()
    return message


def test_a_dead_letter_leaves_only_by_settlement() -> None:
    model = a_queue(max_delivery_count=1, time_to_live=10_000, dead_letter_expired=True)
    send(model, b"a")
    model.dead_letter(at(1), locks(model.receive(at(1), "t1", 1), "t1"))
    for turn in range(5):
        token = f"d{turn}"
        held = locks(model.receive(at(20 + turn), token, 1, side=DEAD), token)
        assert model.dead_letter(at(20 + turn), held) == Settled(unfit=("d1",))
        assert model.abandon(at(20 + turn), held) == Settled()
    assert (only(model, DEAD).failures, only(model, DEAD).state) == (0, State.ACTIVE)


def test_a_delayed_message_keeps_its_number_until_its_delay_ends_or_it_expires() -> None:
    model = a_queue()
    send(model, b"a", b"b")
    send(model, b"c", time_to_live=3_000)
    model.abandon(at(0), locks(model.receive(at(0), "t1", 3), "t1", delay=5_000))
    assert model.snapshot().due == {
        "d000000000001": T0 + 5_000,
        "d000000000002": T0 + 5_000,
        "d000000000003": T0 + 3_000,
    }
    assert names(model.receive(at(4), "t2", 5)) == []
    assert names(model.receive(at(5), "t3", 5)) == ["1", "2"]


def test_a_scheduled_message_gets_a_new_number_when_enqueued_and_its_time_to_live_begins_then() -> None:
    model = a_queue()
    model.send(at(0), [Outgoing(b"a", time_to_live=1_000, due=T0 + 60_000), Outgoing(b"b")])
    assert names(model.receive(at(59), "t1", 5)) == ["2"]
    assert names(model.receive(at(60), "t2", 5)) == ["3"]
    assert (model.messages[MAIN][3].enqueued, model.messages[MAIN][3].expires) == (T0 + 60_000, T0 + 61_000)


def test_a_deferred_message_is_received_by_number_only_and_expires_when_asked_for() -> None:
    model = a_queue(time_to_live=10_000)
    send(model, b"a")
    model.defer(at(0), locks(model.receive(at(0), "t1", 1), "t1", changes=b"later"))
    assert names(model.receive(at(1), "t2", 1)) == []
    assert model.receive_deferred(at(9), "t3", ["1", "7"]).missing == ("7",)
    received = model.receive_deferred(at(9), "t3", ["1"])
    assert received.messages[0].changes == b"later"
    model.abandon(at(11), locks(received, "t3", delay=1_000))
    assert (only(model).state, only(model).failures) == (State.DEFERRED, 2)
    assert model.receive_deferred(at(99), "t4", ["1"]).missing == ("1",)
    assert not model.messages[MAIN]


def test_a_locking_call_gives_out_the_deferred_messages_that_fit_and_a_deleting_call_all_or_none() -> None:
    model = a_queue()
    send(model, b"12345", b"67890", b"abc")
    model.defer(at(0), locks(model.receive(at(0), "t1", 3), "t1"))
    assert model.receive_deferred(at(1), "t2", ["1", "2", "3"], mode="delete", room=57) == Received(left=3)
    received = model.receive_deferred(at(1), "t3", ["1", "2", "3"], room=57)
    assert (names(received), received.left) == (["1", "2"], 1)
    assert (names(model.receive_deferred(at(1), "t4", ["3"], mode="delete", room=1))) == ["3"]


def test_purging_deletes_old_messages_that_are_not_locked_or_scheduled() -> None:
    model = a_queue()
    send(model, b"locked", b"deferred", b"delayed", b"active")
    send(model, b"scheduled", due=T0 + 60_000)
    send(model, b"young", seconds=1)
    held = locks(model.receive(at(1), "t1", 3), "t1")
    model.defer(at(1), [held[1]])
    model.abandon(at(1), [held[2]._replace(delay=9_000)])
    purged = model.purge(at(1), T0 + 1_000, share=2)
    assert (purged.count, purged.onwards) == (1, score(band(MAIN, State.ACTIVE), 6) + 1)
    assert model.purge(at(1), T0 + 1_000, start=purged.onwards or 0).count == 2
    assert sorted(model.messages[MAIN]) == [1, 5, 6]  # the locked message, the scheduled message and the young message


# -- failures between client and server --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "knowledge", "messages", "code"),
    [
        ({}, {"incarnation": "i2"}, [Outgoing(b"")], "GONE"),
        ({}, {"lane": "a", "number": 3}, [Outgoing(b"")], "REPEATED"),
        ({}, {"lane": "b", "number": 2}, [Outgoing(b"")], "LANE"),
        ({}, {}, [Outgoing(b"", level=8)], "BADCALL"),
        ({}, {}, [], "BADCALL"),
        ({}, {"version": 1}, [Outgoing(b"")], "STALE"),
        ({}, {"version": 3}, [Outgoing(b"")], "CONFIG"),
        ({"status": "SendDisabled"}, {}, [Outgoing(b"")], "DISABLED"),
        ({"largest_message": 3}, {}, [Outgoing(b"123"), Outgoing(b"1234")], "TOOLARGE"),
        ({"quota": 20}, {}, [Outgoing(b"12"), Outgoing(b"345")], "QUOTA"),
    ],
)
def test_a_refused_call_changes_nothing(
    settings: dict[str, Any], knowledge: dict[str, Any], messages: list[Outgoing], code: str
) -> None:
    """A refused call does no due work either. Here an ended lock is due."""
    model = a_queue()
    send(model, b"a")
    model.receive(at(0), "t1", 1)
    model.count(at(0))
    for number in (1, 4):
        model.complete(at(0, lane="a", number=number), [Lock("t9", "1")])
    model.configure(at(0, version=2), Settings(**settings))
    call = replace(at(99, version=2), **knowledge)
    if code == "QUOTA":  # a call is refused for lack of room only after all due work is done
        with pytest.raises(Refused, match="QUOTA"):
            model.send(call, messages)
    assert refusal(model, lambda: model.send(call, messages)).code == code
    assert model.refused[code] == 1 + (code == "QUOTA")


def test_setting_the_clock_back_neither_shortens_nor_lengthens_a_lock() -> None:
    model = a_queue()
    send(model, b"a")
    model.receive(at(0), "t1", 1)
    model.due(at(50))
    model.due(at(-3600))
    assert only(model).state is State.LOCKED
    model.due(at(-3600 + 9.999))
    assert only(model).state is State.LOCKED
    model.due(at(-3600 + 10))
    assert only(model).state is State.ACTIVE


def test_a_new_epoch_skips_message_numbers_and_extends_locks_by_one_duration_at_most() -> None:
    model = a_queue()
    send(model, b"a", b"b")
    model.receive(at(0), "t1", 1)
    assert model.send(at(59, run_id="r2"), [Outgoing(b"c")]).first == 3 + 2**24
    model.due(at(118.999, run_id="?"))  # the logical clock did not move from second 0 to second 59
    assert model.messages[MAIN][1].state is State.LOCKED
    model.due(at(119, run_id="r2"))
    assert (model.messages[MAIN][1].state, model.seq) == (State.ACTIVE, 3 + 2**24)


def test_a_partition_made_after_a_destroy_is_a_new_incarnation() -> None:
    model = a_queue()
    send(model, b"a")
    assert model.destroy(at(1)) is False
    assert refusal(model, lambda: model.receive(at(1), "t1", 1)).code == "GONE"
    model.configure(at(2, incarnation="i2"), Settings(), create=True)
    assert refusal(model, lambda: model.receive(at(2), "t1", 1)).code == "GONE"
    assert model.send(at(2, incarnation="i2"), [Outgoing(b"b")]).first == 1


def test_peek_and_count_show_due_effects_and_change_nothing() -> None:
    model = a_queue(time_to_live=1_000)
    send(model, b"a", b"b")
    model.receive(at(0), "t1", 1)
    before: Snapshot = deepcopy(model).snapshot()
    assert [message.state for message in model.peek(at(0.5), 1, 9).messages] == ["l", "a"]
    assert model.peek(at(99), 1, 9).messages == ()
    counts = model.count(at(99))
    assert (counts.states[MAIN, State.LOCKED], counts.states[MAIN, State.ACTIVE]) == (0, 0)
    assert model.snapshot() == before


def test_a_description_names_every_message() -> None:
    model = a_queue(max_delivery_count=1)
    send(model, b"a", b"b", time_to_live=NEVER - 1)
    model.abandon(at(0), locks(model.receive(at(0), "t1", 1), "t1"))
    model.receive(at(0), "t2", 1)
    described = model.describe()
    assert "  d1, active" in described
    assert "  2, locked, level 0, failures 0, token t2" in described
    assert "  lease t2" in described
