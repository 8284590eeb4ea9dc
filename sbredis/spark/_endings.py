"""How a job ends before its work is done: someone asks it to, Spark is gone, or Spark reports an error of ours."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["GONE", "asked_to_end", "is_gone", "reason_of", "stop"]

GONE = (
    "Spark's Java process has ended. Nothing is lost: run the same command again, with the same folders, and it goes "
    "on where it was"
)
_OURS = re.compile(r"^sbredis\.exceptions\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def asked_to_end(say: Callable[[], object]) -> Generator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM ask a job to end: yield a function that tells whether they have.

    The first signal calls ``say`` and does nothing else; the second one raises :class:`KeyboardInterrupt`.
    """
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        say()

    if threading.current_thread() is not threading.main_thread():  # signals are for the main thread only
        yield asked.is_set
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_gone(spark: SparkSession) -> bool:
    """Return whether the Java process of a session has ended."""
    try:
        return not spark.version
    except (Py4JError, OSError):
        return True


def stop(spark: SparkSession) -> None:
    """Stop a session, also if its Java process has ended."""
    with suppress(Py4JError, OSError):
        spark.stop()


def reason_of(error: Exception) -> str | None:
    """Return what sbredis has said in an error of Spark, without Spark's stack traces; ``None`` if it said nothing."""
    found = _OURS.findall(str(error)) if isinstance(error, PySparkException) else []
    return ": ".join(found[-1]) if found else None
