"""The garbage collector of a program that is a worker, and nothing else.

The collector looks at every object that may be part of a cycle, again and again. Modules, classes and the worker itself
are thousands of such objects, and they live until the end. So the program takes them out of the collector's sight after
its start (``gc.freeze``). It also lets more objects come before the collector looks: a message makes some hundred.

This is for programs only. A library that changes the collector would change it for all code of the process.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

__all__ = ["THRESHOLD", "collecting_less"]

THRESHOLD: Final = 10_000
"""How many more objects than before there must be until the collector looks at the young ones."""


@contextmanager
def collecting_less() -> Generator[None]:
    """Freeze what a program has made at its start, and collect less often, while the block runs.

    A larger threshold of the application, and a collector that it has turned off, stay as they are.
    """
    before = gc.get_threshold()
    frozen = gc.get_freeze_count()
    if 0 < before[0] < THRESHOLD:
        gc.set_threshold(THRESHOLD, *before[1:])
    gc.collect()  # frozen garbage would stay
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        gc.set_threshold(*before)
