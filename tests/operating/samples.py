"""Samples of entities, for tests."""

from __future__ import annotations

from sbredis.operating import Sample


def sample(path: str, at: float = 0.0, **given: int) -> Sample:
    states = ("active", "locked", "delayed", "deferred", "scheduled")
    return Sample(
        path=path,
        at=at,
        counts={state: given.get(state, 0) for state in states},
        dead=given.get("dead", 0),
        oldest=given.get("oldest"),
        consumers=given.get("consumers", 0),
        arrived=given.get("arrived"),
        unavailable=given.get("unavailable", 0),
    )
