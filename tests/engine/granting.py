"""Grants of credit for tests: a receiver of a partition on the bench."""

from __future__ import annotations

from sbredis.engine import CreditGrant, GiftPlace

__all__ = ["NOTHING", "granting"]

NOTHING = GiftPlace(0, 0, 0)


def granting(number: int, limit: int = 1, *, run: str = "?", prefix: str = "AAAAAAAA") -> CreditGrant:
    """Return a grant of a receiver for this many callers, at the server process ``run``."""
    return CreditGrant(
        number=number,
        run=run,
        prefix=prefix,
        begins=True,
        seen=NOTHING,
        begun=0,
        hands=1,
        callers=limit,
        limit=limit,
        size_limit=1 << 20,
        retired=(),
        again=False,
        once=False,
        now=False,
        announced=False,
        suspects=True,
    )
