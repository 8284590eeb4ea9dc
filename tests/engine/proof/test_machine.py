"""The scripts do what the model does, step by step, whatever is called in whatever order at whatever time."""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import SHARES, drive
from tests.engine.proof.hosts import KINDS, Kind, host, with_share


@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"share-{share}")
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does(kind: Kind, share: int, shared_server: LocalServer) -> None:
    """Results, refusals and the whole state are compared after every step; so is what must always be true of the keys."""
    tally = Tally()
    with host(kind, with_share(share), server=shared_server) as on:
        drive(on, tally, share=share)
    assert tally.steps > 0
