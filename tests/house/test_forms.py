"""Tests fail if servers do not get the scripts in the form of the run."""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from sbredis.transport import Script
from tests.plugins.forms import in_form, may_be_any, without_refusals
from tests.transport.opening import function, opened

ONE = function("one", "return 1")


@pytest.mark.parametrize("permitted", [False, True])
async def test_a_test_that_runs_a_single_script_needs_permission(permitted: bool, shared_server: LocalServer) -> None:
    async def call(script: Script) -> None:
        async with await opened(shared_server.url, scripts=[ONE]) as transport:
            assert await transport.call(script, [b"k"]) == 1

    with in_form([shared_server], may_be_any=False):
        await call(ONE)
    if permitted:
        with in_form([shared_server], may_be_any=True):
            await call(Script("other", "return 1"))
    else:
        with (
            pytest.raises(pytest.fail.Exception, match=r"^1 calls of EVALSHA, although"),
            in_form([shared_server], may_be_any=False),
        ):
            await call(Script("other", "return 1"))


@pytest.mark.any_form("it takes the library away")
async def test_a_test_in_which_a_server_refuses_the_library_needs_permission(shared_server: LocalServer) -> None:
    async def call() -> None:
        shared_server.ask("FUNCTION", "FLUSH")
        shared_server.ask("CONFIG", "SET", "maxmemory", "1")
        try:
            async with await opened(
                shared_server.url, scripts=[function("two", "#!lua flags=no-writes\nreturn 2")]
            ) as it:
                assert await it.call(function("two", "#!lua flags=no-writes\nreturn 2"), [b"k"]) == 2
        finally:
            shared_server.ask("CONFIG", "SET", "maxmemory", "0")

    with without_refusals(may_be_any=True):
        await call()
    with pytest.raises(pytest.fail.Exception, match=r"single scripts .* OOM"), without_refusals(may_be_any=False):
        await call()


@pytest.mark.parametrize("arguments", [(), ("",), (1,), ("no rights", "no memory")])
def test_permission_needs_a_reason(arguments: tuple[object, ...], request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.any_form(*arguments))
    with pytest.raises(pytest.UsageError, match="any_form needs a reason"):
        may_be_any(request.node)
