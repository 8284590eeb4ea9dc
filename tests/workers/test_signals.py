"""Tests of the signals that stop a worker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sbredis.workers.supervising._signals import StopRequests
from tests.children import run_program

STOPPED = """
import asyncio, os, random, subprocess, sys
from sbredis.workers.supervising._programs import run_in_loop
from sbredis.workers.supervising._signals import stopping_by_signals

SENDER = '''
import os, sys
for line in sys.stdin:
    os.kill(int(sys.argv[1]), 2)
    for _ in range(int(line)): pass
    os.kill(int(sys.argv[1]), 15)
    print(flush=True)
'''

async def main():
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDER, str(os.getpid()), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for _ in range(2000):
        stopped = asyncio.Event()
        with stopping_by_signals(stopped.set, supervised=True):
            sender.stdin.write(b"%d\\n" % random.randrange(2000))
            sum(range(random.randrange(3000)))
            await stopped.wait()
            await sender.stdout.readline()
            for _ in range(3):
                await asyncio.sleep(0)
    sender.stdin.close()
    await sender.wait()

run_in_loop(main())
"""


ENDED = """
import asyncio, os, signal, time
from sbredis.workers.supervising._programs import run_in_loop
from sbredis.workers.supervising._signals import stopping_by_signals

async def main():
    stopped = asyncio.Event()
    with stopping_by_signals(stopped.set, supervised=False):
        os.kill(os.getpid(), signal.SIGTERM)
        await stopped.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.01)
    print("ignored the same request", flush=True)
    if not AFTER:
        await asyncio.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(3600)

run_in_loop(main())
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize(("after", "code", "told"), [(False, 128 + 15, ""), (True, 0, "True True\n")])
def test_a_second_request_ends_a_program_that_waits_after_its_worker_has_ended(
    tmp_path: Path, after: bool, code: int, told: str
) -> None:
    program = ENDED.replace("AFTER", str(after))
    done = run_program(sys.executable, "-c", program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, f"ignored the same request\n{told}"), done.stderr


def test_signals_that_come_together_are_one_request() -> None:
    requests = StopRequests()
    assert [requests.signalled(now) for now in (7.0, 7.1, 7.49, 7.51, 9)] == [
        *("first", "same", "same", "second", "second")
    ]


def test_ctrl_c_and_the_signal_of_the_supervisor_are_one_signal_for_a_supervised_worker(tmp_path: Path) -> None:
    """uvloop calls a handler twice if another signal that has a handler comes at almost the same time."""
    done = run_program(sys.executable, "-c", STOPPED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
