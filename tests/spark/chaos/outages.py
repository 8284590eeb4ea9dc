"""Servers that go away under a capture: the query goes on, or stops with an error that says why. Nothing is lost
silently.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from sbredis.servers import LocalCluster, LocalServer
from tests.spark.chaos.feeding import Feed, feeding
from tests.spark.chaos.jobs import Job
from tests.spark.chaos.moments import Folders, reach
from tests.spark.chaos.scenes import Scene, drained, job_list

__all__ = ["failovers", "losses", "master_crash", "restarts", "server_crash"]

_MOMENTS = ("planning", "reading", "writing", "committing")


def _outcome(scene: Scene, job: Job) -> str:
    """Wait until the job has committed more batches, or has stopped. Return which of them, and its error."""
    at = Folders(scene.folder)
    goal = at.committed() + 2
    if job.until(lambda: at.committed() >= goal):
        return "the query goes on"
    told = [line for line in job.said.splitlines() if line.startswith("sbredis: ")]
    assert job.code == 1, job.said[-3000:]
    assert told, job.said[-3000:]
    return f"the query stops: {told[-1]}"


def _fed(scene: Scene) -> Feed:
    return Feed(scene.url, scene.queue, scene.seed, outages=True)


def failovers(scene: Scene, cluster: LocalCluster) -> str:
    """Kill a master while its partitions are captured, again and again. Its replica takes over."""
    chance = random.Random(scene.seed)
    scene.create()
    with job_list() as jobs:
        with feeding(_fed(scene)) as feed:
            job = None
            for number in range(1, scene.times + 1):
                if job is None or job.code is not None:
                    job = scene.stream()
                    jobs.append(job)
                moment = _MOMENTS[number % len(_MOMENTS)]
                assert reach(moment, scene.folder, job, chance), job.said[-3000:]
                master = chance.choice(cluster.masters)
                master.kill()
                cluster.wait_until_ok(60)
                back = number % 3 > 0  # otherwise the new master has no replica, which every write needs
                if back:
                    master.restart()
                said = _outcome(scene, job)
                how = "comes back as a replica" if back else "stays away"
                scene.say(f"{number:>3}: a master, killed while {moment}, {how}: {said}; {scene.progress()}")
                master.start()
                cluster.wait_until_ok(60)
            assert job is not None
            job.end()
        return drained(scene, jobs, feed)


def server_crash(server: LocalServer) -> Callable[[random.Random], object]:
    """Return a function that kills a server and starts it again with what it has stored."""

    def crash(_: random.Random) -> None:
        server.kill()
        server.start()

    return crash


def master_crash(cluster: LocalCluster) -> Callable[[random.Random], object]:
    """Return a function that kills one master of a cluster without replicas, and starts it again."""

    def crash(chance: random.Random) -> None:
        master = chance.choice(cluster.masters)
        master.kill()
        master.restart()
        cluster.wait_until_ok(60)

    return crash


def restarts(scene: Scene, crash: Callable[[random.Random], object]) -> str:
    """Kill a server, which has stored each write, and start it again, while its queue is captured."""
    chance = random.Random(scene.seed)
    scene.create()
    with job_list() as jobs:
        with feeding(_fed(scene)) as feed:
            job = None
            for number in range(1, scene.times + 1):
                if job is None or job.code is not None:
                    job = scene.stream()
                    jobs.append(job)
                moment = _MOMENTS[number % len(_MOMENTS)]
                assert reach(moment, scene.folder, job, chance), job.said[-3000:]
                crash(chance)
                said = _outcome(scene, job)
                scene.say(f"{number:>3}: server killed while {moment}: {said}; {scene.progress()}")
            assert job is not None
            job.end()
        return drained(scene, jobs, feed)


def losses(scene: Scene, cluster: LocalCluster) -> str:
    """Kill a master that has no replica and stores nothing. The query must stop, and say that messages are lost."""
    chance = random.Random(scene.seed)
    scene.create()
    with job_list() as jobs, feeding(_fed(scene)):
        job = scene.stream()
        jobs.append(job)
        assert reach("between batches", scene.folder, job, chance), job.said[-3000:]
        master = chance.choice(cluster.masters)
        master.kill()
        master.restart()
        cluster.wait_until_ok(60)
        for number in range(1, scene.times + 1):  # the query stops whenever it is started again
            if number > 1:
                job = scene.stream()
                jobs.append(job)
            said = _outcome(scene, job)
            scene.say(f"{number:>3}: master lost: {said}; {scene.progress()}")
            assert "stops" in said
    return "the loss is reported in each run"
