"""The hosts on which the scripts are proved."""

from __future__ import annotations

import pytest

from sbredis.engine import Partition, PartitionSettings
from sbredis.servers import LocalServer
from tests.engine.proof.hosts import KINDS, Kind, host, source_at_start


def broken(name: str) -> str | None:
    """Read the scripts, one of which fails whenever it is called."""
    return "#!lua\nerror('broken')\n" if name == "count" else source_at_start(name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_script_leaves_no_reply_for_the_next_command(kind: Kind, shared_server: LocalServer) -> None:
    partition = Partition("hosts", "abc", "e", "i1", 1, PartitionSettings())
    with host(kind, broken, server=shared_server) as on:
        with pytest.raises(AssertionError, match=r"^count failed: .*broken"):
            on.run_and_read(partition.count(), "r1", [partition.keys])
        assert on.ask("ECHO", "next") == b"next"
