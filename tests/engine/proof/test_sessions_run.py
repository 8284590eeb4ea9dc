"""A short run: receivers compete for sessions, and give messages back or let locks lapse at random. The order always
holds.
"""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof.hosts import KINDS, USUAL, Kind, host, with_texts_replaced
from tests.engine.proof.sessions_run import run
from tests.plugins.parts import first


@pytest.mark.parametrize("kind", first(1, reversed(KINDS), "steps in memory take several times as long"))
def test_a_session_keeps_its_order_and_has_one_receiver_at_a_time(kind: Kind, shared_server: LocalServer) -> None:
    with host(kind, server=shared_server) as on:
        tally = run(on, 1_000 if kind == USUAL else 200, sessions=20)
    often = ("abandoned", "abandoned with a delay", "deferred", "lapses", "renewed", "given back with messages")
    assert all(tally[what] for what in often), tally


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    first(
        2,
        [
            pytest.param("includes/let_go_of_session", "if blocked > p.now then", "if false then"),
            pytest.param("includes/release", "block_session(p, e.session,", "tostring(p, e.session,"),
            pytest.param("accept_session", "if other then\n", "if false then\n"),
            pytest.param("includes/state_after_lock", "e.failures = e.failures + 1", "e.failures = e.failures"),
            pytest.param("includes/make_ready", "    index_add(p, e.session, 'a', number)\n", ""),
        ],
        "each bug is one more search",
    ),
)
def test_a_planted_bug_is_found(file: str, right: str, wrong: str, shared_server: LocalServer) -> None:
    """If the run did not find these planted bugs, its success would prove nothing."""
    read = with_texts_replaced({file: [(right, wrong)]})
    with host(USUAL, read, server=shared_server) as on, pytest.raises(AssertionError):
        run(on, 2_000, sessions=40, seed=2)
