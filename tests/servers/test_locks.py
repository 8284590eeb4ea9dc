"""Locks on files: who holds them, who waits for them, and for how long."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sbredis.servers._locks import FileLock
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")


def test_an_exclusive_lock_has_one_holder_and_a_shared_lock_may_have_several(tmp_path: Path) -> None:
    one, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert one.take()
    assert not other.take()
    assert not other.take(shared=True)
    one.drop()
    assert other.take(shared=True)
    assert one.take(shared=True)
    assert not one.take()
    for lock in (one, other):
        lock.close()


def test_a_waiter_gets_the_lock_when_its_holder_releases_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, waiting = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert holder.take()
    tried: list[int] = []
    real = FileLock._try

    def counted(self: FileLock, operation: int) -> bool:
        tried.append(operation)
        return real(self, operation)

    monkeypatch.setattr(FileLock, "_try", counted)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(waiting.take, until=time.monotonic() + 60)
        wait_until(lambda: len(tried) >= 3)
        assert not taken.done()
        holder.drop()
        assert taken.result(60)
    for lock in (holder, waiting):
        lock.close()


def test_a_waiter_for_a_lock_gives_up_at_its_deadline(tmp_path: Path) -> None:
    holder, waiting = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert holder.take()
    until = time.monotonic() + 0.03
    assert not waiting.take(until=until)
    assert time.monotonic() >= until
    for lock in (holder, waiting):
        lock.close()
