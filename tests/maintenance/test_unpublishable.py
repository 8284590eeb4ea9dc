"""Scheduled messages that cannot be published are set aside for growing times, and as far as there is room."""

from __future__ import annotations

from sbredis.client import Timings
from sbredis.engine import Delivery
from sbredis.maintenance import _publishing as aside
from sbredis.maintenance._publishing import Unpublishable

A, B = Delivery("1", b"a"), Delivery("2", b"b")
RULES, OTHER_RULES = object(), object()
PAUSES = Timings().publishing_again


def test_a_message_is_set_aside_for_longer_after_each_failure() -> None:
    kept, now, pauses = Unpublishable(PAUSES), 0.0, list[int]()
    for _ in range(7):
        assert kept.put(A, now, RULES)
        assert kept.without([A, B], now, RULES) == [B]
        pauses.append(next(pause for pause in range(400) if kept.without([A], now + pause, RULES)))
        now += pauses[-1]
    for pause, longest in zip(pauses, [10, 20, 40, 80, 160, 300, 300], strict=True):
        assert longest / 2 <= pause <= longest


def test_other_rules_end_the_time() -> None:
    kept = Unpublishable(PAUSES)
    kept.put(A, 0.0, RULES)
    assert kept.without([A], 1.0, RULES) == []
    assert kept.without([A], 1.0, OTHER_RULES) == [A]


def test_a_message_that_is_set_aside_already_needs_no_further_room() -> None:
    kept = Unpublishable(PAUSES)
    names = 0
    while kept.put(Delivery(str(names), b"m"), 0.0, RULES):
        names += 1
    assert names == len(kept) > 1
    assert kept.put(Delivery("0", b"m"), 20.0, RULES)
    assert len(kept) == names


def test_the_bytes_of_all_messages_are_limited_but_there_is_room_for_one() -> None:
    kept = Unpublishable(PAUSES)
    large = bytes(aside._MOST_BYTES)
    assert kept.put(Delivery("1", large + b"more"), 0.0, RULES)
    assert not kept.put(B, 0.0, RULES)
    assert kept.size == len(large) + 4


def test_messages_that_were_published_or_are_not_due_any_more_are_forgotten() -> None:
    kept = Unpublishable(PAUSES)
    for each in (A, B):
        kept.put(each, 0.0, RULES)
    kept.published([A])
    assert (A in kept, B in kept) == (False, True)
    kept.only([A])
    assert not kept
    assert kept.without([A, B], 1.0, RULES) == [A, B]
