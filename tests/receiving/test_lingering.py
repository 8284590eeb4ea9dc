"""A receiver that wants nothing lingers, then hears news, then is quiet."""

from __future__ import annotations

import math

from sbredis.receiving._fetching import InboxState, Lingering


def walked(lingering: Lingering, now: float) -> list[tuple[InboxState, float]]:
    """Return the states from a time on, each with the time at which it ends."""
    found: list[tuple[InboxState, float]] = []
    while now < math.inf:
        lingering.pass_time(now)
        found.append((lingering.state, now := lingering.next_at))
    return found


def test_the_states_follow_each_other() -> None:
    lingering = Lingering()
    assert walked(lingering, 100.0) == [(InboxState.QUIET, math.inf)]
    lingering.begin(100.0, lingers=1.0, hears=5.0)
    assert walked(lingering, 100.5) == [
        (InboxState.LINGERING, 101.0),
        (InboxState.HEARING, 105.0),
        (InboxState.QUIET, math.inf),
    ]
    lingering.begin(103.0, lingers=1.0, hears=5.0)
    lingering.pass_time(103.5)
    assert lingering.state is InboxState.LINGERING, "a caller has left again"


def test_a_state_lasts_until_a_timer_fires() -> None:
    """A process that stood still keeps what it has for a caller who comes back at once."""
    lingering = Lingering()
    lingering.begin(100.0, lingers=1.0, hears=5.0)
    assert (lingering.state, lingering.next_at) == (InboxState.LINGERING, 101.0)
    lingering.pass_time(106.0)
    assert (lingering.state, lingering.next_at) == (InboxState.QUIET, math.inf)


def test_a_receiver_that_must_give_back_at_once_may_still_hear_news() -> None:
    lingering = Lingering()
    lingering.begin(100.0, lingers=0.0, hears=5.0)
    assert lingering.state is InboxState.HEARING


def test_the_end_is_at_once() -> None:
    lingering = Lingering()
    lingering.begin(100.0)
    lingering.end()
    assert lingering.state is InboxState.QUIET
