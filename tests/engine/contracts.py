"""The contracts in the headers of the Lua files, for tests that compare code with these contracts."""

from __future__ import annotations

from functools import cache

from sbredis.engine._contracts import Contract, contract, refusals
from sbredis.engine._keys import KINDS
from sbredis.engine._lua_files import read_source
from sbredis.engine._scripts import operations

__all__ = ["COMMON_REFUSALS", "OF_A_PARTITION", "OF_EVERY_CALL", "contract_of", "fragment", "source_of"]


def source_of(name: str) -> str:
    """Return a Lua file as it is in the checkout, including its header."""
    source = read_source(name)
    assert source is not None, name
    return source


def fragment(name: str) -> str:
    return source_of(f"includes/{name}")


@cache
def contract_of(name: str) -> Contract:
    return contract(source_of(name))


OF_A_PARTITION = tuple(name for name in operations() if contract_of(name).keys[0] == ("partition", len(KINDS)))
"""The operations of a partition. All other scripts belong to the registry of a namespace, except the probe."""

COMMON_REFUSALS = refusals(fragment("begin"))
"""The codes that the word `call` means in the list of refusals of an operation."""

OF_EVERY_CALL = tuple(name for name in OF_A_PARTITION if "call" in contract_of(name).refusals)
"""The operations that begin with the fragment includes/calls/begin.lua."""
