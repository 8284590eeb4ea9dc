"""Movers that stop, repeat old calls and work side by side lose no message and move none twice."""

from __future__ import annotations

import pytest

from sbredis.engine._scripts import expand, read_source
from sbredis.servers import LocalServer
from tests.engine.proof.hosts import KINDS, Kind, host
from tests.engine.proof.moves_run import prove
from tests.engine.proof.planted_moves import BUGS, changed, found
from tests.offenders import for_each


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_message_is_at_one_place_in_the_end(kind: Kind, shared_server: LocalServer) -> None:
    with host(kind, server=shared_server) as on:
        seen = prove(on, examples=60 if kind == "server" else 15, steps=30, derandomize=True)
    often = ("take: taken", "take: again", "lost freeze", "made again") if kind == "server" else ("take: taken",)
    assert all(seen[what] for what in often), seen


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_in_moves_is_found(bug: str, shared_server: LocalServer) -> None:
    assert found(bug, shared_server, examples=100) is not None


@for_each("bug", sorted(BUGS))
def test_each_planted_bug_changes_a_script(bug: str) -> None:
    scripts = ("forget_source", "freeze", "outgoing", "settle_batch", "take", "transact")
    assert any(expand(name, changed(bug)) != expand(name, read_source) for name in scripts)
