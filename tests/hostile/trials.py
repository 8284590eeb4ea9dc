"""One trial: a decoder reads one damaged input, within limits of time and memory. A search is many trials.

A decoder may return a value, or raise one of the errors that it documents. Everything else is a finding: another error,
more than a second of processor time, or more memory than fifty times the input and 10 MB.
"""

from __future__ import annotations

import gc
import resource
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, NoReturn

from tests.hostile.mutation import damaged, size_of

__all__ = ["SECONDS", "Decoder", "Finding", "Search", "input_of", "search"]

SECONDS = 1.0
"""The processor time that a decoder may take for one input, which has less than a megabyte."""
_BYTES, _MORE_BYTES = 50, 10 * 1024 * 1024
_GROWTH = 1024
"""The growth of the process, in KB, after which the memory of a trial is measured."""
_LONGEST_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Decoder:
    """A function that reads what others have stored, published or sent, and valid inputs for it."""

    name: str
    inputs: Sequence[Any]
    read: Callable[[Any], object]
    errors: tuple[type[Exception], ...]
    """The errors that it documents."""


class Finding(NamedTuple):
    """An input that a decoder does not read as it should."""

    decoder: str
    number: int
    """The number of the input; together with the seed it gives the input."""
    what: str
    shown: str

    def __str__(self) -> str:
        return f"{self.decoder}, input {self.number}: {self.what}\n    {self.shown}"


class _TooSlowError(BaseException):
    """The time of a trial is over. It is no Exception, so that no decoder catches it."""


class Search(NamedTuple):
    """The result of many trials."""

    trials: int
    values: int
    """The number of inputs that were read as values."""
    findings: list[Finding]


def input_of(decoder: Decoder, seed: int, number: int) -> Any:
    """Return an input. The first inputs are the valid ones."""
    if number < len(decoder.inputs):
        return decoder.inputs[number]
    random = Random(f"{seed} {decoder.name} {number}")
    return damaged(random.choice(decoder.inputs), decoder.inputs, random)


def search(
    decoder: Decoder,
    seed: int,
    numbers: Iterator[int],
    *,
    most: int = 5,
    note: Callable[[int], object] = lambda _: None,
) -> Search:
    """Try inputs until there are none, or there are this many findings. ``note`` is called before each trial."""
    trials = values = 0
    findings: list[Finding] = []
    with _limited():
        for number in numbers:
            given = input_of(decoder, seed, number)
            note(number)
            trials += 1
            said = _trial(decoder, given)
            if said == "":
                values += 1
            elif said is not None:
                shown = repr(given)
                short = (
                    shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}… ({len(shown)} characters)"
                )
                findings.append(Finding(decoder.name, number, said, short))
                if len(findings) >= most:
                    break
    return Search(trials, values, findings)


@contextmanager
def _limited() -> Iterator[None]:
    def too_slow(*_: object) -> NoReturn:
        raise _TooSlowError

    before = signal.signal(signal.SIGVTALRM, too_slow)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _trial(decoder: Decoder, given: Any) -> str | None:
    """Return what is wrong; ``None`` if the input was refused, and an empty text if it was read."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = _read(decoder, given)
    if said == _SLOW:
        gc.collect()
        said = _read(decoder, given)  # the machine may have been busy with something else
    if said in {None, ""} and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size > _GROWTH:
        return _measured(decoder, given) or said
    return said


_SLOW = f"it takes more than {SECONDS:g} s"


def _read(decoder: Decoder, given: Any) -> str | None:
    began = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        decoder.read(given)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooSlowError:
        return _SLOW
    except decoder.errors:
        found = None
    except MemoryError:
        found = "it takes all memory"
    except Exception as error:  # noqa: BLE001 -- this is what the search looks for
        found = f"{type(error).__name__}: {str(error)[:200]}"
    else:
        found = ""
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return _SLOW if time.process_time() - began > SECONDS else found


def _measured(decoder: Decoder, given: Any) -> str | None:
    """Return what is wrong with the memory that a trial takes."""
    gc.collect()
    tracemalloc.start()
    try:
        decoder.read(given)
    except decoder.errors:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return f"it takes {peak:,} bytes for {size_of(given):,}" if peak > _BYTES * size_of(given) + _MORE_BYTES else None
