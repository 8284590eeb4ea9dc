"""The guarantees for two clients hold, whatever the network does, and whatever the clock of the server shows."""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof.extent import EXAMPLES, bounded
from tests.engine.proof.hosts import KINDS, USUAL, Kind, host
from tests.engine.proof.running import run_machine
from tests.engine.proof.two_clients import two_clients
from tests.plugins.parts import first


@pytest.mark.parametrize("kind", first(1, reversed(KINDS), "steps in memory take several times as long"))
def test_no_message_is_locked_by_two_clients_or_given_out_after_settlement(
    kind: Kind, shared_server: LocalServer
) -> None:
    with host(kind, server=shared_server) as on:
        run_machine(two_clients(on), bounded((6 if kind == USUAL else 2) * EXAMPLES))
