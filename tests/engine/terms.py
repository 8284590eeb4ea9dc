"""The words of the life cycle of a message and of the bands of scores, for the model, its proofs and other tests."""

from __future__ import annotations

from sbredis.engine._bands import (
    BAND_WIDTH,
    BANDS,
    EPOCH_LEAP,
    LEVELS,
    RESERVED,
    SENTINEL,
    SENTINEL_BAND,
    band,
    member,
    score,
    split_member,
    split_score,
    state_of_band,
)
from sbredis.engine._lifecycle import COUNTED, ENDS, TRANSITIONS, Condition, Event, Reason, Side, State, decide

__all__ = [
    "BANDS",
    "BAND_WIDTH",
    "COUNTED",
    "ENDS",
    "EPOCH_LEAP",
    "LEVELS",
    "RESERVED",
    "SENTINEL",
    "SENTINEL_BAND",
    "TRANSITIONS",
    "Condition",
    "Event",
    "Reason",
    "Side",
    "State",
    "band",
    "decide",
    "member",
    "score",
    "split_member",
    "split_score",
    "state_of_band",
]
