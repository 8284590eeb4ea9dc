"""The reserve: the memory above its limit that a server gives to moves."""

from __future__ import annotations

from sbredis.moving._reserve import is_within_reserve
from tests.offenders import for_each

GIGABYTE = 1 << 30


@for_each(
    ("used", "limit", "expected"),
    [
        (GIGABYTE, GIGABYTE, True),
        (GIGABYTE * 17 // 16, GIGABYTE, True),
        (GIGABYTE * 17 // 16 + 1, GIGABYTE, False),
        (9_000_000, 1_000_000, True),
        (9_000_001, 1_000_000, False),
        (1, 0, False),
    ],
)
def test_the_reserve_is_a_small_share_of_the_limit(used: int, limit: int, *, expected: bool) -> None:
    about = f"# Memory\r\nused_memory:{used}\r\nused_memory_human:1G\r\nmaxmemory:{limit}\r\nmaxmemory_human:0B\r\n"
    assert is_within_reserve(about) is expected


@for_each("about", ["", "used_memory:1\r\n", "maxmemory:1000\r\n", "used_memory:many\r\nmaxmemory:1000\r\n"])
def test_a_server_that_does_not_tell_its_memory_has_no_reserve(about: str) -> None:
    assert not is_within_reserve(about)
