"""Jobs of Spark that are killed again and again. At the end of a scene every message must be where it belongs."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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

ROWS, TASKS = 160_000, 4
_SECONDS = 5
"""A replay takes this long at least, so that a kill can meet it in the middle."""
_KILLS = 4
"""The largest number of kills of one replay."""


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

    def replay(self, source: Path, rows: int) -> Job:
        """Start a replay of some rows into the queue, slow enough to be killed in the middle."""
        given = ("--source", source, "--tasks", TASKS, "--rate", rows // _SECONDS, "--write-id", source.name)
        return Job(self.url, self.folder, "replay", self.queue, *map(str, given))

    def write(self) -> Job:
        """Start two streams that send the rows of files, a file in each batch."""
        return Job(self.url, self.folder, str(self.folder), module="tests.spark.chaos.writing")

    @contextmanager
    def replayed(self, source: Path) -> Generator[Callable[[], int]]:
        """Yield a function that returns how many rows of a replay the queue has stored."""
        with asyncio.Runner() as runner:
            client = Client(self.url)
            try:
                yield lambda: runner.run(stored_rows(client, self.queue, source.name))
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
    """Kill replays of files into a queue, to which other messages are sent too. After some kills, a replay may end."""
    chance = random.Random(scene.seed)
    scene.create()
    kinds = victims(("sending",), "python", "jvm", "all of them by Ctrl-C")
    names, number, sources = set[str](), 0, 0
    with job_list() as jobs:
        with feeding(Feed(scene.url, scene.queue, scene.seed, pause=0.3, mortal=0.0)) as feed:
            while number < scene.times:
                source, sources = scene.folder / f"source-{sources}", sources + 1
                names |= write_source(source, rows, chance, first=len(names))
                with scene.replayed(source) as stored:
                    for left in range(min(_KILLS, scene.times - number), 0, -1):
                        job, (_, victim) = scene.replay(source, rows), next(kinds)
                        there = killed(job, victim, stored, rows, chance.random() / (left + 1), jobs)
                        if there is None:
                            break
                        number += 1
                        scene.say(
                            f"{number:>3}: {victim} killed {job.age:.1f} s after the start: {there:,} of {rows:,} rows "
                            f"sent, and {len(feed):,} other messages"
                        )
                        feed.check()
                        if victim not in {"jvm", "python"}:
                            assert interrupted(job) or there == rows, job.said[-3000:]
                        elif chance.random() < 0.5:  # otherwise the next run begins while this one ends
                            job.wait_until_gone()
                    else:
                        finished(scene.replay(source, rows), jobs)
        found = peeked(scene.url, scene.queue)
        _refuse(faults(found, Counter(), names | feed.sent))
        return (
            f"{number} kills in the middle of {sources} replays: {len(names):,} rows and {len(feed):,} other messages "
            f"sent, {found.total():,} found, lost 0, twice 0"
        )


def killed(  # noqa: PLR0917 -- a job, and how far it goes
    job: Job, victim: Victim, sent: Callable[[], int], rows: int, share: float, jobs: list[Job]
) -> int | None:
    """Kill a job that has sent a share of the rows that are left, and return how many are sent then.

    The earlier jobs must have ended before, so that these rows are sent by this job. If they have left no rows, there
    is no middle to meet: the job ends by itself.
    """
    ended(jobs)
    before = sent()
    if before == rows:
        finished(job, jobs)
        return None
    jobs.append(job)
    assert job.until(lambda: sent() > before + (rows - before) * share), job.said[-3000:]
    assert job.kill(victim), job.said[-3000:]
    return sent()


def interrupted(job: Job) -> bool:
    """Wait for the end of a replay after Ctrl-C, and check what it says. Return whether it was not done before."""
    if (code := job.wait()) == 0:
        return False
    assert code == INTERRUPTED, job.said[-3000:]
    assert "rows until now; the same command sends the others" in job.said
    return True


def writes(scene: Scene, rows: int = ROWS, files: int = 40) -> str:
    """Kill streams that send the rows of files to two queues, in the middle of batches and between them."""
    chance = random.Random(scene.seed)
    for queue in QUEUES:
        replace(scene, queue=queue).create()
    names = write_source(scene.folder / "source", rows, chance, files)

    def sent() -> int:
        return sum(waiting(scene.url, queue) for queue in QUEUES)

    number = 0
    with job_list() as jobs:
        for left, (_, victim) in zip(range(scene.times, 0, -1), victims(("sending",), "python", "jvm"), strict=False):
            job = scene.write()
            there = killed(job, victim, sent, 2 * rows, chance.random() / (left + 1), jobs)
            if there is None:
                break
            number += 1
            scene.say(
                f"{number:>3}: {victim} killed {job.age:.1f} s after the start: {there:,} of {2 * rows:,} rows sent"
            )
            if chance.random() < 0.5:
                job.wait_until_gone()
        else:
            finished(scene.write(), jobs)
        for queue in QUEUES:
            _refuse(faults(peeked(scene.url, queue), Counter(), names))
    return f"{number} kills in the middle: {rows:,} rows to each of two queues in {files} batches, lost 0, twice 0"


def write_source(source: Path, rows: int, chance: random.Random, files: int = 3, *, first: int = 0) -> set[str]:
    """Write the files whose rows are sent, and return the names of their messages, from the number ``first``."""
    source.mkdir()
    names = [f"row-{first + number}" for number in range(rows)]
    for at in range(0, rows, -(-rows // files)):
        piece = names[at : at + -(-rows // files)]
        keys = [f"key {chance.randrange(20)}" if chance.random() < 0.3 else None for _ in piece]
        table = pa.table({"body": [name.encode() for name in piece], "message_id": piece, "partition_key": keys})
        parquet.write_table(table, source / f"part-{at}.parquet")
    return set(names)
