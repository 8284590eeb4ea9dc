"""Jobs of Spark that are killed again and again. At the end of a scene every message must be where it belongs."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from sbredis import ServiceBusClient, ServiceBusSubQueue
from sbredis.aio import ServiceBusClient as Client
from sbredis.bulk import stored_rows
from sbredis.spark._commands import INTERRUPTED
from tests.spark.chaos.feeding import Feed, feeding
from tests.spark.chaos.findings import captured, faults, peeked, waiting
from tests.spark.chaos.jobs import Job, Victim
from tests.spark.chaos.moments import MOMENTS, Folders, reach
from tests.spark.chaos.writing import QUEUES

__all__ = ["Scene", "captures", "drained", "job_list", "replays", "writes"]

ROWS, TASKS, RATE = 160_000, 4, 30_000
_WRITER = "chaos"


@dataclass(frozen=True)
class Scene:
    """Where a scene plays, how often its thing happens, and who hears of it."""

    url: str
    folder: Path
    times: int
    seed: int
    say: Callable[[str], object]
    queue: str = "orders"
    last: Callable[[Sequence[str]], object] | None = None
    """Runs the last capture, given the arguments of the job, and raises an error if it fails. Without this function,
    the last capture has a process of its own, as those that are killed.
    """

    def create(self) -> None:
        """Create a queue with several partitions, whose expired messages become dead letters."""
        with ServiceBusClient(self.url) as client:
            client.ensure_queue(self.queue, enable_partitioning=True, dead_lettering_on_message_expiration=True)

    @property
    def line(self) -> tuple[str, ...]:
        """The arguments of a capture of the queue."""
        at = Folders(self.folder)
        return "capture", self.queue, "--to", str(at.out), "--checkpoint", str(at.checkpoint)

    def capture(self, *more: str) -> Job:
        """Start a capture of the queue."""
        return Job(self.url, self.folder, *self.line, *more)

    def stream(self) -> Job:
        """Start a capture of the queue that goes on for ever, in small batches."""
        return self.capture("--every", "1 second", "--max-messages", "3000")

    def replay(self, source: Path) -> Job:
        """Start a replay into the queue, slow enough to be killed in the middle."""
        given = ("--source", str(source), "--tasks", str(TASKS), "--rate", str(RATE), "--write-id", _WRITER)
        return Job(self.url, self.folder, "replay", self.queue, *given)

    def write(self) -> Job:
        """Start two streams that send the rows of files, a file in each batch."""
        return Job(self.url, self.folder, str(self.folder), module="tests.spark.chaos.writing")

    @contextmanager
    def replayed(self) -> Generator[Callable[[], int]]:
        """Yield a function that returns how many rows of the replay the queue has stored."""
        with asyncio.Runner() as runner:
            client = Client(self.url)
            try:
                yield lambda: runner.run(stored_rows(client, self.queue, _WRITER))
            finally:
                runner.run(client.close())

    def progress(self) -> str:
        """Say how far a capture is."""
        at = Folders(self.folder)
        return f"{at.planned()} batches planned, {at.committed()} committed"


def victims(moments: tuple[str, ...], *kinds: Victim) -> Iterator[tuple[str, Victim]]:
    """Yield moments and victims without end. Each pair comes before a pair comes again."""
    for turn in itertools.count():
        for number, moment in enumerate(moments):
            yield moment, kinds[(number + turn) % len(kinds)]


@contextmanager
def job_list() -> Generator[list[Job]]:
    """Yield a list for jobs. At the end of the block, what still runs of them is killed."""
    jobs: list[Job] = []
    try:
        yield jobs
    finally:
        for job in jobs:
            job.end()


def finished(job: Job, jobs: list[Job]) -> None:
    """Wait until a job has succeeded, and until the processes of all jobs have ended."""
    jobs.append(job)
    assert job.wait() == 0, job.said[-3000:]
    ended(jobs)


def ended(jobs: list[Job]) -> None:
    """Wait until the processes of all jobs have ended."""
    for each in jobs:
        each.wait_until_gone()


def drained(scene: Scene, jobs: list[Job], feed: Feed) -> str:
    """Capture what is left. Check the files, the queue and its dead letters, and return the figures."""
    if scene.last is None:
        finished(scene.capture(), jobs)
    else:
        scene.last(scene.line)
        ended(jobs)
    assert waiting(scene.url, scene.queue) == 0
    there, batches = captured(Folders(scene.folder).out)
    dead = peeked(scene.url, scene.queue, ServiceBusSubQueue.DEAD_LETTER)
    _refuse(faults(there, dead, feed.sent, feed.unknown, feed.mortal))
    return (
        f"{len(feed):,} messages sent, {there.total():,} captured in {batches} batches, {dead.total():,} dead letters, "
        "lost 0, twice 0, left 0"
    )


def _refuse(found: list[str]) -> None:
    assert not found, "\n".join([f"{len(found)} faults", *sorted(found)[:10]])


def captures(scene: Scene, moments: tuple[str, ...] = tuple(MOMENTS)) -> str:
    """Kill captures of a queue while messages are sent to it."""
    chance = random.Random(scene.seed)
    scene.create()
    with job_list() as jobs:
        with feeding(Feed(scene.url, scene.queue, scene.seed)) as feed:
            for number, (moment, victim) in enumerate(
                itertools.islice(victims(moments, "jvm", "python"), scene.times), 1
            ):
                job = scene.stream()
                jobs.append(job)
                there = reach(moment, scene.folder, job, chance)
                feed.check()
                assert there, job.said[-3000:]
                assert job.kill(victim), job.said[-3000:]
                scene.say(
                    f"{number:>3}: {victim} killed {job.age:.1f} s after the start, while {moment}: "
                    f"{scene.progress()}, {len(feed):,} messages sent"
                )
                if chance.random() < 0.5:  # otherwise the next run begins while the last one ends
                    job.wait_until_gone()
        return drained(scene, jobs, feed)


def replays(scene: Scene, rows: int = ROWS) -> str:
    """Kill a replay of files into a queue, to which other messages are sent too."""
    chance = random.Random(scene.seed)
    scene.create()
    source = scene.folder / "source"
    names = write_source(source, rows, chance)
    with job_list() as jobs, scene.replayed() as replayed:
        with feeding(Feed(scene.url, scene.queue, scene.seed, pause=0.3, mortal=0.0)) as feed:
            for number, (_, victim) in enumerate(
                itertools.islice(victims(("sending",), "python", "jvm", "all of them by Ctrl-C"), scene.times), 1
            ):
                if victim not in {"jvm", "python"}:
                    ended(jobs)  # otherwise an earlier one could send the rows for which this one is interrupted
                job = scene.replay(source)
                jobs.append(job)
                before = replayed()
                goal = before + 1 + (rows - before) * chance.random() / 2
                starting = number % 4 == 0 or before == rows
                if starting:
                    assert job.until(job.jvm), job.said[-3000:]
                    time.sleep(chance.random() * 15)
                else:
                    assert job.until(partial(reached, replayed, goal)), job.said[-3000:]
                feed.check()
                assert job.kill(victim), job.said[-3000:]
                scene.say(
                    f"{number:>3}: {victim} killed {job.age:.1f} s after the start: {replayed():,} rows sent, "
                    f"and {len(feed):,} other messages"
                )
                if victim not in {"jvm", "python"} and not starting:
                    if (code := job.wait()) == 0:  # it had just sent the last row
                        assert replayed() == rows, job.said[-3000:]
                    else:
                        assert code == INTERRUPTED, job.said[-3000:]
                        assert "rows until now; the same command sends the others" in job.said
                if chance.random() < 0.5:
                    job.wait_until_gone()
            finished(scene.replay(source), jobs)
        there = peeked(scene.url, scene.queue)
        _refuse(faults(there, Counter(), names | feed.sent))
        return f"{rows:,} rows and {len(feed):,} other messages sent, {there.total():,} found, lost 0, twice 0"


def writes(scene: Scene, rows: int = ROWS, files: int = 40) -> str:
    """Kill streams that send the rows of files to two queues, in the middle of batches and between them."""
    chance = random.Random(scene.seed)
    for queue in QUEUES:
        replace(scene, queue=queue).create()
    names = write_source(scene.folder / "source", rows, chance, files)

    def sent() -> int:
        return sum(waiting(scene.url, queue) for queue in QUEUES)

    with job_list() as jobs:
        for number, (_, victim) in enumerate(itertools.islice(victims(("sending",), "python", "jvm"), scene.times), 1):
            job = scene.write()
            jobs.append(job)
            before = sent()
            goal = before + 1 + (2 * rows - before) * chance.random() / (scene.times - number + 2)
            assert job.until(job.jvm), job.said[-3000:]
            if before == 2 * rows or number % 5 == 0:
                time.sleep(chance.random() * 15)
            else:
                assert job.until(partial(reached, sent, goal)), job.said[-3000:]
            assert job.kill(victim), job.said[-3000:]
            scene.say(
                f"{number:>3}: {victim} killed {job.age:.1f} s after the start: {sent():,} of {2 * rows:,} rows sent"
            )
            if chance.random() < 0.5:
                job.wait_until_gone()
        finished(scene.write(), jobs)
        for queue in QUEUES:
            _refuse(faults(peeked(scene.url, queue), Counter(), names))
    return f"{rows:,} rows sent to each of two queues in {files} batches, lost 0, twice 0"


def reached(sent: Callable[[], int], goal: float) -> bool:
    """Return whether a job has sent this many rows."""
    return sent() >= goal


def write_source(source: Path, rows: int, chance: random.Random, files: int = 3) -> set[str]:
    """Write the files whose rows are sent, and return the names of their messages."""
    source.mkdir()
    names = [f"row-{number}" for number in range(rows)]
    for at in range(0, rows, -(-rows // files)):
        piece = names[at : at + -(-rows // files)]
        keys = [f"key {chance.randrange(20)}" if chance.random() < 0.3 else None for _ in piece]
        table = pa.table({"body": [name.encode() for name in piece], "message_id": piece, "partition_key": keys})
        parquet.write_table(table, source / f"part-{at}.parquet")
    return set(names)
