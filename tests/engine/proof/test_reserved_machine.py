"""A reader of a reserved partition gets each message once, whatever happens meanwhile."""

from __future__ import annotations

from sbredis.engine._lua_files import read_source
from sbredis.servers import LocalServer
from tests.engine.proof.hosts import USUAL, host
from tests.engine.proof.reserved_machine import CASES
from tests.engine.proof.reserved_partition import narrow
from tests.engine.proof.reserved_run import prove
from tests.plugins.parts import rounds


@rounds(15, 40)
def test_each_message_is_in_one_place_in_the_end(examples: int, shared_server: LocalServer) -> None:
    with host(USUAL, narrow(read_source), server=shared_server) as on:
        seen = prove(on, examples=examples, begin_at=0)
    missing = [case for case in CASES if not seen[case]]
    assert len(missing) < (5 if examples >= 40 else len(CASES) / 2), missing
