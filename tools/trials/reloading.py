"""Correct the module of a worker while it runs: with the extra ``reload``, the worker starts again.

python reloading.py CONNECTION_STRING
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from sbredis import ServiceBusClient, ServiceBusMessage

MODULE = """
from sbredis.workers import Worker

worker = Worker({url!r})


@worker.queue("reloaded", create_if_missing=True)
async def show(text: str) -> None:
    print(text, flush=True)
"""


def main(url: str) -> None:
    module = Path("reloaded.py")
    module.write_text("worker = (", encoding="utf-8")
    with ServiceBusClient(url) as client, client.get_queue_sender("reloaded", create_if_missing=True) as sender:
        sender.send_messages(ServiceBusMessage("the worker has started again"))
    command = [sys.executable, "-m", "sbredis.workers", "reloaded:worker", "--reload"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        while "starts again when a file changes" not in (line := worker.stderr.readline()):
            assert line, "the worker has ended"
        module.write_text(MODULE.format(url=url), encoding="utf-8")
        print(worker.stdout.readline(), end="", flush=True)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


if __name__ == "__main__":
    main(sys.argv[1])
