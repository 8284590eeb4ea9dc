"""Reports of a worker process to its supervisor: a line of JSON every second."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sbredis.workers.observing._reports import Report

__all__ = ["EVERY", "reporting"]

EVERY: Final = 1.0


async def reporting(descriptor: int, report: Callable[[], Report], when_alone: Callable[[], None]) -> None:
    """Write reports to a pipe until cancelled. Call ``when_alone`` when the supervisor is gone."""
    os.set_blocking(descriptor, False)
    try:
        while True:
            with suppress(BlockingIOError):  # the supervisor is slow: the next report has everything that this one has
                os.write(descriptor, report().to_line())
            await asyncio.sleep(EVERY)
    except OSError:
        when_alone()
    finally:
        os.close(descriptor)
