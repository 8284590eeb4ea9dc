"""The long form of the tests of Spark's jobs that are killed, and of servers that go away under them.

python -m tests.spark.chaos.run [SCENE ...] [--times N] [--seed N]

It takes an hour. After each scene it looks for messages that are missing or there twice.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sbredis.servers import LocalCluster, LocalServer
from tests.spark.chaos.outages import failovers, losses, master_crash, restarts, server_crash
from tests.spark.chaos.scenes import Scene, captures, replays, writes

__all__ = ["SCENES"]


def _captures(scene: Scene) -> str:
    with LocalServer() as server:
        return captures(replace(scene, url=server.url))


def _captures_cluster(scene: Scene) -> str:
    with LocalCluster(3) as cluster:
        return captures(replace(scene, url=cluster.url))


def _replays(scene: Scene) -> str:
    with LocalServer() as server:
        return replays(replace(scene, url=server.url))


def _replays_cluster(scene: Scene) -> str:
    with LocalCluster(3) as cluster:
        return replays(replace(scene, url=cluster.url))


def _writes(scene: Scene) -> str:
    with LocalServer() as server:
        return writes(replace(scene, url=server.url))


def _writes_cluster(scene: Scene) -> str:
    with LocalCluster(3) as cluster:
        return writes(replace(scene, url=cluster.url))


_STORING = {"appendonly": "yes", "appendfsync": "always"}


def _restarts(scene: Scene) -> str:
    with LocalServer(directory=scene.folder / "data", config=_STORING) as server:
        return restarts(replace(scene, url=server.url), server_crash(server))


def _restarts_cluster(scene: Scene) -> str:
    with LocalCluster(3, config=_STORING) as cluster:
        return restarts(replace(scene, url=cluster.url), master_crash(cluster))


def _failovers(scene: Scene) -> str:
    with LocalCluster(3, 1, node_timeout=2000) as cluster:
        return failovers(replace(scene, url=f"{cluster.url}?durability=replicated"), cluster)


def _losses(scene: Scene) -> str:
    with LocalCluster(3) as cluster:
        return losses(replace(scene, url=cluster.url, times=2), cluster)


SCENES: dict[str, Callable[[Scene], str]] = {
    "captures": _captures,
    "captures-cluster": _captures_cluster,
    "replays": _replays,
    "replays-cluster": _replays_cluster,
    "writes": _writes,
    "writes-cluster": _writes_cluster,
    "restarts": _restarts,
    "restarts-cluster": _restarts_cluster,
    "failovers": _failovers,
    "losses": _losses,
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"{', '.join(SCENES)}; all of them by default")
    parser.add_argument("--times", type=int, default=14, help="how often each thing happens (14)")
    parser.add_argument("--seed", type=int, default=1, help="for the moments (1)")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, by the jobs too
    for scene in given.scenes or SCENES:
        began = time.monotonic()
        _say(f"{scene} x {given.times}, seed {given.seed}")
        with tempfile.TemporaryDirectory() as folder:
            said = SCENES[scene](Scene("", Path(folder), given.times, given.seed, _say))
        _say(f"{scene} x {given.times}: {said}; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
