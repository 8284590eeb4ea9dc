"""Tests of the turns of the readers of one machine at a server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sbredis.spark._turns import Turns

HOUR = 3600.0
HOLDER = """
import asyncio, sys
from pathlib import Path
from sbredis.spark._turns import Turns

async def main():
    async with Turns(Path(sys.argv[1])).at(sys.argv[2]) as has_turn:
        print(has_turn, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def holding(folder: Path, server: str) -> subprocess.Popen[str]:
    """Start a process that has a turn until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), server], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


async def test_a_reader_waits_for_the_turn_of_another_process_which_ends_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "turns"
    with holding(folder, "a:1") as process:
        turns = Turns(folder, patience=HOUR)

        async def wait() -> bool:
            async with turns.at("a:1") as has_turn:
                return has_turn

        waiting = asyncio.create_task(wait())
        async with turns.at("b:1") as has_turn:
            assert has_turn, "another server has turns of its own"
        assert not waiting.done()
        os.kill(process.pid, signal.SIGKILL)
        assert await waiting


async def test_the_readers_of_one_process_take_turns(tmp_path: Path) -> None:
    turns = Turns(tmp_path, patience=HOUR)
    readers = most = 0

    async def read() -> None:
        nonlocal readers, most
        for _ in range(5):
            async with turns.at("a:1") as has_turn:
                assert has_turn
                readers += 1
                most = max(most, readers)
                await asyncio.sleep(0)
                readers -= 1

    await asyncio.gather(*(read() for _ in range(4)))
    assert most == 1


async def test_a_reader_does_not_wait_for_long(tmp_path: Path) -> None:
    """The server may not answer the holder of the turn."""
    with holding(tmp_path, "a:1") as process:
        async with Turns(tmp_path, patience=0.0).at("a:1") as has_turn:
            assert not has_turn
        process.kill()


async def test_where_no_files_can_be_made_a_reader_does_not_wait(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    async with Turns(file / "turns", patience=HOUR).at("a:1") as has_turn:
        assert not has_turn


async def test_an_error_in_a_turn_ends_it(tmp_path: Path) -> None:
    turns = Turns(tmp_path, patience=HOUR)
    with pytest.raises(ValueError, match="no page"):
        async with turns.at("a:1"):
            raise ValueError("no page")
    async with turns.at("a:1") as has_turn:
        assert has_turn
