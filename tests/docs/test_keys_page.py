"""Tests that the page about keys lists exactly the kinds of keys that the engine makes."""

from __future__ import annotations

import re

from sbredis.engine import head_keys, library_keys, role_keys, tick_keys
from sbredis.engine._keys import BUCKET_KINDS, KINDS
from tools.repository import ROOT

PAGE = (ROOT / "docs" / "keys.md").read_text("utf-8")
OF_PARTITIONS, _, OF_REGISTRY = PAGE.partition("## The registry of a namespace")


def listed(part: str) -> set[str]:
    """Return the keys in the first column of a table, with a range in full."""
    rows = re.findall(r"^\| (`.*?) \| (?:hash|sorted set|stream) \|", part, re.MULTILINE)
    found = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    return found | ({f"m{number}" for number in range(16)} if "`m0` to `m15`" in rows else set())


def test_the_page_lists_the_keys_of_a_partition() -> None:
    assert listed(OF_PARTITIONS) == set(KINDS)


def test_the_page_lists_the_keys_of_a_namespace() -> None:
    keys = [key for of in (head_keys, role_keys, tick_keys, library_keys) for key in of("orders")]
    assert listed(OF_REGISTRY) == {*BUCKET_KINDS, *(key.decode().rpartition(":")[2] for key in keys)}
