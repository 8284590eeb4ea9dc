"""Moments in the work of a capture, seen by the files that Spark and the job write: a kill waits for one of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.spark.chaos.jobs import Job

__all__ = ["MOMENTS", "Folders", "reach"]


class Folders:
    """The output and the checkpoint of a capture."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"

    def planned(self) -> int:
        """Return how many batches were planned: Spark has stored their ends."""
        return len(list(self.checkpoint.glob("offsets/[0-9]*")))

    def committed(self) -> int:
        """Return how many batches Spark has committed."""
        return len(list(self.checkpoint.glob("commits/[0-9]*")))

    def staged(self) -> set[Path]:
        """Return the folders into which batches are written before their files are moved."""
        return set(self.out.glob(".spark-staging-*"))

    def moved(self) -> set[Path]:
        """Return the folders of batches."""
        return set(self.out.glob("entity=*/date=*/hour=*/batch_id=*"))


def _grown(look: Callable[[], int]) -> Callable[[], object]:
    before = look()
    return lambda: look() > before


def _new(look: Callable[[], set[Path]]) -> Callable[[], object]:
    before = look()
    return lambda: look() - before


MOMENTS: dict[str, tuple[Callable[[Folders, Job], Callable[[], object]], float]] = {
    "starting": (lambda _, job: job.jvm, 15.0),
    "planning": (lambda at, _: _grown(at.committed), 0.05),
    "reading": (lambda at, _: _grown(at.planned), 0.5),
    "writing": (lambda at, _: _new(at.staged), 0.4),
    "moving": (lambda at, _: _new(at.moved), 0.1),
    "committing": (lambda at, _: _new(at.moved), 0.8),
    "between batches": (lambda at, _: _grown(at.committed), 1.0),
}
"""How each moment begins, and for how many seconds it lasts at most."""


def reach(moment: str, folder: Path, job: Job, chance: random.Random) -> bool:
    """Wait for a moment, and then for a random part of it. Return whether the job still runs.

    The job must have its Java before: until then, what happens to the files is the work of an earlier job that ends.
    """
    begins, lasts = MOMENTS[moment]
    if not (job.until(job.jvm) and job.until(begins(Folders(folder), job))):
        return False
    time.sleep(chance.random() * lasts)
    return job.code is None
