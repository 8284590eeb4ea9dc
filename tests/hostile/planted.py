"""Decoders with planted faults, which the search must find."""

from __future__ import annotations

from typing import NoReturn

from sbredis._unreadable import unreadable
from sbredis.exceptions import DataLayoutError
from tests.hostile.trials import Decoder

__all__ = ["PLANTED"]


def _refuse() -> NoReturn:
    raise unreadable("A planted thing", "it is malformed")


def _items(given: bytes) -> list[bytes]:
    """Read items, each after its length, as ``3:abc``. A negative length goes back, and the loop has no end."""
    texts, at = list[bytes](), 0
    while at < len(given):
        colon = given.find(b":", at)
        try:
            size = int(given[at:colon])
        except ValueError:
            _refuse()
        at = colon + 1 + size
        if at < 0:
            _refuse()
        texts.append(given[colon + 1 : at])
        del texts[:-100]
    return texts


def _numbers(given: bytes) -> list[int]:
    """Read runs of numbers, of any length."""
    numbers: list[int] = []
    for run in given.split(b","):
        first, _, last = run.partition(b"-")
        if not first.isdigit() or len(run) > 20 or (last and not last.isdigit()):
            _refuse()
        numbers += range(int(first), min(int(last or first), 3_000_000) + 1)
    return numbers


def _time(given: bytes) -> int:
    """Read a number, and let Python's own error escape."""
    if not given:
        _refuse()
    return int(given)


def _deaf(given: bytes) -> int:
    """Work for ever if the input has a certain form, and take no signal."""
    if given.startswith(b"-"):
        while True:
            try:
                sum(range(1000))
            except BaseException:  # noqa: BLE001, S112 -- this is the fault
                continue
    return len(given)


PLANTED = {
    decoder.name: decoder
    for decoder in (
        Decoder("loop", [b"3:abc4:abcd2:xy"], _items, (DataLayoutError,)),
        Decoder("expansion", [b"1-4,7,9-12"], _numbers, (DataLayoutError,)),
        Decoder("error", [b"1700"], _time, (DataLayoutError,)),
        Decoder("deafness", [b"1700"], _deaf, (DataLayoutError,)),
    )
}
"""By name."""
