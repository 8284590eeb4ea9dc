"""The registry remembers which libraries of functions its clients call."""

from __future__ import annotations

import pytest

from sbredis.engine import MalformedCallError, library_keys
from sbredis.exceptions import ServiceBusQuotaExceededError
from sbredis.registry import name_library, read_libraries
from sbredis.transport import Transport

(KEY,) = library_keys("ns")
DAY = 86_400_000


async def write(transport: Transport, named: dict[str, object]) -> None:
    fields = [str(part) for pair in named.items() for part in pair]
    await transport.command("HSET", KEY, *fields, key=KEY)


@pytest.mark.conformance
async def test_a_library_is_known_with_the_time_of_the_server_when_it_was_named_last(transport: Transport) -> None:
    before = await read_libraries(transport, "ns")
    assert before.named == {}
    await write(transport, {"sb_1": 5, "sb_2": 6})
    await name_library(transport, "ns", "sb_2")
    await name_library(transport, "ns", "sb_3")
    after = await read_libraries(transport, "ns")
    assert after.named["sb_1"] == 5
    assert before.now <= after.named["sb_2"] <= after.named["sb_3"] <= after.now


async def test_what_is_no_name_or_no_time_is_not_read(transport: Transport) -> None:
    await write(transport, {"sb_1": "x", "mine": 5, "sb_": 5, "sb_2": "", "sb_3": 7})
    assert (await read_libraries(transport, "ns")).named == {"sb_3": 7}


@pytest.mark.parametrize("name", ["", "x", "sb_", "sb_x", "SB_1", "sb_1 ", f"sb_{'1' * 48}"])
async def test_another_name_is_refused(transport: Transport, name: str) -> None:
    with pytest.raises(MalformedCallError):
        await name_library(transport, "ns", name)
    assert (await read_libraries(transport, "ns")).named == {}


async def test_at_most_a_thousand_libraries_are_remembered(transport: Transport) -> None:
    now = (await read_libraries(transport, "ns")).now
    await write(transport, {f"sb_{number:x}": now for number in range(1000)})
    with pytest.raises(ServiceBusQuotaExceededError, match="remembers 1000 libraries of functions already"):
        await name_library(transport, "ns", "sb_aaaa")
    await name_library(transport, "ns", "sb_1")
    await write(transport, {"sb_2": now - 8 * DAY, "sb_3": "x"})
    await name_library(transport, "ns", "sb_aaaa")
    named = (await read_libraries(transport, "ns")).named
    assert len(named) == 999
    assert {"sb_2", "sb_3"}.isdisjoint(named)
    assert "sb_aaaa" in named
